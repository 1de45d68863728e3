"""Alibaba Cloud as SkyPilot sees a provisioner; burst.provision.alibaba does the work.

The functions are those of `sky.provision`. What Alibaba Cloud refuses leaves as SkyPilot's
ProvisionerError with the cloud's own code in its text, which is logged too: a launch's log is all
that comes through SkyPilot.
"""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sky.provision import common
from sky.utils import status_lib

from burst.clock import SystemClock
from burst.errors import BurstError
from burst.provision.alibaba import machines
from burst.provision.alibaba.client import Api, connect
from burst.provision.alibaba.cloud import TERM
from burst.provision.alibaba.errors import EcsError
from burst.provision.alibaba.machines import Instance, Order
from burst.provision.alibaba.network import Network, afresh, furnish, key_pair
from burst.provision.alibaba.quotas import quota
from burst.provision.rented import RUN_TAG
from burst.provision.sky_plugin.told import failure

CLUSTER_TAG = "skypilot-cluster"
NETWORKS = Path("~/.sky/locks/burst-alibaba-network")  # of this person's launches, one at a time
BOOT_S = 600.0
LOOK_S = 3.0
STATES = {
    "Pending": status_lib.ClusterStatus.INIT,
    "Starting": status_lib.ClusterStatus.INIT,
    "Running": status_lib.ClusterStatus.UP,
    "Stopping": status_lib.ClusterStatus.STOPPED,
    "Stopped": status_lib.ClusterStatus.STOPPED,
}


def _api(region: str) -> Api:
    return connect(region, SystemClock())


def bootstrap_instances(
    region: str, cluster_name_on_cloud: str, config: common.ProvisionConfig
) -> common.ProvisionConfig:
    """Leave everything to `run_instances`, which may have to make the network once more."""
    del region, cluster_name_on_cloud
    return config


def run_instances(
    region: str, cluster_name: str, cluster_name_on_cloud: str, config: common.ProvisionConfig
) -> common.ProvisionRecord:
    """Make the cluster's machines that are missing, all of them or none, and what they need."""
    del cluster_name
    api, node = _api(region), config.node_config
    there = _cluster(api, cluster_name_on_cloud)
    made: tuple[str, ...] = ()
    missing = config.count - len(there)
    if missing > 0:
        with _told("the machines", api, spot=bool(node["UseSpot"])):
            made = afresh(lambda: _launch(api, cluster_name_on_cloud, node, missing))
    known = sorted([*(one.instance_id for one in there), *made])
    return common.ProvisionRecord(
        provider_name="alibaba",
        region=region,
        zone=node["Zone"],
        cluster_name=cluster_name_on_cloud,
        head_instance_id=known[0],
        resumed_instance_ids=[],
        created_instance_ids=list(made),
    )


def _launch(api: Api, cluster: str, node: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Make machines in the region's network, which is made where it is missing."""
    with _one_at_a_time():
        network = furnish(api, [node["Zone"]])
        key = key_pair(api, node["PublicKey"])
    order = _order(api, cluster, node, count, network, key)
    return machines.launch(api, order, uuid.uuid4().hex)


def _order(
    api: Api, cluster: str, node: Mapping[str, Any], count: int, network: Network, key: str
) -> Order:
    """Return what to ask for. Only machines of burst's runs have a term: burst puts it off."""
    labels = {str(key): str(value) for key, value in (node["Labels"] or {}).items()}
    term = api.clock.now() + TERM + timedelta(minutes=1) if RUN_TAG in labels else None
    return Order(
        zone=node["Zone"],
        machine_type=node["InstanceType"],
        image_id=node["ImageId"] or "",
        image_family=node["ImageFamily"],
        vswitch_id=network.vswitches[node["Zone"]],
        security_group_id=network.security_group_id,
        key_pair=key,
        name=cluster,
        tags={**labels, CLUSTER_TAG: cluster},
        count=count,
        spot=bool(node["UseSpot"]),
        price_limit=Decimal(limit) if (limit := node["SpotPriceLimit"]) else None,
        disk_gb=int(node["DiskSize"]),
        user_data=node["UserData"],
        release_at=term,
    )


def wait_instances(
    region: str, cluster_name_on_cloud: str, state: status_lib.ClusterStatus | None
) -> None:
    """Wait until the machines run. RuntimeError when they do not, or are taken meanwhile."""
    if state != status_lib.ClusterStatus.UP:
        return
    api = _api(region)
    until_s = api.clock.monotonic() + BOOT_S
    while True:
        with _told("the machines"):
            there = _cluster(api, cluster_name_on_cloud)
        if there and all(one.state == "Running" for one in there):
            return
        if not there or api.clock.monotonic() >= until_s:
            states = ", ".join(str(one) for one in there) or "none is there"
            raise RuntimeError(f"the machines of {cluster_name_on_cloud} do not run: {states}")
        api.clock.sleep(LOOK_S)


def query_instances(
    cluster_name: str,
    cluster_name_on_cloud: str,
    provider_config: dict[str, Any] | None = None,
    non_terminated_only: bool = True,
    retry_if_missing: bool = False,
) -> dict[str, tuple[status_lib.ClusterStatus | None, str | None]]:
    """Return what state each machine is in, and why where that is known."""
    del cluster_name, non_terminated_only, retry_if_missing
    with _told("the machines"):
        there = _cluster(_of(provider_config), cluster_name_on_cloud)
    why = {True: machines.RECYCLING, False: None}
    return {one.instance_id: (STATES[one.state], why[one.taken]) for one in there}


def get_cluster_info(
    region: str, cluster_name_on_cloud: str, provider_config: dict[str, Any] | None = None
) -> common.ClusterInfo:
    """Return the addresses of the machines that run."""
    with _told("the machines"):
        there = _cluster(_api(region), cluster_name_on_cloud)
    running = {one.instance_id: one for one in there if one.state == "Running"}
    return common.ClusterInfo(
        instances={name: [_info(one)] for name, one in running.items()},
        head_instance_id=min(running, default=None),
        provider_name="alibaba",
        provider_config=provider_config,
    )


def _info(one: Instance) -> common.InstanceInfo:
    return common.InstanceInfo(
        instance_id=one.instance_id,
        internal_ip=one.private_ip,
        external_ip=one.public_ip or None,
        tags=dict(one.tags),
    )


def terminate_instances(
    cluster_name_on_cloud: str,
    provider_config: dict[str, Any] | None = None,
    worker_only: bool = False,
) -> None:
    """Delete the cluster's machines. The network stays: it is shared, and costs nothing."""
    api = _of(provider_config)
    with _told("the end of the machines"):
        names = sorted(one.instance_id for one in _cluster(api, cluster_name_on_cloud))
        machines.delete(api, names[1:] if worker_only else names)


def stop_instances(
    cluster_name_on_cloud: str,
    provider_config: dict[str, Any] | None = None,
    worker_only: bool = False,
) -> None:
    """Refuse: see alibaba_cloud.CANNOT."""
    raise NotImplementedError("machines of Alibaba Cloud are not stopped, only deleted")


def cleanup_ports(
    cluster_name_on_cloud: str, ports: list[str], provider_config: dict[str, Any] | None = None
) -> None:
    """Do nothing: no port was opened."""


def _of(provider_config: dict[str, Any] | None) -> Api:
    assert provider_config is not None, "SkyPilot hands on what the template says"
    return _api(provider_config["region"])


def _cluster(api: Api, name: str) -> tuple[Instance, ...]:
    return machines.observe(api, {CLUSTER_TAG: name})


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    path = NETWORKS.expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _told(what: str, api: Api | None = None, *, spot: bool = False) -> Iterator[None]:
    """Turn our errors into SkyPilot's; of a full quota, say how full it is."""
    try:
        yield
    except BurstError as error:
        code = error.code if isinstance(error, EcsError) else type(error).__name__
        said = str(error)
        if api is not None and isinstance(error, EcsError) and _of_machines(error):
            said = f"{said}: {_quota(api, spot=spot)}"
        raise failure("alibaba", what, code, said) from error


def _of_machines(error: EcsError) -> bool:
    return error.reason == "quota" and error.action == "RunInstances"


def _quota(api: Api, *, spot: bool) -> str:
    try:
        return str(quota(api, spot=spot))
    except BurstError as error:
        return f"how full it is, Alibaba Cloud does not say: {error}"
