"""The composition root of looking at pools: which module asks which kind of pool.

What `burst pools` and `burst doctor` show. A further kind of pool is one more entry in `KINDS`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from burst import plan_wiring, wiring
from burst.errors import BurstError, SetupError, UsageError
from burst.task_specs.infra import CLOUDS
from burst.task_specs.problems import nearest

if TYPE_CHECKING:
    from burst.controller.last_refusals import LastRefusal
    from burst.cost.offers import Offer
    from burst.provision.alibaba.network import Idle
    from burst.provision.inspection.cuda import Torch
    from burst.provision.inspection.port import Finding, Inspected, Row, Wanted
    from burst.task_specs.model import Task

log = logging.getLogger(__name__)
GIB = 1024**3
CUDA_BYTES = 6 * GIB  # what torch of PyPI takes beyond one for CPUs: about, by its wheels' sizes


def _local() -> Sequence[Inspected]:
    from burst.provision.inspection.local import LocalPool, driver_here

    return [
        LocalPool(
            look=wiring.this_machine,
            quote=plan_wiring.local_quote,
            nodes=lambda: wiring.local_pool().living(),
            driver=driver_here,
            torch=_torch_here(),
            now=wiring.clock().now,
        )
    ]


def _hosts() -> Sequence[Inspected]:
    from burst.provision.bundle import packages_name
    from burst.provision.hosts import Hosts
    from burst.provision.inspection.hosts import HostsPool, pools_of

    now, there = wiring.clock().now, pools_of(wiring.ssh_hosts())
    packages = packages_name() if there and not wiring.missing_packages() else ""
    return [
        HostsPool(name=name, hosts=Hosts(hosts, wiring.home()), packages=packages, now=now)
        for name, hosts in there.items()
    ]


def _slurm() -> Sequence[Inspected]:
    from burst.provision.inspection.slurm import SlurmPool

    home, now = wiring.home(), wiring.clock().now
    return [SlurmPool(cluster=one, home=home, now=now) for one in wiring.slurm_clusters()]


def _k8s() -> Sequence[Inspected]:
    """Return the clusters of the contexts that pools.yaml names, and of the current one."""
    from burst.provision import skypilot
    from burst.provision.inspection.kubernetes import KubernetesPool
    from burst.provision.k8s import client
    from burst.provision.k8s.rates import read_rates

    rates = read_rates(wiring.pools())
    there = find_spec("kubernetes") is not None and client.config_files()
    current = client.known_contexts()[1] if there else ""
    return [
        KubernetesPool(
            context=context,
            connect=partial(wiring.k8s_client, context),
            nodes=partial(skypilot.pod_nodes, context),
            rates=rates.get(context),
            now=wiring.clock().now,
        )
        for context in sorted({*rates, current} - {""})
    ]


def _aws() -> Sequence[Inspected]:
    if find_spec("boto3") is None:
        return []
    from burst.provision.ec2 import Account, has_credentials, usual_region
    from burst.provision.inspection.aws import Aws

    if not has_credentials():
        return []
    return [Aws(calls=Account(), region=usual_region(), now=wiring.clock().now)]


def _alibaba() -> Sequence[Inspected]:
    from burst.provision.alibaba import credentials
    from burst.provision.alibaba.client import address, connect
    from burst.provision.alibaba.settings import USUAL_REGION, read_settings
    from burst.provision.inspection.alibaba import AlibabaPool
    from burst.storage.server_time import ahead_s

    found = credentials.find(os.environ, Path.home())
    if found is None:
        return []
    said = wiring.pools().get("alibaba") or {}
    settings = read_settings(said, found.region or USUAL_REGION)
    return [
        AlibabaPool(
            connect=lambda region: connect(region, wiring.clock()),
            region=settings.regions[0],
            ahead_s=lambda region: ahead_s(address(region), wiring.clock().now),
        )
    ]


def _lambda() -> Sequence[Inspected]:
    from burst.provision.inspection.lambda_cloud import LambdaPool
    from burst.provision.lambda_cloud.api import connect, read_key

    try:
        read_key(os.environ)
    except SetupError:
        return []
    return [LambdaPool(connect=lambda: connect(os.environ, wiring.clock()))]


KINDS: Mapping[str, Callable[[], Sequence[Inspected]]] = {  # by the first part of a pool's name
    "local": _local,
    "ssh": _hosts,
    "slurm": _slurm,
    "k8s": _k8s,
    "aws": _aws,
    "alibaba": _alibaba,
    "lambda": _lambda,
}

NAMED_IN: Mapping[str, str] = {  # where pools come from whose names are the person's own
    "ssh": "`ssh:` in pools.yaml names the hosts",
    "slurm": "~/.slurm/config names the login nodes",
    "k8s": "they are the kubeconfig's current context and those in pools.yaml",
}


def _inspected(kind: str) -> Sequence[Inspected]:
    """Return the pools of a kind that are known here; of a cloud, if it has credentials."""
    from burst.provision.inspection.port import Unreadable

    try:
        return KINDS[kind]()
    except BurstError as error:
        return [Unreadable(kind, error)]


def _of(kinds: Iterable[str], pool: str | None) -> list[Inspected]:
    from burst.provision.inspection.port import meant

    return [one for kind in kinds for one in _inspected(kind) if meant(one.name, pool)]


def _rented() -> Inspected:
    """Return all clouds, as SkyPilot and their own interfaces tell of them together."""
    from burst.provision import skypilot
    from burst.provision.inspection.clouds import Rented

    skypilot.prepare(wiring.home())
    return Rented(
        own=_of(filter(_is_cloud, KINDS), None),
        enabled=skypilot.enabled_clouds,
        cheapest=skypilot.cheapest_gpu,
        now=wiring.clock().now,
    )


def _is_cloud(pool: str) -> bool:
    """Whether a pool's machines are rented."""
    from burst.cost.offers import is_owned

    return not is_owned(pool)


def asks_skypilot(pool: str | None) -> bool:
    """Whether `pool_rows` asks SkyPilot, whose server it starts if none runs."""
    return pool is None or (_kind(pool) in CLOUDS and _is_cloud(pool))


def absent(pool: str) -> BurstError:
    """Return what is wrong with a name for which nothing was found, and what to do about it."""
    kind, _, part = pool.partition("/")
    if kind in plan_wiring.NEEDS:
        try:
            plan_wiring.NEEDS[kind]([part])
        except UsageError as missing:
            return missing
    if kind == "alibaba":  # SkyPilot's own commands do not know it
        from burst.provision.alibaba.credentials import HINT

        return SetupError(f"nothing can be rented at {kind} from here: no credentials", hint=HINT)
    if asks_skypilot(pool):
        words = f"nothing can be rented at {kind} from here: no credentials that SkyPilot accepts"
        return SetupError(words, hint=f"see what it wants: sky check {kind}")
    own = [one.name for one in _of({kind} & {*KINDS}, None)]
    like = nearest(pool, own) if kind in CLOUDS else nearest(kind, CLOUDS)
    guess = f"; did you mean {like}?" if like else ""
    hint = "see the pools there are: burst pools"
    if kind in NAMED_IN:
        hint += f"; {NAMED_IN[kind]}"
    return UsageError(f"there is no pool {pool}{guess}", hint=hint)


def _kind(pool: str) -> str:
    return pool.partition("/")[0]


def pool_rows(pool: str | None) -> tuple[Row, ...]:
    """Ask each pool, or those that a name means, what it has; SkyPilot for clouds."""
    from burst.provision.inspection.port import meant, rows

    own = [kind for kind in KINDS if not _is_cloud(kind)]
    asked = _of(own, pool)
    if not asks_skypilot(pool):
        return rows(asked)
    clouds = _rented()
    found = rows([*asked, clouds])
    return tuple(row for row in found if meant(row.pool, pool) or row.pool == clouds.name)


def idle_networks() -> tuple[Idle, ...]:
    """Return what burst made in an account for machines, and no machine uses, in all regions.

    Only at Alibaba Cloud; a region that does not answer is left out, with a warning.
    """
    from concurrent.futures import ThreadPoolExecutor

    from burst.provision.alibaba import credentials
    from burst.provision.alibaba.client import connect
    from burst.provision.alibaba.network import idle
    from burst.provision.alibaba.settings import USUAL_REGION
    from burst.provision.sky_plugin.register import wanted

    found = credentials.find(os.environ, Path.home()) if "alibaba" in wanted() else None
    if found is None:
        return ()

    def look(region: str) -> tuple[Idle, ...]:
        try:
            return idle(connect(region, wiring.clock()))
        except BurstError as error:
            log.warning("not looked for networks in %s: %s", region, error.message)
            return ()

    try:
        told = connect(found.region or USUAL_REGION, wiring.clock()).call("DescribeRegions")
    except BurstError as error:
        log.warning("not looked for networks at Alibaba Cloud: %s", error.message)
        return ()
    regions = sorted(one["RegionId"] for one in told["Regions"]["Region"])
    with ThreadPoolExecutor(16) as threads:
        return tuple(one for some in threads.map(look, regions) for one in some)


def last_refusals(*, far: bool) -> Mapping[str, LastRefusal]:
    """Return each pool's newest refusal; `far`: of runs in buckets too."""
    from burst.controller.last_refusals import last_refusals

    return last_refusals(wiring.runs().all(near=not far))


def findings(task: Task | None, pool: str | None) -> tuple[Finding, ...]:
    """Look for what is wrong with each pool, or those that a name means, for a task or any.

    SkyPilot is asked when the task needs it for its plan, or a cloud is named that burst itself
    cannot ask.
    """
    from burst.provision.inspection.port import findings, meant

    asked = _of(KINDS, pool)
    if pool is not None and asks_skypilot(pool) and not asked:
        asked = [_rented()]
    wanted, problems = _wanted(task)
    found = [one for one in findings(asked, wanted) if meant(one.pool, pool)]
    stored = _store(task, wanted) if task is not None else ()
    return (*problems, *found, *stored)


def _wanted(task: Task | None) -> tuple[Wanted, Sequence[Finding]]:
    """Return what a task needs of machines, and what keeps that from being known."""
    from burst.cost.offers import candidates
    from burst.provision.inspection import cuda
    from burst.provision.inspection.port import Finding, Wanted

    try:
        torch = cuda.of_nodes(version("torch"), task.setup if task else None)
    except PackageNotFoundError:
        torch = None
    disk = _packages_bytes(torch)
    if task is None:
        return Wanted(torch=torch, disk_bytes=disk), ()
    problems: list[Finding] = []
    there: tuple[Offer, ...] = ()
    try:
        offered = plan_wiring.offers(task)
        there = tuple(one.offer for one in candidates(task, offered))
    except BurstError as error:
        fix = error.hint or ""
        problems.append(Finding(what="plan", works=False, detail=error.message, fix=fix))
    else:
        if not there:
            words, fix = "no pool has what the task wants", "burst plan FILE says why, pool by pool"
            problems.append(Finding(what="plan", works=False, detail=words, fix=fix))
    gpus = any(one.accelerators for one in task.candidates)
    size = disk + _folder_bytes(Path(task.workdir)) if task.workdir else disk
    wanted = Wanted(
        torch=torch, gpus=gpus, disk_bytes=size, nodes=task.num_nodes, machines=there
    )  # fmt: skip
    return wanted, problems


def _packages_bytes(torch: Torch | None) -> int:
    """Return how much disk a node's packages take, about."""
    from burst.provision.bundle import packages_bytes

    try:
        size = packages_bytes()
    except SetupError:
        return 0  # a finding of its own tells that they are missing
    here = _torch_here()
    for_cpus = here is not None and here.cuda is None
    return size + CUDA_BYTES if for_cpus and torch is not None and torch.cuda else size


def _torch_here() -> Torch | None:
    from burst.provision.inspection.cuda import installed

    there = find_spec("torch")
    folders = there.submodule_search_locations if there else None
    return installed(Path(folders[0])) if folders else None


def _folder_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def _store(task: Task, wanted: Wanted) -> Iterator[Finding]:
    """Try where the task's run would be kept: reach, rights, and its clock."""
    from burst.provision.inspection.port import Finding, clock_finding
    from burst.storage.server_time import address_of, ahead_s
    from burst.storage.settings import settings_from

    uri = task.burst.run_uri or f"file://{wiring.home() / 'runs'}"
    try:
        more = _try_out(uri)
    except BurstError as error:
        fix = error.hint or f"see whether {uri} is there, and who may write to it"
        yield Finding(what="run URI", works=False, detail=error.message, fix=fix)
    else:
        words = f"{uri} can be read, written, claimed and listed"
        yield Finding(what="run URI", works=True, detail=words + more)
    blind = wanted.machines and not wiring.sees_files(wanted.machines[0].pool)
    if uri.startswith("file:") and blind:
        words = f"machines of {wanted.machines[0].pool} cannot reach {uri}"
        fix = "give a bucket: burst.run_uri: s3://BUCKET/runs"
        yield Finding(what="run URI of nodes", works=False, detail=words, fix=fix)
    settings = settings_from(os.environ)
    address = address_of(uri, settings)
    if address is None:
        return
    try:
        off_s = ahead_s(address, wiring.clock().now, ca_bundle=settings.ca_bundle)
    except BurstError as error:
        yield Finding(what="clock of the run URI", works=None, detail=error.message)
        return
    if off_s is not None:
        yield clock_finding("", "clock of the run URI", off_s)


def _try_out(uri: str) -> str:
    """Try where runs would be kept; return what to say of a folder that is not there yet.

    No folder stays that the trial made, unless somebody has put something there.
    """
    from burst.storage.preflight import check_store

    folder = Path(uri.removeprefix("file://"))
    inside = (folder, *folder.parents) if uri.startswith("file:") else ()
    missing = list(takewhile(lambda path: not os.path.exists(path), inside))  # noqa: PTH110 - no right to look is no error
    try:
        check_store(wiring.store(uri))
    finally:
        with suppress(OSError):
            for path in missing:
                path.rmdir()
    return "; it is not there yet: a run makes it" if missing else ""
