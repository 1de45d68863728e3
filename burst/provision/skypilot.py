"""SkyPilot 0.14.1: candidates, machines and logins, through its SDK and its API server.

The only `import sky` but for burst.provision.sky_plugin, which adds clouds to it. Nothing of
SkyPilot's gets out: no type, no exception, no status word. All calls block; each costs the API
server a process for some seconds, so ask sparingly.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from burst.cost.offers import Offer, is_owned
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
from burst.errors import BurstError, SetupError, TransientError, UsageError, installing, together
from burst.ports import Clock
from burst.provision import ends
from burst.provision.alibaba.settings import Settings
from burst.provision.k8s import contexts, pod
from burst.provision.k8s.room import PodNode, PodSize, room
from burst.provision.pools import kind_of
from burst.provision.refusals import RefusedError
from burst.provision.rented import MachineRequest
from burst.provision.sky_plugin.register import REPLACED, register, tell_server
from burst.provision.ssh import Login
from burst.task_specs.infra import infra_text
from burst.task_specs.model import Accelerators, Amount, Infra, Resources, Task
from burst.task_specs.skypilot import machine_keys

log = logging.getLogger(__name__)

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
POOLS = dict.fromkeys(contexts.SKY_CLOUDS, contexts.POOL)  # what SkyPilot calls otherwise
TYPES_PER_CLOUD = 3  # machine types of each cloud that are looked at, cheapest first
_SUBMITTING = threading.Lock()  # redirecting standard output is for one thread at a time
FEATURES = ("disk_tier", "local_disk", "network_tier", "ports")  # that not every cloud has
NO_CLOUD = "SkyPilot has no cloud enabled"
DUMB = "see whether its server answers: sky api info; start it anew: sky api stop"
ClusterState = Literal["starting", "up", "broken"]
held = False  # no machine waits for its agent; see burst.provision.rented.Clusters
end_command = ends.end_command


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

    Each is for those candidates only for which SkyPilot has it.
    Prices are those of SkyPilot's catalog, as old as its files here. SetupError when SkyPilot is
    not installed or does not answer, or no cloud is enabled.
    """
    _sky()
    with _asking():
        every = enumerate(task.candidates)
        theirs = {n: c for n, c in every if kind_of(c.infra.cloud or "") == "cloud"}
        named = {name for c in theirs.values() if (name := _cloud(c.infra)) is not None}
        enabled, lame = _rentable([n for n in _enabled(named) if _has(n)])
        everywhere = any(_cloud(c.infra) is None for c in theirs.values())
        usable = [name for name in enabled if everywhere or name in named]
        if not usable:
            raise _unusable(named, lame)
        found: dict[Offer, list[int]] = {}
        for number, wanted in theirs.items():
            for offer in _offers(wanted, task, usable):
                found.setdefault(offer, []).append(number)
    told = named | (lame.keys() if everywhere else set())
    for error in (_unusable({name}, lame) for name in sorted(told - {*usable})):
        log.warning("left out: %s (%s)", error.message, error.hint)
    return tuple(
        replace(offer, made_for=tuple(dict.fromkeys(numbers))) for offer, numbers in found.items()
    )


def enabled_clouds() -> tuple[str, ...]:
    """Return the clouds that SkyPilot last found rights for. SetupError without SkyPilot.

    Starts SkyPilot's API server if none runs, which takes some seconds.
    """
    _sky()
    with _asking():
        return tuple(name for name in _enabled(set()) if not is_owned(_pool(name)))


def cheapest_gpu(cloud: str) -> Offer | None:
    """Return a cloud's machine whose GPU is cheapest by the hour, spot or not; None: it has none.

    From SkyPilot's catalog, as old as its file here; no server is asked. TransientError when the
    file is missing and cannot be fetched.
    """
    _sky()
    from sky import catalog

    with _errors():
        listed = catalog.list_accelerators(clouds=[cloud], all_regions=True)
        machines = [machine for kind in listed.values() for machine in kind]
        found = [offer for machine in machines for offer in _gpu_offers(machine, cloud)]
    return min(found, key=_per_gpu, default=None)


def _gpu_offers(machine: Any, cloud: str) -> Iterator[Offer]:  # noqa: ANN401 - sky's
    count = int(machine.accelerator_count)
    for usd, spot in ((machine.price, False), (machine.spot_price, True)):
        if count >= 1 and machine.instance_type and usd > 0:  # a missing price is NaN
            yield Offer(
                pool=cloud,
                region=machine.region,
                zone="",
                machine_type=machine.instance_type,
                cpus=float(machine.cpu_count or 0),
                memory_gb=float(machine.memory or 0),
                accelerators=Accelerators(kind=machine.accelerator_name, count=count),
                spot=spot,
                quote=_quote(cloud, usd),
            )


def _per_gpu(offer: Offer) -> Decimal:
    return offer.quote.usd_per_hour / (offer.accelerators.count if offer.accelerators else 1)


def _cloud(infra: Infra) -> str | None:
    """Return SkyPilot's name of the cloud that a task names."""
    return contexts.sky_cloud(infra.region or "") if infra.cloud == contexts.POOL else infra.cloud


def _pool(cloud: str) -> str:
    """Return what burst calls a cloud of SkyPilot's."""
    return POOLS.get(cloud, cloud)


def _has(cloud: str) -> bool:
    """Whether machines of a cloud of SkyPilot's are made by it: Slurm's are burst's business."""
    return kind_of(_pool(cloud)) == "cloud"


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


def _rentable(enabled: list[str]) -> tuple[list[str], Mapping[str, SetupError]]:
    """Tell clouds that the server would rent at by SkyPilot's own code from those it would not."""
    from burst.provision.sky_plugin.server import check_plugin

    lame: dict[str, SetupError] = {}
    for cloud in sorted(REPLACED & {*enabled}):
        try:
            check_plugin(cloud)
        except SetupError as error:
            lame[cloud] = error
    return [name for name in enabled if name not in lame], lame


def _unusable(named: set[str], lame: Mapping[str, SetupError]) -> BurstError:
    """Return why nothing can be rented at some clouds, or at any if none is named."""
    errors = [lame[name] for name in sorted(named or lame) if name in lame]
    others = sorted(named - lame.keys())
    if others or not errors:
        words = f"SkyPilot cannot use {', '.join(others)}" if others else NO_CLOUD
        hint = f"see what it wants: {' '.join(['sky check', *others])}"
        errors.append(SetupError(words, hint=hint))
    return together(errors)


def _offers(wanted: Resources, task: Task, enabled: list[str]) -> Iterator[Offer]:
    from sky.utils import registry, resources_utils

    named = _cloud(wanted.infra)
    for name in [cloud for cloud in enabled if named in {None, cloud}]:
        cloud: Any = registry.CLOUD_REGISTRY.from_str(name)
        for spot in _markets(wanted, task, _pool(name)):
            try:
                asked = _resources(wanted, cloud, use_spot=spot)
            except UsageError:
                if named is not None:
                    raise
                break  # a region of other clouds
            if lacks := _lacks(cloud, asked, wanted):
                log.warning("left out: %s has not what the task wants: %s", name, lacks)
                break
            feasible = cloud.get_feasible_launchable_resources(asked, 1).resources_list
            for machine in feasible[:TYPES_PER_CLOUD]:
                for pinned in resources_utils.make_launchables_for_valid_region_zones(
                    machine, override_optimize_by_zone=True
                ):
                    yield _offer(pinned, name)


def _lacks(cloud: Any, asked: Any, wanted: Resources) -> str:  # noqa: ANN401 - sky's
    """Return what a cloud cannot do for a task: ports, an image, labels, tiers."""
    from sky import clouds, exceptions

    can = clouds.CloudImplementationFeatures
    needed = asked.get_required_cloud_features() - {can.SPOT_INSTANCE}
    if wanted.image_id or "image_id" in wanted.other:
        docker = (wanted.image_id or "").startswith("docker:")
        needed.add(can.DOCKER_IMAGE if docker else can.IMAGE_ID)
    labels = (cloud.is_label_valid(key, value) for key, value in wanted.labels.items())
    lacks = [str(why) for valid, why in labels if not valid]
    try:
        cloud.check_features_are_supported(asked, needed)
    except exceptions.NotSupportedError as error:
        lacks.append(str(error))
    return " ".join(" ".join(lacks).split())


def _markets(wanted: Resources, task: Task, pool: str) -> tuple[bool, ...]:
    if is_owned(pool):
        return (False,)  # SkyPilot has no spot there
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
            **{key: value for key, value in machine_keys(wanted).items() if key in FEATURES},
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
    pool, region = cloud, pinned.region or ""
    if cloud in POOLS:
        pool, region = contexts.pool_of(region), ""
    return Offer(
        pool=pool,
        region=region,
        zone=pinned.zone or "",
        machine_type=pinned.instance_type,
        cpus=float(cpus or 0),
        memory_gb=float(memory or 0),
        accelerators=next((Accelerators(kind=k, count=int(n)) for k, n in gpus.items()), None),
        spot=bool(pinned.use_spot),
        quote=_quote(cloud, pinned.get_cost(3600)),
    )


def _quote(cloud: str, usd_per_hour: float) -> Quote:
    dated = _catalog_date(cloud)
    return Quote(
        usd_per_hour=Decimal(repr(float(usd_per_hour))),
        source=f"{CATALOGS.get(cloud, USUAL_CATALOG)} of {dated:%Y-%m-%d}",
        observed_at=dated,
        billing=BILLING.get(cloud, RULE_UNKNOWN),
        free=is_owned(_pool(cloud)),
    )


def _catalog_date(cloud: str) -> datetime:
    """Return of when the catalog's file of a cloud is."""
    from sky.catalog import common

    path = Path(common.get_catalog_path(f"{cloud}/vms.csv")).expanduser()
    return datetime.fromtimestamp(path.stat().st_mtime if path.exists() else 0, UTC)


# Machines -----------------------------------------------------------------------------------------


def launch(request: MachineRequest) -> None:
    """Make a cluster of one node at a place, or bring up the one of this name; log what is said.

    RefusedError when the place gives none. Safe to call again for the same name.
    """
    sky = _sky()
    name, place, log = request.name, request.place, request.log
    _check_server(place)
    task = task_of(request)
    log.parent.mkdir(parents=True, exist_ok=True)
    before = log.stat().st_size if log.exists() else 0
    with log.open("a", encoding="utf-8") as out:
        try:
            # it prints the cluster's name
            with _SUBMITTING, _keyless(), contextlib.redirect_stdout(out):
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


def _check_server(place: Place) -> None:
    """Refuse a place whose cloud the server would rent at by SkyPilot's own code."""
    if place.pool in REPLACED:
        from burst.provision.sky_plugin.server import check_plugin

        try:
            check_plugin(place.pool)
        except SetupError as error:
            raise RefusedError(error.message, f"{error.message}; {error.hint}") from error


@contextlib.contextmanager
def _keyless() -> Iterator[None]:
    """Say with the requests made here that keys which no node needs stay here."""
    from burst.provision.sky_plugin.lambda_hooks import KEYLESS_VAR

    os.environ[KEYLESS_VAR] = "1"
    try:
        yield
    finally:
        del os.environ[KEYLESS_VAR]


def task_of(request: MachineRequest) -> Any:  # noqa: ANN401 - sky's
    """Return the task of SkyPilot's whose launch makes a node's machine."""
    sky = _sky()
    place, wanted = request.place, dict(request.wanted)
    mounts = wanted.pop("file_mounts", {})
    task = sky.Task.from_yaml_config({"name": request.name, "file_mounts": mounts})
    context = contexts.context_of(place.pool)
    where = "/".join((place.pool, place.region or "*", place.zone or "*"))
    task.set_resources(
        sky.Resources(
            infra=contexts.sky_infra(context) if context else where,
            instance_type=place.machine_type,
            use_spot=place.spot,
            labels={**wanted.pop("labels", {}), **request.labels},
            _cluster_config_overrides=_pod_settings(request.wait_s) if context else None,
            **wanted,
        )
    )
    return task


def _pod_settings(wait_s: float | None) -> dict[str, Any]:
    """Return what burst adds to SkyPilot's settings for a pod, which may wait so long for room."""
    settings: dict[str, Any] = {"pod_config": pod.CONFIG}
    if wait_s is not None:
        settings["provision_timeout"] = max(1, math.ceil(wait_s))
    return {cloud: copy.deepcopy(settings) for cloud in contexts.SKY_CLOUDS}


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


def machine_env(name: str) -> Mapping[str, str]:
    """See burst.provision.rented.Clusters: a rented machine is the node's as a whole."""
    del name
    return {}


def vacant(place: Place) -> int:
    """Return how many pods of a place's type Kubernetes has room for; clouds do not say: 0.

    0 too where nobody knows: the pods of all namespaces may not be listed, say.
    """
    context = contexts.context_of(place.pool)
    if not context:
        return 0
    sky = _sky()
    with _errors():
        cpus, memory_gb = sky.Kubernetes.get_vcpus_mem_from_instance_type(place.machine_type)
        gpus = sky.Kubernetes.get_accelerators_from_instance_type(place.machine_type) or {}
    kind, count = next(iter(gpus.items()), ("", 0))
    size = PodSize(cpus=cpus, memory_gb=memory_gb, gpu=kind, gpus=int(count))
    try:
        return sum(room(node, size) for node in pod_nodes(context))
    except TransientError as error:
        log.info("%s does not say what it has room for: %s", place.pool, error)
        return 0


def pod_nodes(context: str) -> tuple[PodNode, ...]:
    """Return the machines of a Kubernetes cluster, asked from here, not by SkyPilot's server.

    TransientError, too, if the nodes, or the pods of all namespaces, may not be listed.
    """
    _sky()
    from sky.provision.kubernetes import utils
    from sky.utils import annotations

    old: Any = annotations  # it has no types; its caches are meant for processes of one request
    with _errors():
        old.clear_request_level_cache()
        found = utils.get_kubernetes_node_info(context).node_info_dict.values()
    return tuple(map(_pod_node, found))


def _pod_node(node: Any) -> PodNode:  # noqa: ANN401 - sky's
    kept_off = any(not taint.get("tolerated") for taint in node.taints or ())
    kind, gpus = node.accelerator_type or "", int(node.total["accelerator_count"])
    free = None
    if node.cpu_free is not None and node.memory_free_gb is not None:
        left = max(int(node.free["accelerators_available"]), 0)
        free = PodSize(cpus=node.cpu_free, memory_gb=node.memory_free_gb, gpu=kind, gpus=left)
    return PodNode(
        usable=node.is_ready and not node.is_cordoned and not kept_off,
        whole=PodSize(
            cpus=node.cpu_count or 0.0, memory_gb=node.memory_gb or 0.0, gpu=kind, gpus=gpus
        ),
        free=free,
    )


def namespace(context: str) -> str:
    """Return where SkyPilot's pods are in a Kubernetes cluster."""
    _sky()
    from sky.provision.kubernetes import utils

    with _errors():
        found: str = utils.get_namespace(context, cloud=contexts.sky_cloud(context))
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
            hint=installing("skypilot"),
        ) from error
    _hush()
    register()
    return sky


def _hush() -> None:
    """Let SkyPilot warn on standard error; it writes to standard output, where results are."""
    logger = logging.getLogger("sky")
    logger.setLevel(logging.WARNING)
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """Be `_errors` for a person who waits for the answer: say what to do when there is none."""
    try:
        with _errors():
            yield
    except TransientError as error:
        raise SetupError(error.message, hint=DUMB) from error


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn SkyPilot's failures into ours: whatever it is, the same call may work later."""
    try:
        yield
    except (BurstError, AttributeError, TypeError):  # ours, or a SkyPilot that is another
        raise
    except Exception as error:
        raise TransientError(f"SkyPilot: {type(error).__name__}: {error}") from error
