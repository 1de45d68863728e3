"""Kubernetes clusters, looked at: what their machines have free, and what this person may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from burst.cost.offers import Offer
from burst.cost.quotes import Quote
from burst.errors import BurstError, TransientError
from burst.provision.inspection import cuda
from burst.provision.inspection.port import Finding, Price, Row, Wanted, clock_finding, price
from burst.provision.k8s import needs
from burst.provision.k8s.client import Client
from burst.provision.k8s.contexts import pool_of
from burst.provision.k8s.rates import Rates
from burst.provision.k8s.room import PodNode, PodSize, room
from burst.provision.own import NO_PRICE, quote

RIGHTS = (  # in the namespace: of burst, and of SkyPilot to make a pod and to run commands in it
    ("create", "pods"),
    ("list", "pods"),
    ("delete", "pods"),
    ("create", "pods/exec"),
    ("create", "pods/portforward"),
    ("create", "services"),
    ("list", "services"),
    ("delete", "services"),
)
LOOKS = (("list", "nodes"), ("list", "pods"))  # in all namespaces, to know what is free
BLIND = "what is free cannot be seen: that needs the rights to list nodes and all namespaces' pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesPool:
    """See burst.provision.inspection.port.Inspected; the cluster of one context."""

    context: str
    connect: Callable[[], Client] = field(repr=False)
    nodes: Callable[[], Sequence[PodNode]] = field(repr=False)
    rates: Rates | None
    now: Callable[[], datetime]

    @property
    def name(self) -> str:
        return pool_of(self.context)

    def rows(self) -> tuple[Row, ...]:
        """Return a row for each kind of machine."""
        needs.check([self.context])
        client = self.connect()
        version = client.server().version
        if not _sees_all(client):
            return (Row(pool=self.name, healthy=True, detail=f"{version} answers; {BLIND}"),)
        kinds: dict[tuple[float, str, int], list[PodNode]] = {}
        for node in self.nodes():
            one = node.whole
            kinds.setdefault((one.cpus, one.gpu, one.gpus), []).append(node)
        if not kinds:
            return (Row(pool=self.name, healthy=False, detail=f"{version} answers; no machines"),)
        return tuple(self._row(alike) for _, alike in sorted(kinds.items()))

    def _row(self, alike: Sequence[PodNode]) -> Row:
        one, takes = alike[0].whole, [node for node in alike if node.usable]
        words = f"{_cpus_free(takes):g} of {one.cpus * len(takes):g} CPUs free"
        return Row(
            pool=self.name,
            machine=f"{one.gpus}x{one.gpu or 'GPU'}" if one.gpus else f"{one.cpus:g}-cpu",
            gpus_free=_gpus_free(takes),
            gpus=one.gpus * len(takes),
            price=self._price(one),
            healthy=bool(takes),
            detail=words if takes else "no machine of it takes pods now",
        )

    def _price(self, one: PodSize) -> Price:
        """Return what a pod would cost that takes a whole machine."""
        now = self.now()
        free: Quote = quote(Decimal(0), NO_PRICE, now)
        offered = self.rates.quote(one.gpus, one.cpus, now) if self.rates else free
        return price(offered, one.gpus, now, ages=False)

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        try:
            needs.check([self.context])
            client = self.connect()
            server = client.server()
        except BurstError as error:
            fix = error.hint or f"let this work: kubectl --context {self.context} version"
            return (self._finding("answers", error.message, works=False, fix=fix),)
        found = [self._finding("answers", f"Kubernetes {server.version}", works=True)]
        if server.time is not None:
            ahead_s = (server.time - self.now()).total_seconds()
            found.append(clock_finding(self.name, "clock", ahead_s))
        try:
            found.append(self._rights(client))
            found.extend(self._capacity(client, wanted))  # keeps what came before a failure
        except TransientError as error:
            found.append(self._finding("capacity", error.message, works=None, fix="look again"))
        return tuple(found)

    def _finding(self, what: str, detail: str, *, works: bool | None, fix: str = "") -> Finding:
        return Finding(pool=self.name, what=what, works=works, detail=detail, fix=fix)

    def _rights(self, client: Client) -> Finding:
        refused = [f"{verb} {what}" for verb, what in RIGHTS if not client.may(verb, what)]
        where = f"in namespace {client.namespace}"
        if refused:
            fix = "ask the cluster's owner for them; docs/kubernetes.md has the list"
            words = f"missing {where}: {', '.join(refused)}"
            return self._finding("rights", words, works=False, fix=fix)
        return self._finding("rights", f"to make, reach and end pods {where}", works=True)

    def _capacity(self, client: Client, wanted: Wanted) -> Iterator[Finding]:
        if not _sees_all(client):
            fix = "without them, a run that rents does not come back to this cluster by itself"
            yield self._finding("capacity", BLIND, works=None, fix=fix)
            return
        nodes = self.nodes()
        takes = [node for node in nodes if node.usable]
        gpus = sum(node.whole.gpus for node in takes)
        words = f"{len(takes)} of {len(nodes)} machines take pods; {_cpus_free(takes):g} CPUs"
        words += f" and {_gpus_free(takes)} of {gpus} GPUs are free"
        fix = f"see why: kubectl --context {self.context} get nodes"
        yield self._finding("capacity", words, works=True if takes else None, fix=fix)
        yield from self._room(takes, wanted)
        yield from self._gpus(client, takes, wanted)

    def _room(self, takes: Sequence[PodNode], wanted: Wanted) -> Iterator[Finding]:
        """Say for how many of the task's nodes there is room now; a run waits for the others."""
        for offer in dict.fromkeys(one for one in wanted.machines if one.pool == self.name):
            there = sum(room(node, _size(offer)) for node in takes)
            words = f"for {there} pods of {offer.machine_type}; the task wants {wanted.nodes}"
            fix = "a run waits for room, or rents: see burst.pools.overflow_after"
            works = True if there >= wanted.nodes else None
            yield self._finding("room", words, works=works, fix=fix)

    def _gpus(self, client: Client, takes: Sequence[PodNode], wanted: Wanted) -> Iterator[Finding]:
        having = [node for node in takes if node.whole.gpus]
        if any(not node.whole.gpu for node in having):
            words = "machines have GPUs whose kind no label tells, so no task gets them"
            fix = f"python -m sky.utils.kubernetes.gpu_labeler --context {self.context}"
            yield self._finding("GPU labels", words, works=False if wanted.gpus else None, fix=fix)
        if not having:
            return
        drivers = client.drivers()
        for driver in sorted(drivers):
            works, words, fix = cuda.verdict(driver, wanted.torch)
            yield self._finding("driver", words, works=works, fix=fix)
        if not drivers:
            least = wanted.torch.needs() if wanted.torch else None
            needed = f"; {least} or later is needed" if least else ""
            words = f"only a pod could tell: no label of NVIDIA's feature discovery{needed}"
            fix = "run nvidia-smi in a pod that has a GPU"
            yield self._finding("driver", words, works=None, fix=fix)


def _sees_all(client: Client) -> bool:
    return all(client.may(verb, what, everywhere=True) for verb, what in LOOKS)


def _cpus_free(nodes: Sequence[PodNode]) -> float:
    return sum(node.free.cpus for node in nodes if node.free)


def _gpus_free(nodes: Sequence[PodNode]) -> int:
    return sum(node.free.gpus for node in nodes if node.free)


def _size(offer: Offer) -> PodSize:
    gpus = offer.accelerators
    return PodSize(
        cpus=offer.cpus,
        memory_gb=offer.memory_gb,
        gpu=gpus.kind if gpus else "",
        gpus=gpus.count if gpus else 0,
    )
