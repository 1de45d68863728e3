"""What works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator

from burst import pool_wiring, wiring
from burst.cli.control import release
from burst.cli.output import print_json, table
from burst.cli.words import human_bytes
from burst.errors import BurstError, LeftoverError, UsageError
from burst.provision.inspection.port import Finding
from burst.task_specs.model import Task

GIB = 1024**3
WANTED_DISK = 2 * GIB
WANTED_SHM = 256 * 1024**2
WORDS = {True: "ok", False: "NO", None: "?"}


def examine(task: Task | None, pool: str | None, *, as_json: bool) -> int:
    """Print every finding; exit 9 if something that `burst run` needs does not work.

    With a task also what it needs of pools; with a pool's name only what is of that pool.
    SpecError with all that is wrong in pools.yaml, before anything is asked.
    """
    wiring.pools()
    here = [] if pool else [finding for check in CHECKS for finding in check()]
    found = [*here, *pool_wiring.findings(task, pool)]
    if pool and not any(one.pool for one in found):
        raise pool_wiring.absent(pool)
    if as_json:
        print_json(found)
    else:
        rows = [[_name(f), WORDS[f.works], " ".join(f.detail.split())] for f in found]
        sys.stdout.write(table(["", "", ""], rows).lstrip("\n") + "\n")
        for finding in found:
            if not finding.works and finding.fix:
                sys.stdout.write(f"fix {_name(finding)}: {finding.fix}\n")
    return 9 if any(f.works is False for f in found) else 0


def _name(finding: Finding) -> str:
    return f"{finding.pool} {finding.what}".strip()


def clear_up(*, yes: bool, as_json: bool) -> int:
    """List what runs left, and end it when told to: machines, then networks that none uses.

    Return the code of LeftoverError if something could not be removed, 9 if a pool does not say
    whether it has any machine.
    """
    orphans = wiring.orphans()
    ended, alive = _end_orphans(orphans, yes=yes, as_json=as_json)
    removed, kept = _remove_networks(yes=yes, as_json=as_json)
    stays = [*alive, *kept]
    for words in stays:
        sys.stderr.write(f"stays: {words}\n")
    if as_json:
        told = {"ended": ended, "removed": removed, "stays": stays, "unknown": orphans.unknown}
        print_json(told)
    if stays:
        return LeftoverError.exit_code
    return 9 if orphans.unknown else 0


def _end_orphans(
    orphans: wiring.Orphans, *, yes: bool, as_json: bool
) -> tuple[list[dict[str, str]], list[str]]:
    """End the rented machines of runs that nobody drives.

    Return those that are ended, and the runs that could not be ended and why.
    """
    found = orphans.found
    if not as_json:
        lines = [words for _, words in found]
        if not found and not orphans.unknown:
            lines = ["no machine of a run that nobody drives"]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    for words in orphans.unknown:
        sys.stderr.write(f"not known: {words}\n")
    if not found or not (yes or _agreed(f"{len(found)} machines would be ended", "End them?")):
        return [], []
    alive: dict[str, str] = {}
    for name, run in {run.record.run_id: run for run, _ in found}.items():
        try:
            release(run, now=True)
        except BurstError as error:
            alive[name] = f"{name}: {error.message}"
    machines = [(run.record.run_id, words) for run, words in found]
    ended = [{"run": name, "machine": words} for name, words in machines if name not in alive]
    return ended, list(alive.values())


def _remove_networks(*, yes: bool, as_json: bool) -> tuple[list[str], list[str]]:
    """Remove what burst made in accounts for machines, and no machine uses.

    Return what is gone, and what stays and why.
    """
    found = pool_wiring.idle_networks()
    if not as_json:
        sys.stdout.write("".join(f"{one}: no machine uses it\n" for one in found))
    words = f"{len(found)} networks and keys that no machine uses would be removed"
    if not found or not (yes or _agreed(words, "Remove them?")):
        return [], []
    removed, kept = [], []
    for one in found:
        try:
            if one.remove():
                removed.append(str(one))
        except BurstError as error:
            kept.append(f"{one}: {error.message}")
    return removed, kept


def _agreed(words: str, question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(words, hint="add --yes to do so")
    sys.stderr.write(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


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
    _store,
    _leftovers,
)
