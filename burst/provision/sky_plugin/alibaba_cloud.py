"""Alibaba Cloud as SkyPilot sees a cloud: which machines there are, and what a launch needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sky import catalog, clouds
from sky.utils import registry, resources_utils

from burst.clock import SystemClock
from burst.errors import BurstError
from burst.provision.alibaba.client import connect
from burst.provision.sky_plugin import alibaba_catalog

CHECK_REGION = "ap-southeast-1"  # where it is asked whether keys are good; any region does
IMAGE_FAMILY = "acs:ubuntu_22_04_x64"
NAME_LONGEST = 120  # of an instance, 128, with what SkyPilot adds
DISK_GB = 100
CAN = clouds.CloudImplementationFeatures
CANNOT = {
    CAN.AUTOSTOP: "nodes know no plugins; burst's runs end by AutoReleaseTime",
    CAN.AUTODOWN: "nodes know no plugins; burst's runs end by AutoReleaseTime",
    CAN.STOP: "a stopped machine's disk goes on costing, and it may not start again",
    CAN.OPEN_PORTS: "the security group lets in SSH only",
    CAN.CLONE_DISK_FROM_CLUSTER: "not supported by burst's plugin",
    CAN.CUSTOM_DISK_TIER: "not supported by burst's plugin",
    CAN.CUSTOM_NETWORK_TIER: "not supported by burst's plugin",
    CAN.CUSTOM_MULTI_NETWORK: "not supported by burst's plugin",
    CAN.LOCAL_DISK: "not supported by burst's plugin",
    CAN.HOST_CONTROLLERS: "a controller would need the plugin on its node",
    CAN.HIGH_AVAILABILITY_CONTROLLERS: "a controller would need the plugin on its node",
}


@registry.CLOUD_REGISTRY.register(aliases=["aliyun"])
class Alibaba(clouds.Cloud):
    """See sky.clouds.Cloud. The name of the class is the name of the cloud."""

    _REPR = "Alibaba"
    PROVISIONER_VERSION = clouds.ProvisionerVersion.SKYPILOT
    STATUS_VERSION = clouds.StatusVersion.SKYPILOT

    # What there is --------------------------------------------------------------------------------

    @classmethod
    def _unsupported_features_for_resources(
        cls, resources: Any, region: str | None = None
    ) -> dict[clouds.CloudImplementationFeatures, str]:
        del resources, region
        return dict(CANNOT)

    @classmethod
    def max_cluster_name_length(cls) -> int | None:
        return NAME_LONGEST

    @classmethod
    def optimize_by_zone(cls) -> bool:
        return True  # spot prices differ between zones

    @classmethod
    def regions_with_offering(
        cls,
        instance_type: str,
        accelerators: Any,
        use_spot: bool,
        region: str | None,
        zone: str | None,
        resources: Any = None,
    ) -> list[clouds.Region]:
        del accelerators, resources
        found = catalog.get_region_zones_for_instance_type(instance_type, use_spot, "alibaba")
        found = [one for one in found if region in {None, one.name}]
        for one in found:
            one.set_zones([z for z in one.zones or [] if zone in {None, z.name}])
        return [one for one in found if one.zones]

    @classmethod
    def zones_provision_loop(
        cls,
        *,
        region: str,
        num_nodes: int,
        instance_type: str,
        accelerators: Any = None,
        use_spot: bool = False,
    ) -> Iterator[list[clouds.Zone]]:
        del num_nodes
        for one in cls.regions_with_offering(instance_type, accelerators, use_spot, region, None):
            for zone in one.zones or []:
                yield [zone]

    @classmethod
    def get_zone_shell_cmd(cls) -> str | None:
        return None  # the metadata service wants a token; SkyPilot knows the zone it asked for

    def instance_type_exists(self, instance_type: str) -> bool:
        return bool(catalog.instance_type_exists(instance_type, "alibaba"))

    def validate_region_zone(self, region: str | None, zone: str | None) -> Any:
        return catalog.validate_region_zone(region, zone, clouds="alibaba")

    @classmethod
    def get_vcpus_mem_from_instance_type(cls, instance_type: str) -> Any:
        return catalog.get_vcpus_mem_from_instance_type(instance_type, clouds="alibaba")

    @classmethod
    def get_accelerators_from_instance_type(cls, instance_type: str) -> Any:
        return catalog.get_accelerators_from_instance_type(instance_type, clouds="alibaba")

    @classmethod
    def get_arch_from_instance_type(cls, instance_type: str) -> Any:
        return catalog.get_arch_from_instance_type(instance_type, clouds="alibaba")

    @classmethod
    def get_default_instance_type(cls, **wanted: Any) -> str | None:  # type: ignore[override]
        return catalog.get_default_instance_type(clouds="alibaba", **wanted)

    # What it costs --------------------------------------------------------------------------------

    def instance_type_to_hourly_cost(
        self,
        instance_type: str,
        use_spot: bool,
        region: str | None = None,
        zone: str | None = None,
    ) -> float:
        cost = catalog.get_hourly_cost(
            instance_type, use_spot=use_spot, region=region, zone=zone, clouds="alibaba"
        )
        return float(cost)

    def accelerators_to_hourly_cost(self, *_: Any, **__: Any) -> float:
        return 0.0  # they are part of the machine type

    def get_egress_cost(self, num_gigabytes: float) -> float:
        del num_gigabytes
        return 0.0  # burst's ledger does not ask SkyPilot; nor do its launches move data

    # What can be launched -------------------------------------------------------------------------

    def _get_feasible_launchable_resources(self, resources: Any) -> Any:
        if resources.instance_type is not None:
            return resources_utils.FeasibleResources([resources.copy(accelerators=None)], [], None)
        types, similar = self._types(resources)
        machines = [
            resources.copy(cloud=self, instance_type=t, accelerators=None, cpus=None, memory=None)
            for t in types
        ]
        return resources_utils.FeasibleResources(machines, similar, None)

    def _types(self, wanted: Any) -> tuple[list[str], list[str]]:
        """Return the machine types that fit, cheapest first, and similar ones to tell of."""
        given = {
            "cpus": wanted.cpus,
            "memory": wanted.memory,
            "use_spot": wanted.use_spot,
            "region": wanted.region,
            "zone": wanted.zone,
            "max_hourly_cost": wanted.max_hourly_cost,
        }
        if wanted.accelerators is None:
            usual = self.get_default_instance_type(**given)
            return ([usual] if usual else []), []
        ((kind, count),) = wanted.accelerators.items()
        types, similar = catalog.get_instance_type_for_accelerator(
            kind, count, clouds="alibaba", **given
        )
        return types or [], similar

    def make_deploy_resources_variables(
        self,
        resources: Any,
        cluster_name: Any,
        region: Any,
        zones: Any,
        num_nodes: int,
        dryrun: bool = False,
        volume_mounts: Any = None,
    ) -> dict[str, Any]:
        del cluster_name, num_nodes, dryrun, volume_mounts
        wanted = resources.assert_launchable()
        gpus = self.get_accelerators_from_instance_type(wanted.instance_type)
        images = wanted.image_id or {}
        return {
            "instance_type": wanted.instance_type,
            "custom_resources": resources_utils.make_ray_custom_resources_str(gpus),
            "use_spot": wanted.use_spot,
            "region": region.name,
            "zones": ",".join(zone.name for zone in zones or []),
            "image_id": images.get(region.name) or images.get(None) or "",
            "image_family": IMAGE_FAMILY,
            "disk_size": wanted.disk_size or DISK_GB,
            "spot_price_limit": _price_limit(wanted, region.name),
        }

    # Whose it is ----------------------------------------------------------------------------------

    @classmethod
    def _check_compute_credentials(cls) -> tuple[bool, str | None]:
        try:
            connect(CHECK_REGION, SystemClock()).call("DescribeRegions")
        except BurstError as error:
            return False, f"{error}. {error.hint or ''}".strip()
        return True, None

    def get_credential_file_mounts(self) -> dict[str, str]:
        return {}  # no key of a person's reaches a machine

    @classmethod
    def get_user_identities(cls) -> list[list[str]] | None:
        return None


def _price_limit(wanted: Any, region: str) -> str | None:
    """Return what a spot machine may cost per hour, as ECS bills it; None: up to on-demand."""
    if not wanted.use_spot or wanted.max_hourly_cost is None:
        return None
    return str(alibaba_catalog.as_billed(wanted.max_hourly_cost, region))
