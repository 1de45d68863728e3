"""What SkyPilot does not try again in a launch after Alibaba Cloud refused."""

from __future__ import annotations

from typing import Any

import sky
from sky.backends import cloud_vm_ray_backend
from sky.utils import registry

from burst.provision.alibaba.codes import reason_of


def block(blocked: Any, launchable: Any, region: Any, zones: Any, error: Exception) -> None:
    """Rights block the cloud, a quota the machine type in the region, all else the zones.

    See FailoverCloudErrorHandlerV2; SkyPilot finds handlers by the name of their cloud.
    """
    del region
    codes = [one["code"] for one in getattr(error, "errors", ())]
    reasons = {reason_of(code) for code in codes}
    add = cloud_vm_ray_backend._add_to_blocked_resources
    if "rights" in reasons:
        add(blocked, sky.Resources(cloud=registry.CLOUD_REGISTRY.from_str("alibaba")))
    elif "quota" in reasons or not zones:
        add(blocked, launchable.copy(zone=None))
    else:
        for zone in zones:
            add(blocked, launchable.copy(zone=zone.name))
