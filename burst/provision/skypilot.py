"""SkyPilot 0.14.1: candidates, machines and logins, through its SDK and its API server.

The only `import sky` but for burst.provision.sky_plugin, which adds clouds to it. Nothing of
SkyPilot's gets out: no type, no exception, no status word. All calls block; each costs the API
server a process for some seconds, so ask sparingly.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from burst.cost.offers import OWN_POOLS, Offer
from burst.cost.placement import Place
from burst.cost.quotes import (
    PER_HOUR,
    PER_MINUTE,
    PER_SECOND,
    PER_SECOND_60,
    RULE_UNKNOWN,
    BillingRule,
    Quote,
)
from burst.errors import BurstError, SetupError, TransientError, UsageError
from burst.ports import Clock
from burst.provision.alibaba.settings import Settings
from burst.provision.k8s import pod
from burst.provision.refusals import RefusedError
from burst.provision.sky_plugin.register import register, tell_server
from burst.provision.ssh import Login
from burst.task_specs.infra import infra_text
from burst.task_specs.model import Accelerators, Amount, Infra, Resources, Task

BILLING: Mapping[str, BillingRule] = {
    "alibaba": PER_SECOND,  # ECS, "Pay-as-you-go": per second, invoiced hourly
    "aws": PER_SECOND_60,  # EC2, "On-Demand Pricing": per second, at least 60 s, Linux
    "lambda": PER_MINUTE,  # Lambda Cloud, "Billing": in one-minute increments
    "gcp": PER_SECOND_60,  # Compute Engine, "Pricing": per second, at least one minute
    "azure": PER_SECOND_60,
    "runpod": PER_SECOND_60,
    "ibm": PER_HOUR,
}
USUAL_CATALOG = "SkyPilot's catalog"
CATALOGS = {"alibaba": "Alibaba Cloud's prices"}  # whose words are not SkyPilot's own
POOLS = {"kubernetes": "k8s", "ssh": "k8s"}  # SkyPilot's SSH pools are Kubernetes clusters
SSH_CONTEXT = "ssh-"  # how their contexts begin
OURS = frozenset({"local", "ssh"})  # pools that SkyPilot has nothing to do with
TYPES_PER_CLOUD = 3  # machine types of each cloud that are looked at, cheapest first
_SUBMITTING = threading.Lock()  # redirecting standard output is for one thread at a time
ClusterState = Literal["starting", "up", "broken"]


def prepare(home: Path) -> None:
    """Have an API server that is started from here know burst's clouds too."""
    tell_server(home)


def refresh_alibaba(settings: Settings, clock: Clock) -> None:
    """Have Alibaba Cloud's prices and stock be of now. SetupError when there are none at all."""
    _sky()
    from burst.provision.sky_plugin import alibaba_catalog

    alibaba_catalog.refresh(settings, clock)


def offers(task: Task) -> tuple[Offer, ...]:
    """Return what the enabled clouds can give for the task's candidates, zone by zone.

    Prices are those of SkyPilot's catalog, as old as its files here. SetupError when SkyPilot is
    not installed or no cloud is enabled.
    """
    _sky()
    with _errors():
        theirs = [c for c in task.candidates if c.infra.cloud not in OURS]
        named = {name for c in theirs if (name := _cloud(c.infra)) is not None}
        enabled = _enabled(named)
        found = [offer for wanted in theirs for offer in _offers(wanted, task, enabled)]
    if not enabled:
        asked = " ".join(["sky check", *sorted(named)])
        raise SetupError("SkyPilot has no cloud enabled", hint=f"see what it wants: {asked}")
    return tuple(dict.fromkeys(found))


def _cloud(infra: Infra) -> str | None:
    """Return SkyPilot's name of a cloud."""
    return _of_context(infra.region or "") if infra.cloud == "k8s" else infra.cloud


def _of_context(context: str) -> str:
    return "ssh" if context.startswith(SSH_CONTEXT) else "kubernetes"


def _infra(infra: Infra) -> str | None:
    """Write a place as SkyPilot does; a context or pool of its own may hold slashes."""
    if _cloud(infra) == "ssh":
        return f"ssh/{(infra.region or '').removeprefix(SSH_CONTEXT)}"
    return infra_text(infra)


def _enabled(named: set[str]) -> list[str]:
    """Return the clouds that SkyPilot has rights for; it is made to look at named ones it has not.

    Its own check of all clouds takes most of a minute.
    """
    import sky
    from sky.client import sdk

    enabled = {str(name).lower() for name in sky.get(sdk.enabled_clouds())}
    if named - enabled:
        sky.get(sdk.check(tuple(sorted(named - enabled)), verbose=False))
        enabled = {str(name).lower() for name in sky.get(sdk.enabled_clouds())}
    return sorted(enabled)


def _offers(wanted: Resources, task: Task, enabled: list[str]) -> Iterator[Offer]:
    from sky.utils import registry, resources_utils

    named = _cloud(wanted.infra)
    for name in [cloud for cloud in enabled if named in {None, cloud}]:
        cloud: Any = registry.CLOUD_REGISTRY.from_str(name)
        for spot in _markets(wanted, task, POOLS.get(name, name)):
            asked = _resources(wanted, cloud, use_spot=spot)
            feasible = cloud.get_feasible_launchable_resources(asked, 1).resources_list
            for machine in feasible[:TYPES_PER_CLOUD]:
                for pinned in resources_utils.make_launchables_for_valid_region_zones(
                    machine, override_optimize_by_zone=True
                ):
                    yield _offer(pinned, POOLS.get(name, name))


def _markets(wanted: Resources, task: Task, pool: str) -> tuple[bool, ...]:
    if pool in OWN_POOLS:
        return (False,)
    if wanted.use_spot is not None:
        return (wanted.use_spot,)
    return {"spot": (True,), "on-demand": (False,), "auto": (True, False)}[task.burst.spot]


def _resources(wanted: Resources, cloud: Any, *, use_spot: bool) -> Any:  # noqa: ANN401 - sky's
    sky = _sky()
    gpus, infra = wanted.accelerators, wanted.infra
    try:
        cloud.validate_region_zone(infra.region, infra.zone)
        return sky.Resources(
            cloud=cloud,
            region=infra.region,
            zone=infra.zone,
            accelerators=None if gpus is None else {gpus.kind: gpus.count},
            instance_type=wanted.instance_type,
            cpus=_amount(wanted.cpus),
            memory=_amount(wanted.memory_gb),
            use_spot=use_spot,
        )
    except ValueError as error:  # there is no such region, or machine type
        raise UsageError(f"infra {infra_text(infra) or cloud}: {error}") from None


def _amount(amount: Amount | None) -> str | None:
    if amount is None:
        return None
    return f"{amount.value:g}{'x' if amount.per_cpu else ''}{'+' if amount.at_least else ''}"


def _offer(pinned: Any, cloud: str) -> Offer:  # noqa: ANN401 - sky's
    cpus, memory = pinned.cloud.get_vcpus_mem_from_instance_type(pinned.instance_type)
    gpus = pinned.accelerators or {}
    dated = _catalog_date(cloud)
    quote = Quote(
        usd_per_hour=Decimal(repr(float(pinned.get_cost(3600)))),
        source=f"{CATALOGS.get(cloud, USUAL_CATALOG)} of {dated:%Y-%m-%d}",
        observed_at=dated,
        billing=BILLING.get(cloud, RULE_UNKNOWN),
        free=cloud in OWN_POOLS,
    )
    return Offer(
        pool=cloud,
        region=pinned.region or "",
        zone=pinned.zone or "",
        machine_type=pinned.instance_type,
        cpus=float(cpus or 0),
        memory_gb=float(memory or 0),
        accelerators=next((Accelerators(kind=k, count=int(n)) for k, n in gpus.items()), None),
        spot=bool(pinned.use_spot),
        quote=quote,
    )


def _catalog_date(cloud: str) -> datetime:
    """Return of when the catalog's file of a cloud is."""
    from sky.catalog import common

    path = Path(common.get_catalog_path(f"{cloud}/vms.csv")).expanduser()
    return datetime.fromtimestamp(path.stat().st_mtime if path.exists() else 0, UTC)


# Machines -----------------------------------------------------------------------------------------


def launch(
    name: str, place: Place, wanted: Mapping[str, Any], labels: Mapping[str, str], log: Path
) -> None:
    """Make a cluster of one node at a place, or bring up the one of this name; log what is said.

    RefusedError when the place gives none. Safe to call again for the same name.
    """
    sky = _sky()
    task = task_of(name, place, wanted, labels)
    log.parent.mkdir(parents=True, exist_ok=True)
    before = log.stat().st_size if log.exists() else 0
    with log.open("a", encoding="utf-8") as out:
        try:
            with _SUBMITTING, contextlib.redirect_stdout(out):  # it prints the cluster's name
                asked = sky.launch(task, cluster_name=name, fast=True, retry_until_up=False)
            sky.stream_and_get(asked, output_stream=out)
        except Exception as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            out.flush()
            said = log.read_bytes()[before:].decode(errors="replace")
            raise RefusedError(
                f"{type(error).__name__}: {error}", f"{said}\n{_whole(error)}"
            ) from error


def task_of(name: str, place: Place, wanted: Mapping[str, Any], labels: Mapping[str, str]) -> Any:  # noqa: ANN401 - sky's
    """Return the task of SkyPilot's whose launch makes a node's machine."""
    sky = _sky()
    wanted = dict(wanted)
    mounts = wanted.pop("file_mounts", {})
    task = sky.Task.from_yaml_config({"name": name, "file_mounts": mounts})
    where = Infra(cloud=place.pool, region=place.region or None, zone=place.zone or None)
    task.set_resources(
        sky.Resources(
            infra=_infra(where),
            instance_type=place.machine_type,
            use_spot=place.spot,
            labels=dict(labels),
            _cluster_config_overrides=_overrides(place.pool),
            **wanted,
        )
    )
    return task


def _overrides(pool: str) -> dict[str, Any] | None:
    """Return what burst adds to SkyPilot's settings for one machine."""
    if pool != "k8s":
        return None
    return {cloud: {"pod_config": copy.deepcopy(pod.CONFIG)} for cloud in POOLS}


def _whole(error: BaseException) -> str:
    """Return an error's text and that of every place SkyPilot tried."""
    history = getattr(error, "failover_history", ())
    return "\n".join([str(error), *(str(tried) for tried in history)])


def states(prefix: str, *, refresh: bool) -> dict[str, ClusterState]:
    """Return the clusters whose name begins so; `refresh` has their clouds asked."""
    sky = _sky()
    with _errors():
        known = sky.get(sky.status(None, refresh=sky.StatusRefreshMode.NONE))
        names = [record.name for record in known if record.name.startswith(prefix)]
        if not names:
            return {}
        if refresh:
            known = sky.get(sky.status(names, refresh=sky.StatusRefreshMode.FORCE))
    return {r.name: _state(r) for r in known if r.name.startswith(prefix)}


def _state(record: Any) -> ClusterState:  # noqa: ANN401 - sky's
    if record.status.value == "UP":
        return "up"
    launching = record.status.value == "INIT" and record.init_kind == "launching"
    return "starting" if launching else "broken"


def login(name: str, keys: Path) -> Login:
    """Return how a cluster's node is reached; its key is put into a folder of ours."""
    sky = _sky()
    with _errors():
        found = sky.get(sky.status([name], _include_credentials=True))
    if not found or found[0].handle is None:
        raise TransientError(f"SkyPilot knows no machine of {name}")
    handle, secret = found[0].handle, found[0].credentials or {}
    ips = handle.stable_internal_external_ips
    if not ips:
        raise TransientError(f"SkyPilot knows no address of {name}")
    keys.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = keys / f"{name}.pem"
    with open(key, "w", opener=_private, encoding="utf-8") as file:
        file.write(secret["ssh_private_key_content"].rstrip("\n") + "\n")
    internal, external = ips[0]
    return Login(
        host=external or internal,
        ip=internal,
        user=secret["ssh_user"],
        key=key,
        proxy_command=secret.get("ssh_proxy_command"),
    )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def vacant(place: Place) -> int:
    """Return how many pods of a place's type Kubernetes has room for; clouds do not say: 0.

    0 too where SkyPilot may not list the pods of all namespaces, which then says nothing.
    """
    if place.pool != "k8s":
        return 0
    sky = _sky()
    from sky.client import sdk

    with _errors():
        nodes = sky.get(sdk.kubernetes_node_info(place.region)).node_info_dict.values()
        cpus, memory = sky.Kubernetes.get_vcpus_mem_from_instance_type(place.machine_type)
        gpus = sky.Kubernetes.get_accelerators_from_instance_type(place.machine_type) or {}
    return sum(_room(node, cpus, memory, gpus) for node in nodes if _takes_pods(node))


def _takes_pods(node: Any) -> bool:  # noqa: ANN401 - sky's
    kept_off = any(not taint.get("tolerated") for taint in node.taints or ())
    return node.is_ready and not node.is_cordoned and not kept_off


def _room(node: Any, cpus: float, memory: float, gpus: Mapping[str, float]) -> int:  # noqa: ANN401
    """Return how many pods of a size a node has room for."""
    room = [(node.cpu_free or 0) // cpus, (node.memory_free_gb or 0) // memory]
    for kind, count in gpus.items():
        alike = (node.accelerator_type or "").casefold() == kind.casefold()
        room.append(max(node.free["accelerators_available"], 0) // count if alike else 0)
    return int(min(room))


def namespace(context: str) -> str:
    """Return where SkyPilot's pods are in a Kubernetes cluster."""
    _sky()
    from sky.provision.kubernetes import utils

    with _errors():
        found: str = utils.get_namespace(context, cloud=_of_context(context))
    return found


def down(name: str) -> None:
    """End a cluster's machine; return when its cloud has taken it."""
    sky = _sky()
    with _errors():
        try:
            sky.get(sky.down(name))
        except sky.exceptions.ClusterDoesNotExist:
            return


def _sky() -> Any:  # noqa: ANN401 - the module; it has no types worth the name
    os.environ.setdefault("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    try:
        import sky
        import sky.exceptions
    except ImportError as error:
        raise SetupError(
            f"renting machines needs SkyPilot, which is not installed ({error.name})",
            hint="pip install 'burst-trainer[skypilot]'",
        ) from error
    logging.getLogger("sky").setLevel(logging.WARNING)  # it writes to standard output
    register()
    return sky


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn SkyPilot's failures into ours: whatever it is, the same call may work later."""
    try:
        yield
    except (BurstError, AttributeError, TypeError):  # ours, or a SkyPilot that is another
        raise
    except Exception as error:
        raise TransientError(f"SkyPilot: {type(error).__name__}: {error}") from error
