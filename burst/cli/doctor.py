"""What works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from burst import wiring
from burst.cli.control import release
from burst.cli.output import print_json, table
from burst.cli.words import human_bytes
from burst.errors import BurstError, SpecError, UsageError

GIB = 1024**3
WANTED_DISK = 2 * GIB
WANTED_SHM = 256 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    what: str
    works: bool
    detail: str
    fix: str = ""


def examine(*, as_json: bool) -> int:
    """Print every finding; exit 9 if something that `burst run` needs does not work."""
    found = [finding for check in CHECKS for finding in check()]
    if as_json:
        print_json(found)
    else:
        rows = [[f.what, "ok" if f.works else "NO", f.detail] for f in found]
        sys.stdout.write(table(["", "", ""], rows).lstrip("\n") + "\n")
        for finding in found:
            if not finding.works:
                sys.stdout.write(f"fix {finding.what}: {finding.fix}\n")
    return 0 if all(f.works for f in found) else 9


def reap_orphans(*, yes: bool, as_json: bool) -> int:
    """List the rented machines of runs that nobody drives, and end them when told to."""
    found = wiring.orphans()
    told = [{"run": run.record.run_id, "machine": words} for run, words in found]
    if not as_json:
        lines = [words for _, words in found] or ["no machine of a run that nobody drives"]
        sys.stdout.write("\n".join(lines) + "\n")
    if found and not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{len(found)} machines would be ended", hint="add --yes to end them")
        sys.stderr.write("End them? [y/N] ")
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            return 0
    for run in {run.record.run_id: run for run, _ in found}.values():
        release(run, now=True)
    if as_json:
        print_json({"ended": told})
    return 0


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    works = sys.version_info[:2] == (3, 11)
    yield Finding(what="python", works=works, detail=version, fix="use Python 3.11")
    works = sys.platform == "linux"
    fix = "burst's local pool needs Linux (several loopback addresses, /proc)"
    yield Finding(what="system", works=works, detail=sys.platform, fix=fix)


def _packages() -> Iterator[Finding]:
    missing = wiring.missing_packages()
    for name in ("ray", "torch", "boto3", "s3fs"):
        needed = "training" if name in {"ray", "torch"} else "s3:// and oss:// run URIs"
        fix = missing.get(name, "")
        detail = f"missing; {needed} need it" if fix else "installed"
        yield Finding(what=name, works=not fix, detail=detail, fix=fix)


def _disk() -> Iterator[Finding]:
    for what, path in (("disk for runs", wiring.home()), ("disk for /tmp", "/tmp")):  # noqa: S108
        free = wiring.disk_free(type(wiring.home())(path))
        fix = f"free some space on the disk of {path}; checkpoints need room"
        detail = f"{human_bytes(free)} free at {path}"
        yield Finding(what=what, works=free >= WANTED_DISK, detail=detail, fix=fix)
    if os.path.isdir("/dev/shm"):  # noqa: PTH112, S108
        free = shutil.disk_usage("/dev/shm").free  # noqa: S108
        fix = "give the container more shared memory (docker run --shm-size 1g)"
        detail = f"{human_bytes(free)} free"
        yield Finding(what="shared memory", works=free >= WANTED_SHM, detail=detail, fix=fix)


def _machine() -> Iterator[Finding]:
    try:
        found = wiring.this_machine()
    except SpecError:  # of pools.yaml, which the next finding tells
        return
    gpus = found.accelerators.count if found.accelerators else 0
    detail = f"{found.cpus} CPUs, {gpus} GPUs, ${found.usd_per_node_hour} per node-hour"
    yield Finding(what="local pool", works=True, detail=f"{detail} ({found.price_source})")


def _ssh_hosts() -> Iterator[Finding]:
    try:
        states = wiring.ssh_states()
    except SpecError as error:
        told = "; ".join(map(str, error.problems))
        yield Finding(what="pools.yaml", works=False, detail=str(error), fix=told)
        return
    for what, works, detail, login in states:
        fix = f"let this command work without a password: {login} true"
        yield Finding(what=what, works=works, detail=detail, fix=fix)


def _slurm() -> Iterator[Finding]:
    try:
        states = wiring.slurm_states()
    except SpecError as error:
        told = "; ".join(f"{problem.field} {problem.message}" for problem in error.problems)
        yield Finding(what="slurm pools", works=False, detail=str(error), fix=told)
        return
    for what, works, detail in states:
        fix = (
            "let this work without a password: ssh -F ~/.slurm/config NAME sinfo; see docs/slurm.md"
        )
        yield Finding(what=what, works=works, detail=detail, fix=fix)


def _store() -> Iterator[Finding]:
    """Write, read, list and delete one small object where runs are kept by default."""
    uri = f"file://{wiring.home() / 'runs'}"
    try:
        store, probe = wiring.store(uri), f"doctor-{os.getpid()}"
        store.create(probe, b"burst")
        works = store.get(probe) == b"burst" and list(store.keys(probe)) == [probe]
        store.delete([probe])
        detail = f"{uri}, conditional writes {'work' if store.conditional else 'do not work'}"
    except BurstError as error:
        works, detail = False, error.message
    yield Finding(what="run store", works=works, detail=detail, fix=f"make {uri} writable")


def _leftovers() -> Iterator[Finding]:
    found = wiring.leftovers()
    detail = "nothing of a run that nobody drives" if not found else "; ".join(found)
    fix = "end them: burst stop RUN"
    yield Finding(what="left-overs", works=not found, detail=detail, fix=fix)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _packages,
    _disk,
    _machine,
    _ssh_hosts,
    _slurm,
    _store,
    _leftovers,
)
