"""Loaded by SkyPilot's API server in the lab, for its managed jobs."""

from __future__ import annotations

from typing import Any

from sky.server import plugins

from tests.lab.market import ENDPOINT


class OfflineNetworkCheck(plugins.BasePlugin):
    """A controller of managed jobs asks 8.8.8.8 whether it has a network; here the cloud is it."""

    def install(self, extension_context: Any) -> None:
        from sky.backends import backend_utils

        backend_utils._TEST_IP_LIST = [ENDPOINT]
