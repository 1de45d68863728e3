"""Lambda Cloud as SkyPilot sees a provisioner; burst.provision.lambda_cloud does the work.

It takes the place of SkyPilot's own one, which waits for ever when a machine disappears, keeps
booting or is unhealthy. What is not defined here (stopping, ports) stays SkyPilot's. What Lambda
refuses leaves as SkyPilot's ProvisionerError with the cloud's own code in its text, which is
logged too: a launch's log is all that comes through SkyPilot.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

from sky.provision import common
from sky.utils import status_lib

from burst.clock import SystemClock
from burst.errors import BurstError
from burst.provision.lambda_cloud import cluster
from burst.provision.lambda_cloud.api import (
    Instance,
    LambdaApi,
    LambdaError,
    Launch,
    State,
    connect,
)
from burst.provision.rented import NODE_ID, NODE_TAG, RUN_TAG
from burst.provision.sky_plugin.told import failure

PROVIDER = "lambda"
_NODE = re.compile(rf"burst-(.+)-({NODE_ID.pattern})")
_STATUS: dict[State, status_lib.ClusterStatus | None] = {
    "booting": status_lib.ClusterStatus.INIT,
    "active": status_lib.ClusterStatus.UP,
    "unhealthy": status_lib.ClusterStatus.INIT,  # there, and paid for
    "preempted": None,
    "terminating": None,
    "terminated": None,
}


def run_instances(
    region: str, cluster_name: str, cluster_name_on_cloud: str, config: common.ProvisionConfig
) -> common.ProvisionRecord:
    """Bring up what is missing of a cluster; an error after a limit, never a wait for ever."""
    node = _NODE.fullmatch(cluster_name)
    like = Launch(
        name="",
        region=region,
        machine_type=config.node_config["InstanceType"],
        ssh_key=config.authentication_config["remote_key_name"],
        tags={RUN_TAG: node[1], NODE_TAG: node[2]} if node else {},
    )
    wanted = cluster.Wanted(cluster=cluster_name_on_cloud, count=config.count, like=like)
    with _told():
        made = cluster.bring_up(_api(), SystemClock(), wanted)
    return common.ProvisionRecord(
        provider_name=PROVIDER,
        cluster_name=cluster_name_on_cloud,
        region=region,
        zone=None,
        head_instance_id=made.machines[0].instance_id,
        resumed_instance_ids=[],
        created_instance_ids=list(made.new),
    )


def wait_instances(region: str, cluster_name_on_cloud: str, state: Any) -> None:
    """Do nothing: run_instances has waited."""
    del region, cluster_name_on_cloud, state


def query_instances(
    cluster_name: str,
    cluster_name_on_cloud: str,
    provider_config: dict[str, Any] | None = None,
    non_terminated_only: bool = True,
    retry_if_missing: bool = False,
) -> dict[str, tuple[status_lib.ClusterStatus | None, str | None]]:
    """Return the status of each machine, and why it is of no use."""
    del cluster_name, provider_config, retry_if_missing
    return {
        one.instance_id: (_STATUS[one.state], None if one.works else one.state)
        for one in _members(cluster_name_on_cloud)
        if one.costs or not non_terminated_only
    }


def terminate_instances(
    cluster_name_on_cloud: str,
    provider_config: dict[str, Any] | None = None,
    worker_only: bool = False,
) -> None:
    """End a cluster's machines; nothing left is no error."""
    del provider_config
    there = _members(cluster_name_on_cloud)
    with _told():
        cluster.end(
            _api(), [m for m in there if not (worker_only and m.name.endswith(f"-{cluster.HEAD}"))]
        )


def get_cluster_info(
    region: str, cluster_name_on_cloud: str, provider_config: dict[str, Any] | None = None
) -> common.ClusterInfo:
    """Return the addresses of the machines that are up."""
    del region
    there = [one for one in _members(cluster_name_on_cloud) if one.state == "active"]
    heads = [one.instance_id for one in there if _is_head(one)]
    return common.ClusterInfo(
        instances={one.instance_id: [_info(one)] for one in there},
        head_instance_id=heads[0] if heads else None,
        provider_name=PROVIDER,
        provider_config=provider_config,
    )


def _is_head(one: Instance) -> bool:
    return one.name.endswith(f"-{cluster.HEAD}")


def _info(one: Instance) -> common.InstanceInfo:
    return common.InstanceInfo(
        instance_id=one.instance_id,
        internal_ip=one.private_ip or one.ip,  # not every region has private ones
        external_ip=one.ip,
        tags=dict(one.tags),
        node_name=one.instance_id,
    )


def _members(cluster_name_on_cloud: str) -> tuple[Instance, ...]:
    with _told():
        return cluster.members(_api(), cluster_name_on_cloud)


def _api() -> LambdaApi:
    return connect(os.environ, SystemClock())


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn our errors into SkyPilot's."""
    try:
        yield
    except BurstError as error:
        code = error.code if isinstance(error, LambdaError) else type(error).__name__
        raise failure(PROVIDER, "Lambda Cloud", code, error.message) from error
