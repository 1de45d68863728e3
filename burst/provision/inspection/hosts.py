"""SSH hosts, looked at: who answers, what is free, and what a node would miss there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from burst.errors import BurstError
from burst.provision.hosts import Found, Host, Hosts
from burst.provision.inspection import cuda
from burst.provision.inspection.local import ASK_DRIVER
from burst.provision.inspection.port import (
    GIB,
    Finding,
    Row,
    Wanted,
    clock_finding,
    disk_finding,
    price,
)

LEAST_TMP_BYTES = 2 * GIB  # Ray's files and checkpoints on their way
# What burst.agent's start.sh and the claim of a host use; one line for each thing found out.
LOOK = (
    """echo "clock $(date +%s)"
d=$HOME/.burst; [ -d "$d" ] || d=$HOME; [ -w "$d" ] || echo "missing leave to write to $d"
echo "home $(df -Pk "$d" | awk 'NR == 2 {print $4}')"
echo "tmp $(df -Pk /tmp | awk 'NR == 2 {print $4}')"
for t in awk find flock ln sed sha256sum tar; do command -v $t >/dev/null || echo "missing $t"; done
if [ -f "$HOME/.burst/env-base" ] || [ -f "$HOME/.burst/env-{packages}/.whole" ]; then echo "env 1"
elif ! command -v uv >/dev/null && [ ! -x "$HOME/.local/bin/uv" ] && ! command -v curl >/dev/null
then echo "missing uv (or curl, which fetches it)"; fi
if command -v nvidia-smi >/dev/null; then echo "driver $("""
    + " ".join(ASK_DRIVER)
    + """ 2>&1 | head -n 1)"
else for d in /sys/bus/pci/devices/*; do
case "$(cat "$d/vendor" "$d/class" 2>/dev/null | tr '\\n' ' ')" in 0x10de\\ 0x03*) echo "bare 1"
esac; done; fi"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a host said to LOOK."""

    clock_s: float
    home_bytes: int
    tmp_bytes: int
    missing: tuple[str, ...]
    packages: bool  # they are there already
    driver: str | None
    bare_gpus: int  # GPUs of NVIDIA's without nvidia-smi


def read(text: str) -> Said:
    """Read what LOOK wrote; ValueError if a part is missing."""
    told: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        told.setdefault(name, []).append(rest.strip())
    try:
        return Said(
            clock_s=float(told["clock"][0]),
            home_bytes=int(told["home"][0]) * 1024,
            tmp_bytes=int(told["tmp"][0]) * 1024,
            missing=tuple(told.get("missing", ())),
            packages="env" in told,
            driver=told["driver"][0] if "driver" in told else None,
            bare_gpus=len(told.get("bare", ())),
        )
    except KeyError as error:
        raise ValueError(f"no {error.args[0]}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsPool:
    """See burst.provision.inspection.port.Inspected; one pool of pools.yaml."""

    name: str
    hosts: Hosts = field(repr=False)
    packages: str  # which packages a node needs: the name that start.sh gives to them
    now: Callable[[], datetime]

    def rows(self) -> tuple[Row, ...]:
        """Return one row for each shape of host, and one for the hosts that do not answer."""
        answers = self.hosts.each(self.hosts.look_at)
        shapes: dict[str, list[Found]] = {}
        for _, found in answers:
            if isinstance(found, Found):
                shapes.setdefault(found.shape, []).append(found)
        alike = tuple(self._row(there) for there in shapes.values())
        silent = [(h, e) for h, e in answers if isinstance(e, BurstError)]
        if not silent:
            return alike
        words = "; ".join(error.message for _, error in silent)  # which name their hosts
        lost = Row(pool=self.name, free=0, whole=len(silent), healthy=False, detail=words)
        return (*alike, lost)

    def _row(self, there: Sequence[Found]) -> Row:
        first = there[0]
        gpus = first.accelerators.count if first.accelerators else 0
        free = sum(not one.claim for one in there)
        claims = ", ".join(f"{one.host.address} has {one.claim}" for one in there if one.claim)
        return Row(
            pool=self.name,
            machine=first.shape,
            free=free,
            whole=len(there),
            gpus_free=free * gpus,
            gpus=len(there) * gpus,
            price=price(first.quote(self.now()), gpus, self.now(), ages=False),
            healthy=True,
            detail=claims,
        )

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        return tuple(
            finding
            for host, answer in self.hosts.each(self._ask)
            for finding in self._of_host(host, answer, wanted)
        )

    def _ask(self, host: Host) -> tuple[Found, Said, float]:
        """Return what a host has, what it lacks, and how far its clock is ahead."""
        found, before_s = self.hosts.look_at(host), self.now().timestamp()
        said = read(self.hosts.ssh(host).run(LOOK.replace("{packages}", self.packages)))
        return found, said, ahead_s(said.clock_s, (before_s, self.now().timestamp()))

    def _of_host(
        self, host: Host, answer: tuple[Found, Said, float] | BurstError, wanted: Wanted
    ) -> Iterator[Finding]:
        here = _At(self.name, host)
        if isinstance(answer, BurstError):
            fix = f"let this command work without a password: {host.login_command} true"
            if "Host key verification failed" in str(answer):
                fix = f"if it was set up anew, forget its old key: rm {self.hosts.key_file(host)}"
            yield here.finding("answers", str(answer), works=False, fix=fix)
            return
        found, said, off_s = answer
        who = f"{found.claim} has it" if found.claim else "free"
        words = f"{found.shape}, {found.memory_gb:g} GB, ${found.usd_per_hour} per hour, {who}"
        yield here.finding("answers", words, works=True)
        if said.missing:
            there = f"has no {', '.join(said.missing)}"
            yield here.finding("programs", there, works=False, fix="install what is missing there")
        yield from _driver(here, said, wanted)
        yield from _disks(here, said, wanted)
        yield clock_finding(self.name, f"{host.address} clock", off_s)


@dataclass(frozen=True, slots=True)
class _At:
    """What is found on one host."""

    pool: str
    host: Host

    def finding(self, what: str, detail: str, *, works: bool | None, fix: str = "") -> Finding:
        what = f"{self.host.address} {what}"
        return Finding(pool=self.pool, what=what, works=works, detail=detail, fix=fix)


def _driver(here: _At, said: Said, wanted: Wanted) -> Iterator[Finding]:
    if said.driver is not None:
        works, words, fix = cuda.verdict(said.driver, wanted.torch)
        yield here.finding("driver", words, works=works, fix=fix)
    elif said.bare_gpus:
        words = f"{said.bare_gpus} GPUs of NVIDIA's, and no nvidia-smi: no driver"
        needs = wanted.torch.needs() if wanted.torch else None
        version = f" {needs} or later" if needs else ""
        fix = f"install NVIDIA's driver{version}; without it the host is one without GPUs"
        yield here.finding("driver", words, works=False if wanted.gpus else None, fix=fix)


def _disks(here: _At, said: Said, wanted: Wanted) -> Iterator[Finding]:
    needed = 0 if said.packages else wanted.disk_bytes
    for what, there, need in (
        ("disk of ~/.burst", said.home_bytes, needed),
        ("disk of /tmp", said.tmp_bytes, LEAST_TMP_BYTES),
    ):
        yield disk_finding(here.pool, f"{here.host.address} {what}", there, need)


def ahead_s(clock_s: float, between: tuple[float, float]) -> float:
    """Return how far a clock is ahead that was read at some moment between two of ours.

    The least that is certain: 0 if it may be right.

    >>> ahead_s(105.0, (100.0, 110.0)), ahead_s(130.0, (100.0, 110.0)), ahead_s(99.0, (100.0, 110))
    (0.0, 20.0, -1.0)
    """
    earliest, latest = between
    return max(clock_s - latest, 0.0) or min(clock_s - earliest, 0.0)


def pools_of(hosts: Sequence[Host]) -> Mapping[str, tuple[Host, ...]]:
    """Return the hosts of each pool."""
    found: dict[str, tuple[Host, ...]] = {}
    for host in hosts:
        found[host.pool] = (*found.get(host.pool, ()), host)
    return found
