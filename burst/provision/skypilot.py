"""SkyPilot 0.14.1: candidates, machines and logins, through its SDK and its API server.

The only `import sky` but for burst.provision.sky_plugin, which adds clouds to it. Nothing of
SkyPilot's gets out: no type, no exception, no status word. All calls block; each costs the API
server a process for some seconds, so ask sparingly.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from burst.cost.offers import Offer
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
from burst.errors import BurstError, SetupError, TransientError
from burst.ports import Clock
from burst.provision.alibaba.settings import Settings
from burst.provision.pools import kind_of
from burst.provision.refusals import RefusedError
from burst.provision.rented import MachineRequest
from burst.provision.sky_plugin.register import REPLACED, register, tell_server
from burst.provision.ssh import Login
from burst.task_specs.model import Accelerators, Amount, Resources, Task

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
        named = {c.infra.cloud for c in task.candidates if c.infra.cloud is not None}
        named = {name for name in named if kind_of(name) == "cloud"}
        enabled = _rentable([n for n in _enabled(named) if kind_of(n) == "cloud"], named)
        found = [offer for wanted in task.candidates for offer in _offers(wanted, task, enabled)]
    if not enabled:
        asked = " ".join(["sky check", *sorted(named)])
        raise SetupError("SkyPilot has no cloud enabled", hint=f"see what it wants: {asked}")
    return tuple(dict.fromkeys(found))


def enabled_clouds() -> tuple[str, ...]:
    """Return the clouds that SkyPilot last found rights for. SetupError without SkyPilot.

    Starts SkyPilot's API server if none runs, which takes some seconds.
    """
    _sky()
    with _errors():
        return tuple(_enabled(set()))


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


def _rentable(enabled: list[str], named: set[str]) -> list[str]:
    """Leave out clouds that the server would rent at by SkyPilot's own code.

    SetupError if the task names one.
    """
    from burst.provision.sky_plugin.server import check_plugin

    for cloud in sorted(REPLACED & {*enabled}):
        try:
            check_plugin(cloud)
        except SetupError as error:
            if cloud in named:
                raise
            log.warning("%s is left out: %s (%s)", cloud, error.message, error.hint)
            enabled = [name for name in enabled if name != cloud]
    return enabled


def _offers(wanted: Resources, task: Task, enabled: list[str]) -> Iterator[Offer]:
    from sky.utils import registry, resources_utils

    named = wanted.infra.cloud
    for name in [cloud for cloud in enabled if named in {None, cloud}]:
        cloud: Any = registry.CLOUD_REGISTRY.from_str(name)
        for spot in _markets(wanted, task):
            asked = _resources(wanted, name, use_spot=spot)
            feasible = cloud.get_feasible_launchable_resources(asked, 1).resources_list
            for machine in feasible[:TYPES_PER_CLOUD]:
                for pinned in resources_utils.make_launchables_for_valid_region_zones(
                    machine, override_optimize_by_zone=True
                ):
                    yield _offer(pinned, name)


def _markets(wanted: Resources, task: Task) -> tuple[bool, ...]:
    if wanted.use_spot is not None:
        return (wanted.use_spot,)
    return {"spot": (True,), "on-demand": (False,), "auto": (True, False)}[task.burst.spot]


def _resources(wanted: Resources, cloud: str, *, use_spot: bool) -> Any:  # noqa: ANN401 - sky's
    sky = _sky()
    infra = "/".join(part or "*" for part in (cloud, wanted.infra.region, wanted.infra.zone))
    gpus = wanted.accelerators
    return sky.Resources(
        infra=infra,
        accelerators=None if gpus is None else {gpus.kind: gpus.count},
        instance_type=wanted.instance_type,
        cpus=_amount(wanted.cpus),
        memory=_amount(wanted.memory_gb),
        use_spot=use_spot,
    )


def _amount(amount: Amount | None) -> str | None:
    if amount is None:
        return None
    return f"{amount.value:g}{'x' if amount.per_cpu else ''}{'+' if amount.at_least else ''}"


def _offer(pinned: Any, cloud: str) -> Offer:  # noqa: ANN401 - sky's
    cpus, memory = pinned.cloud.get_vcpus_mem_from_instance_type(pinned.instance_type)
    gpus = pinned.accelerators or {}
    return Offer(
        pool=cloud,
        region=pinned.region or "",
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
    )


def _catalog_date(cloud: str) -> datetime:
    """Return of when the catalog's file of a cloud is."""
    from sky.catalog import common

    path = Path(common.get_catalog_path(f"{cloud}/vms.csv")).expanduser()
    return datetime.fromtimestamp(path.stat().st_mtime if path.exists() else 0, UTC)


# Machines -----------------------------------------------------------------------------------------


def launch(request: MachineRequest) -> None:
    """Make a cluster of one node at a place, or bring up the one of this name; log what is said.

    RefusedError when the place gives none, which clouds say at once. Safe to call again for the
    same name.
    """
    sky = _sky()
    name, place, log = request.name, request.place, request.log
    _check_server(place)
    wanted = dict(request.wanted)
    mounts = wanted.pop("file_mounts", {})
    task = sky.Task.from_yaml_config({"name": name, "file_mounts": mounts})
    parts = (place.pool, place.region or "*", place.zone or "*")
    task.set_resources(
        sky.Resources(
            infra="/".join(parts),
            instance_type=place.machine_type,
            use_spot=place.spot,
            labels=dict(request.labels),
            **wanted,
        )
    )
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
    """Return 0: clouds do not say what they could give."""
    del place
    return 0


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
def _errors() -> Iterator[None]:
    """Turn SkyPilot's failures into ours: whatever it is, the same call may work later."""
    try:
        yield
    except (BurstError, AttributeError, TypeError):  # ours, or a SkyPilot that is another
        raise
    except Exception as error:
        raise TransientError(f"SkyPilot: {type(error).__name__}: {error}") from error
