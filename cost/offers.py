"""What the pools offer, what of it fits a task, and the most the task can cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from burst.cost.meter import exact_cost, millionths
from burst.cost.placement import Choice, Place
from burst.cost.quotes import Quote
from burst.task_specs.accelerators import is_kind
from burst.task_specs.infra import AS_THEY_ARE
from burst.task_specs.model import Accelerators, Amount, Infra, Resources, Task

OWN_POOLS = frozenset({"local", "k8s", "kubernetes", "slurm", "ssh"})  # not rented


def is_owned(pool: str) -> bool:
    """Whether a pool's machines belong to the person."""
    return pool.partition("/")[0] in OWN_POOLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine that a pool can give, and its price for one."""

    pool: str  # "local", "aws", "slurm/lab"
    region: str
    zone: str
    machine_type: str
    cpus: float
    memory_gb: float
    accelerators: Accelerators | None
    spot: bool
    quote: Quote
    most: int | None = None  # how many nodes there can be at most; None: as many as are wanted
    unsure: int = 0  # of these; each of them may be one of another offer of the pool instead
    # the numbers of the task's candidates that it can be made for; None: of all that it fits
    made_for: tuple[int, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def where(self) -> str:
        """The pool, and what part of it."""
        return "/".join(part for part in (self.pool, self.zone or self.region) if part)

    @property
    def owned(self) -> bool:
        """Whether its machines belong to the person, who has no need to rent.

        They may be spot as well, such as a partition of Slurm whose jobs make way for others.
        """
        return is_owned(self.pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An offer that fits the task, with the price of the nodes it can have there."""

    offer: Offer
    nodes: int  # that the task wants, or as many as there can be
    usd_per_hour: Decimal  # of these
    number: int = 0  # which of the task's candidates it is, by what it says of its machines
    accelerators: Accelerators | None = None  # what the task wants of a node there
    most_usd_per_hour: Decimal | None = None  # what it pays for a node there; None: any price


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An offer that does not fit, and why."""

    offer: Offer
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where a task can run, best first, and what it can cost there."""

    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejected, ...]
    nodes: int  # that the task wants, or as many as there can be
    usd_per_hour: Decimal | None  # of these at the best candidates; None: nothing fits
    most_usd: Decimal | None  # None: no limit is set
    why: str  # what makes `most_usd` what it is, in words


def plan(task: Task, offers: Iterable[Offer]) -> Plan:
    """Rank the offers for a task and say the most the task can cost on any that fits."""
    offers = tuple(offers)
    fitting = candidates(task, offers)
    most_usd, why = _most(task, fitting)
    filled = _filled(alike(fitting), task.num_nodes)
    return Plan(
        candidates=fitting,
        rejected=rejections(task, offers),
        nodes=sum(count for _, count in filled),
        usd_per_hour=_per_hour(filled) if fitting else None,
        most_usd=most_usd,
        why=why,
    )


def choices_of(task: Task, found: Iterable[Candidate]) -> tuple[Choice, ...]:
    """Return candidates as places for single nodes, with their prices frozen, best first.

    Rented ones wait for one's own, or for those in `pools.prefer`, as long as
    `pools.overflow_after` says.
    """
    found = tuple(found)
    wait_s = task.burst.pools.overflow_after_s or 0.0
    waited_for = [_waited_for(task, candidate.offer) for candidate in found]
    return tuple(
        replace(choice_of(candidate), after_s=wait_s if any(waited_for) and not first else 0.0)
        for candidate, first in zip(found, waited_for, strict=True)
    )


def _waited_for(task: Task, offer: Offer) -> bool:
    prefer = task.burst.pools.prefer
    return offer.owned or (bool(prefer) and _preference(task, offer) < len(prefer))


def alike(found: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return what nodes of one run may be, best first: this machine or others, and as many GPUs.

    A run on this machine stays on it; its workers are dealt to nodes of one size.
    """
    found = tuple(found)
    return tuple(c for c in found if _kind(c) == _kind(found[0]))


def _kind(candidate: Candidate) -> tuple[bool, int]:
    wanted = candidate.accelerators
    return candidate.offer.pool == "local", wanted.count if wanted else 0


def choice_of(candidate: Candidate) -> Choice:
    """Return a candidate as a place for single nodes, with its price frozen."""
    offer, quote = candidate.offer, candidate.offer.quote
    place = Place(
        pool=offer.pool,
        region=offer.region,
        zone=offer.zone,
        machine_type=offer.machine_type,
        spot=offer.spot,
        owned=offer.owned,
    )
    return Choice(
        place=place,
        usd_per_hour=quote.usd_per_hour,
        price_source=quote.source,
        observed_at=quote.observed_at.isoformat(timespec="microseconds"),
        billing_unit_s=quote.billing.unit_s,
        billing_minimum_s=quote.billing.minimum_s,
        most_usd_per_hour=candidate.most_usd_per_hour,
        candidate=candidate.number,
    )


def least_nodes(task: Task) -> int:
    """Return on how few nodes the task trains: on all, unless its `workers` are a range.

    Workers are dealt to nodes as evenly as when there are most of both.
    """
    workers = task.burst.workers
    if task.burst.train is None or workers is None:
        return task.num_nodes
    per_node = -(-workers.high // task.num_nodes)
    return max(1, -(-workers.low // per_node))


def candidates(task: Task, offers: Iterable[Offer]) -> tuple[Candidate, ...]:
    """Return what fits, best first; places that have too few nodes, all alike together, do not.

    First by the order of the task's own candidates if it asks for that (`ordered`), then by
    `pools.prefer`, then one's own machines, then by dollars per hour, then as offered.
    """
    found = _ranked(task, offers)
    return tuple(c for c in found if _room(c, found) >= least_nodes(task))


def _room(candidate: Candidate, found: Iterable[Candidate]) -> int:
    """Return how many nodes there can be at a candidate and those that may be mixed with it."""
    like_it = tuple(other for other in found if _kind(other) == _kind(candidate))
    return sum(count for _, count in _filled(like_it, sum(other.nodes for other in like_it)))


def _ranked(task: Task, offers: Iterable[Offer]) -> tuple[Candidate, ...]:
    """Return the offers that fit one by one, best first."""
    ranked = []
    for offer in offers:
        fits = [
            n
            for n, wanted in enumerate(task.candidates)
            if _is_in(wanted.infra, offer) and not _misfit(task, wanted, offer)
        ]
        granted = [n for n in fits if _is_for(offer, n)]
        if granted:
            nodes = min(task.num_nodes, offer.most or task.num_nodes)
            usd = offer.quote.usd_per_hour
            order = granted[0] if task.ordered else 0
            rank = (order, _preference(task, offer), not offer.owned, usd)
            found = Candidate(
                offer=offer,
                nodes=nodes,
                usd_per_hour=usd * nodes,
                number=granted[0],
                accelerators=task.candidates[fits[0]].accelerators,
                most_usd_per_hour=_most_per_hour(task.candidates[n] for n in fits),
            )
            ranked.append((rank, found))
    return tuple(found for _, found in sorted(ranked, key=lambda pair: pair[0]))


def _is_for(offer: Offer, number: int) -> bool:
    """Whether an offer can grant what the task's candidate of this number says of its machines."""
    return offer.made_for is None or number in offer.made_for


def _most_per_hour(fitting: Iterable[Resources]) -> Decimal | None:
    """Return what a node may cost by what fits it; by the most generous, where several do."""
    caps = [one.max_hourly_usd for one in fitting]
    known = [Decimal(str(cap)) for cap in caps if cap is not None]
    return max(known) if len(known) == len(caps) else None


def rejections(task: Task, offers: Iterable[Offer]) -> tuple[Rejected, ...]:
    """Return what does not fit, as offered, and why."""
    offers = tuple(offers)
    found, needed = _ranked(task, offers), least_nodes(task)
    short = {c.offer: _too_small(c, found, needed) for c in found if _room(c, found) < needed}
    reasons = ((offer, _why_not(task, offer) or short.get(offer, "")) for offer in offers)
    return tuple(Rejected(offer=offer, reason=reason) for offer, reason in reasons if reason)


def _too_small(candidate: Candidate, found: Iterable[Candidate], needed: int) -> str:
    room = _room(candidate, found)
    others = f", {room} with those like it" if room > candidate.nodes else ""
    return f"has {candidate.nodes} of these machines{others}, the task needs {needed} nodes"


def _why_not(task: Task, offer: Offer) -> str:
    """Say why an offer is none of the task's candidates, of those that may be there; "" if it is.

    Each reason is said once.
    """
    its = (wanted for n, wanted in enumerate(task.candidates) if _is_for(offer, n))
    there = [wanted for wanted in its if _is_in(wanted.infra, offer)]
    if not there:
        named = dict.fromkeys(str(wanted.infra) for wanted in task.candidates)
        return f"not asked, the task names infra {' or '.join(named)}"
    misfits = dict.fromkeys(_misfit(task, wanted, offer) for wanted in there)
    return "; ".join(misfits) if all(misfits) else ""


def _preference(task: Task, offer: Offer) -> int:
    """Return the place of the offer's pool in `pools.prefer`; the end if it is not there."""
    prefer = task.burst.pools.prefer
    names = (offer.pool, offer.pool.partition("/")[0])
    return min((prefer.index(name) for name in names if name in prefer), default=len(prefer))


def _misfit(task: Task, wanted: Resources, offer: Offer) -> str:
    """Return why a machine is not what one candidate of the task describes; "" if it is."""
    return next(filter(None, _misfits(task, wanted, offer)), "")


def _misfits(task: Task, wanted: Resources, offer: Offer) -> Iterator[str]:
    if wanted.instance_type not in {None, offer.machine_type}:
        yield f"is a {offer.machine_type}, the task wants {wanted.instance_type}"
    yield _wrong_accelerators(wanted.accelerators, offer)
    yield _too_few("CPUs", wanted.cpus, offer.cpus, offer)
    yield _too_few("GB of memory", wanted.memory_gb, offer.memory_gb, offer)
    yield _wrong_market(task, wanted, offer)
    images, (cloud, _, context) = wanted.other.get("image_id"), offer.pool.partition("/")
    if images and cloud not in AS_THEY_ARE and (where := offer.region or context) not in images:
        yield f"is in {where}, the task has images for {', '.join(map(str, images))} alone"
    cap = wanted.max_hourly_usd
    price = offer.quote.usd_per_hour
    if cap is not None and price > Decimal(str(cap)):
        yield f"costs {price} USD per hour, the task allows {cap} for a node"


def _is_in(infra: Infra, offer: Offer) -> bool:
    """Whether an offer is at a place that the task names."""
    cloud, _, part = offer.pool.partition("/")
    return (
        infra.cloud in {None, cloud}
        and infra.region in {None, offer.region, part}
        and infra.zone in {None, offer.zone}
    )


def _wrong_accelerators(wanted: Accelerators | None, offer: Offer) -> str:
    """Compare GPUs: one's own machines have their driver's names, clouds those of the catalog."""
    there = offer.accelerators
    if wanted is None:
        return ""
    want = f"the task wants {wanted.kind}:{wanted.count}"
    if there is None:
        return f"has no accelerator, {want}"
    same = there.kind.casefold() == wanted.kind.casefold()
    same = same or (offer.owned and is_kind(wanted.kind, there.kind))
    if not same or there.count < wanted.count:
        return f"has {there.kind}:{there.count}, {want}"
    return ""


def _too_few(what: str, wanted: Amount | None, there: float, offer: Offer) -> str:
    """Compare a size; a machine with more than was asked for fits, the price decides."""
    if wanted is None:
        return ""
    need = wanted.value * (offer.cpus if wanted.per_cpu else 1)
    return "" if there >= need else f"has {there:g} {what}, the task wants {need:g}"


def _wrong_market(task: Task, wanted: Resources, offer: Offer) -> str:
    if offer.owned and not offer.spot:  # nobody takes it, and it has no other price
        return ""
    spot = wanted.use_spot
    if spot is None and task.burst.spot != "auto":
        spot = task.burst.spot == "spot"
    if spot is None or spot == offer.spot:
        return ""
    return "is on-demand, the task wants spot" if spot else "is spot, the task wants on-demand"


def _filled(found: Iterable[Candidate], nodes: int) -> tuple[tuple[Candidate, int], ...]:
    """Return how many of some nodes are at each candidate if the first ones are filled first."""
    filled = []
    settled: Counter[str] = Counter()  # by pool; of its unsure machines
    for candidate in found:
        offer = candidate.offer
        count = min(candidate.nodes, nodes)
        if offer.most is not None:
            count = min(count, offer.most - settled[offer.pool])
            settled[offer.pool] += max(0, count - (offer.most - offer.unsure))
        nodes -= count
        filled.append((candidate, count))
    return tuple(filled)


def _per_hour(filled: Iterable[tuple[Candidate, int]]) -> Decimal:
    prices = (candidate.offer.quote.usd_per_hour * count for candidate, count in filled)
    return sum(prices, Decimal(0))


def _most(task: Task, fitting: tuple[Candidate, ...]) -> tuple[Decimal | None, str]:
    """Return the most the task can cost, and what limits it: budget, deadline, or free machines.

    A run may move from one candidate to another, so the dearest ones count.
    """
    if not fitting:
        return None, "nothing fits"
    dearest = _per_hour(_dearest(task, fitting, lambda one: one.offer.quote.usd_per_hour))
    if dearest == 0:
        return Decimal(0), "the machines cost nothing per hour"
    budget = None if task.burst.budget_usd is None else Decimal(str(task.burst.budget_usd))
    limits = [] if budget is None else [(budget, "the budget")]
    deadline_s = task.burst.deadline_s
    if deadline_s is not None:

        def whole(one: Candidate) -> Fraction:
            return _until_deadline(one, deadline_s)

        usd = sum((whole(c) * n for c, n in _dearest(task, fitting, whole)), Fraction(0))
        why = f"the deadline of {deadline_s / 3600:g} h at up to {dearest} USD per hour"
        limits.append((millionths(usd), why))
    if not limits:
        return None, "give burst.budget_usd or burst.deadline"
    return min(limits, key=lambda limit: limit[0])


def _dearest(
    task: Task, fitting: tuple[Candidate, ...], price: Callable[[Candidate], Decimal | Fraction]
) -> tuple[tuple[Candidate, int], ...]:
    """Return where the nodes are if they all are at the dearest candidates."""
    return _filled(sorted(fitting, key=price, reverse=True), task.num_nodes)


def _until_deadline(candidate: Candidate, deadline_s: float) -> Fraction:
    """Return what one node costs until then."""
    quote = candidate.offer.quote
    billed = quote.billing.billed(timedelta(seconds=deadline_s))
    return exact_cost(quote.usd_per_hour, billed)
