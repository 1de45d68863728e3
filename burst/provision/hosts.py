"""Plain SSH hosts: machines of one's own, with neither Kubernetes nor root rights asked for.

A host has one node at a time. Who has it is a symbolic link there, `~/.burst/claim-<its name>`,
whose making is atomic, also where hosts share their homes, so that two controllers cannot both
have it. What hosts there are says `pools.yaml`, in the words of SkyPilot's `ssh_node_pools.yaml`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from burst.cost.offers import Offer
from burst.cost.placement import Place
from burst.cost.quotes import Quote
from burst.errors import BurstError, SetupError, TransientError
from burst.ports import NodeRequest
from burst.provision.own import (
    ASK_GPUS,
    DEVICES,
    NO_PRICE,
    accelerators,
    quote,
    usd_per_hour,
    visible,
)
from burst.provision.refusals import RefusedError
from burst.provision.rented import MachineRequest, cluster_name, folder_of
from burst.provision.ssh import Login, Ssh
from burst.task_specs.model import Accelerators

log = logging.getLogger(__name__)

AT_ONCE = 16
LOOK_S = 15.0
T = TypeVar("T")

# whether the node that has a claim has a process there; without, one of an hour ago is a dead run's
JUDGE = """c=$HOME/.burst/claim-$(uname -n); dead= lives=; n=$(readlink "$c" | sed 's/^burst-//')
if [ -n "$n" ]; then
run=$(echo "$n" | sed 's/-[^-]*$//' | tr -d '\\n' | sha256sum | cut -c1-8)
w="BURST_NODE_DIR=/tmp/burst-$run/$(echo "$n" | sed 's/.*-//')"
if cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -qx "$w"; then lives=lives
elif [ -n "$run" ] && [ -n "$(find "$c" -mmin +60 2>/dev/null)" ]; then dead=1; fi
fi
"""
LOOK = (
    f"{JUDGE}nproc; awk '/MemTotal/ {{print $2}}' /proc/meminfo; "
    '[ -n "$dead" ] && echo || echo "$(readlink "$c") $lives"; hostname -I 2>/dev/null || echo; '
    f'g=$({" ".join(ASK_GPUS)} 2>/dev/null) && echo "$g" || true'  # it fails on standard output
)
# of two that find a claim dead, the second must not take away what the first made in its place
CLAIM = f"""mkdir -p "$HOME/.burst" && exec 9>"$HOME/.burst/claims.lock" || exit 1
flock -w 30 9 || {{{{ echo "another claim has been under way for 30 s" >&2; exit 1; }}}}
{JUDGE}
if [ -n "$dead" ]; then rm -f "$c" || exit 1; fi
[ -L "$c" ] || ln -sn {{name}} "$c" || exit 1
readlink "$c" """
_RUNS = """tr '\\0' '\\n' 2>/dev/null <"$p/environ" | grep -qx "BURST_NODE_DIR={scratch}"
"""
RELEASE = 'c=$HOME/.burst/claim-$(uname -n); [ "$(readlink "$c")" != {name} ] || rm -f "$c"'
END = (
    """s={scratch}
pid=$(sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p' $s/supervisor.json 2>/dev/null)
if [ -n "$pid" ] && grep -q burst.agent.boot "/proc/$pid/cmdline" 2>/dev/null; then kill -9 "$pid"
fi
for p in /proc/[0-9]*; do if """
    + _RUNS
    + """then kill -9 "${{p#/proc/}}" 2>/dev/null; fi; done
rm -rf $s; """
    + RELEASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine that can be reached by SSH, as pools.yaml says."""

    pool: str  # "ssh/lab"
    address: str
    user: str
    port: int
    key: Path | None
    usd_per_hour: Decimal
    priced: bool  # whether pools.yaml says a price
    usd_per_gpu_hour: Decimal | None = None  # goes before the other where there are GPUs

    @property
    def login_command(self) -> str:
        """The command of a login, for a person to try."""
        key = f" -i {self.key}" if self.key else ""
        return f"ssh -p {self.port}{key} {self.user}@{self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a host said of itself."""

    host: Host
    cpus: int
    memory_gb: float
    accelerators: Accelerators | None
    claim: str  # the node that has it, or ""; a dead run's is none
    lives: bool  # whether that node has a process there
    ip: str  # its address among its own kind
    visible: str  # see burst.provision.own.visible

    @property
    def usd_per_hour(self) -> Decimal:
        """What an hour of it costs."""
        per_gpu = self.host.usd_per_gpu_hour
        if per_gpu is None or self.accelerators is None:
            return self.host.usd_per_hour
        return per_gpu * self.accelerators.count

    def quote(self, now: datetime) -> Quote:
        """Return its price as pools.yaml says it."""
        return quote(self.usd_per_hour, "pools.yaml" if self.host.priced else NO_PRICE, now)

    @property
    def shape(self) -> str:
        """Hosts of one shape stand for each other."""
        gpus = self.accelerators
        return f"{gpus.count}x{gpus.kind}" if gpus else f"{self.cpus}-cpu"


def read_hosts(pools: Mapping[str, Any], user: str) -> tuple[Host, ...]:
    """Return the hosts in pools.yaml's `ssh`, which burst.task_specs.pools has checked."""
    found = (pools.get("ssh") or {}).items()
    return tuple(host for name, pool in found for host in _pool(name, pool, user))


def _pool(name: str, pool: Mapping[str, Any], user: str) -> Iterator[Host]:
    prices = {key: pool.get(key) for key in ("usd_per_hour", "usd_per_gpu_hour")}
    per_gpu = prices["usd_per_gpu_hour"]
    for entry in pool["hosts"]:
        own = entry if isinstance(entry, Mapping) else {"ip": entry}
        given = {key: value for key, value in [*pool.items(), *own.items()] if value is not None}
        key = given.get("identity_file")
        yield Host(
            pool=f"ssh/{name}",
            address=given["ip"],
            user=given.get("user", user),
            port=int(given.get("port", 22)),
            key=Path(key).expanduser() if key else None,
            usd_per_hour=usd_per_hour(prices["usd_per_hour"]),
            priced=any(price is not None for price in prices.values()),
            usd_per_gpu_hour=None if per_gpu is None else usd_per_hour(per_gpu),
        )


def offers(hosts: Sequence[Host], home: Path, now: datetime) -> tuple[Offer, ...]:
    """Ask the hosts what they are; one offer for each shape in each pool, cheapest things first.

    A host that does not answer is logged, and may be one of each shape of its pool: what it is
    shows when it is back.
    """
    alike: dict[tuple[str, str], list[Found]] = {}
    silent = Counter(host.pool for host in hosts)
    for found in Hosts(hosts, home).look():
        alike.setdefault((found.host.pool, found.shape), []).append(found)
        silent[found.host.pool] -= 1
    return tuple(_offer(there, silent[pool], now) for (pool, _), there in alike.items())


def _offer(there: Sequence[Found], silent: int, now: datetime) -> Offer:
    found = there[0]
    return Offer(
        pool=found.host.pool,
        region="",
        zone="",
        machine_type=found.shape,
        cpus=float(found.cpus),
        memory_gb=found.memory_gb,
        accelerators=found.accelerators,
        spot=False,
        quote=found.quote(now),
        most=len(there) + silent,
        unsure=silent,
    )


class Hosts:
    """The hosts as what makes and ends machines; see burst.provision.rented.Clusters.

    `nodes` are those that there may be, by name, with their pool: of an earlier controller.
    """

    held = False

    def __init__(
        self, hosts: Sequence[Host], home: Path, nodes: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._hosts = tuple(hosts)
        self._home = home
        self._mine: dict[str, Found] = {}  # by the name of the node that has it
        self._unseen = dict(nodes)  # on hosts that may have been silent ever since
        self._silent: set[Host] = set()  # those that did not answer, and were told of
        self._perhaps: dict[str, set[Host]] = {}  # by node; those it may have claimed besides
        self._ended: set[str] = set()  # nodes; a host that was silent then may have one still

    def look(self, pool: str = "") -> tuple[Found, ...]:
        """Return what the hosts that answer say of themselves, all asked at once."""
        asked = [host for host in self._hosts if pool in {"", host.pool}]
        return tuple(
            found
            for found in _each(self._look_quietly, asked)
            if found is not None
        )  # fmt: skip

    def each(self, ask: Callable[[Host], T]) -> tuple[tuple[Host, T | BurstError], ...]:
        """Return what comes of asking each host, or why nothing does; all are asked at once."""

        def attempt(host: Host) -> T | BurstError:
            try:
                return ask(host)
            except BurstError as error:
                return error
            except ValueError as error:
                return SetupError(f"{host.address} says what nobody understands: {error}")

        return tuple(zip(self._hosts, _each(attempt, self._hosts), strict=True))

    def _look_quietly(self, host: Host) -> Found | None:
        """Look at a host; say once that it does not answer."""
        try:
            found = self.look_at(host)
        except (BurstError, ValueError) as error:
            if host not in self._silent:
                log.warning("%s", error)
            self._silent.add(host)
            return None
        self._silent.discard(host)
        return self._freed(found) if found.claim in self._ended else found

    def _freed(self, found: Found) -> Found:
        """End what was to end while its host was silent; return what the host is then."""
        try:
            self._end(found.host, found.claim)
        except BurstError as error:
            log.warning("%s still has %s: %s", found.host.address, found.claim, error)
            return found
        return replace(found, claim="", lives=False)

    def look_at(self, host: Host) -> Found:
        """Return what a host says of itself; BurstError or ValueError if it does not."""
        lines = self.ssh(host).run(LOOK, limit_s=LOOK_S).splitlines()
        cpus, memory_kb, told, ips, *gpus = (line.strip() for line in lines)
        claim, _, lives = told.partition(" ")
        return Found(
            host=host,
            cpus=int(cpus),
            memory_gb=round(int(memory_kb) / 1024**2, 1),
            accelerators=accelerators(gpus),
            claim=claim,
            lives=bool(lives),
            ip=host.address if host.address in ips.split() else (ips.split() or [host.address])[0],
            visible=visible(gpus),
        )

    def ssh(self, host: Host) -> Ssh:
        """Return a way to run commands on a host."""
        login = Login(
            host=host.address, ip=host.address, user=host.user, key=host.key, port=host.port
        )
        return Ssh(login, self.key_file(host))

    def key_file(self, host: Host) -> Path:
        """Return where the key is kept by which a host is told from another."""
        return self._home / "known_hosts" / f"{host.address}-{host.port}"

    def launch(self, request: MachineRequest) -> None:
        """Claim a free host of the place's shape; RefusedError when there is none."""
        name, place = request.name, request.place
        self._ended.discard(name)
        there = [f for f in self.look(place.pool) if f.shape == place.machine_type]
        told: list[str] = []
        for found in sorted(there, key=lambda f: (f.claim != name, bool(f.claim), not f.lives)):
            why = self._claim(found, name)
            if not why:
                self._have(name, found)
                return
            told.append(why)
        why = ", ".join(told) or "none answers"
        said = f"no-capacity: no host of {place.pool} is free ({why})"
        raise RefusedError(said, said)

    def _claim(self, found: Found, name: str) -> str:
        """Claim a host for a node; say why it has it not, "" if it has.

        One that fails is no reason to give up.
        """
        address = found.host.address
        try:
            has = self.ssh(found.host).run(CLAIM.format(name=name)).strip()
        except BurstError as error:
            if isinstance(error, TransientError):
                self._perhaps.setdefault(name, set()).add(found.host)
            why = f"{address} cannot be claimed: {' '.join(error.message.split())}"
            log.warning("%s", why)
            return why
        return "" if has == name else f"{address} has {has}"

    def states(self, prefix: str, *, refresh: bool) -> Mapping[str, str]:
        """Return the nodes whose name begins so; TransientError when no host answers.

        A host that does not answer is said to be up: its heartbeat tells, not we. So is a node
        that no host names while one of its pool, of which nothing is known, is silent.
        """
        del refresh
        found = self.look()
        if not found and self._hosts:
            raise TransientError("no SSH host answers")
        for one in found:
            if one.claim:
                self._see(one)
        answered = {one.host: one.claim for one in found}
        mine = dict(self._mine)  # other threads end nodes meanwhile
        there = [name for name, one in mine.items() if answered.get(one.host, name) == name]
        silent = set(self._hosts) - answered.keys() - {one.host for one in mine.values()}
        pools = {host.pool for host in silent}
        there += [n for n, pool in dict(self._unseen).items() if pool in pools and n not in mine]
        return {name: "up" for name in there if name.startswith(prefix)}

    def _see(self, found: Found) -> None:
        """Note a claim; of several hosts with its claim, a node is on that where it lives."""
        known = self._mine.get(found.claim, found)
        if known.host == found.host or (found.lives and not known.lives):
            self._have(found.claim, found)
        else:
            self._perhaps.setdefault(found.claim, set()).add(found.host)

    def _have(self, name: str, found: Found) -> None:
        """Note where a node is; the host that it was taken to be on stays to be freed."""
        before = self._mine.get(name, found).host
        if before != found.host:
            self._perhaps.setdefault(name, set()).add(before)
        self._mine[name] = found

    def end_command(self, request: NodeRequest) -> str:
        """Return what frees a node's host."""
        return release_command(cluster_name(request.run_id, request.node_id))

    def machine_env(self, name: str) -> Mapping[str, str]:
        """Return which of its host's GPUs a node may use, where there are others."""
        found = self._where(name)
        return {DEVICES: found.visible} if found and found.visible else {}

    def vacant(self, place: Place) -> int:
        """Return how many hosts of a place's shape nobody has."""
        there = self.look(place.pool)
        return sum(not f.claim for f in there if f.shape == place.machine_type)

    def login(self, name: str, keys: Path) -> Login:
        """Return how a node's host is reached."""
        del keys
        found = self._where(name)
        if found is None:
            raise TransientError(f"no SSH host has {name}")
        host = found.host
        return Login(host=host.address, ip=found.ip, user=host.user, key=host.key, port=host.port)

    def _where(self, name: str) -> Found | None:
        if name not in self._mine:
            self.states("", refresh=True)
        return self._mine.get(name)

    def down(self, name: str) -> None:
        """End everything of a node on its host, and free the host.

        A host that is silent is not waited for: it is freed when it is seen to answer. If nobody
        looks any more by then, its dead-man switch does it, or what is left is a dead run's claim.
        """
        self._ended.add(name)
        self._unseen.pop(name, None)
        for host in self._claimed(name):
            try:
                self._end(host, name)
            except TransientError as error:
                log.warning("%s; what %s has there ends when it answers, or by itself", error, name)
        self._perhaps.pop(name, None)
        self._mine.pop(name, None)

    def _claimed(self, name: str) -> Iterable[Host]:
        """Return the hosts with a node's claim, that where it is first, as far as is known."""
        own: tuple[Host, ...] = ()
        try:
            found = self._where(name)
            own = () if found is None else (found.host,)
        except TransientError as error:
            log.warning("%s; what %s has ends when its host answers, or by itself", error, name)
        return dict.fromkeys((*own, *self._perhaps.get(name, ())))

    def _end(self, host: Host, name: str) -> None:
        self.ssh(host).run(END.format(scratch=folder_of(name), name=name))


def release_command(name: str) -> str:
    """Return the shell command by which an agent's supervisor frees its host, and ends."""
    return f'{RELEASE.format(name=name)}; kill "$PPID"'


def _each(ask: Callable[[Host], T], hosts: Sequence[Host]) -> list[T]:
    if not hosts:
        return []
    with ThreadPoolExecutor(min(AT_ONCE, len(hosts))) as pool:
        return list(pool.map(ask, hosts))
