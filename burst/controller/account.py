"""What a run has done and cost, folded from its facts and its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from burst.controller.book import NodeSpan
from burst.cost.ledger import FailedLaunch, Leg, PricePoint
from burst.cost.pace import Pace
from burst.cost.quotes import BillingRule, Quote
from burst.cost.timeline import AttemptEnded, AttemptStarted, Saved, StepDone, Timeline
from burst.records import RunRecord, moment


@dataclass(slots=True)
class Progress:
    """Where training stands, for people. Folded from facts in the order they came."""

    began: datetime | None = None  # when the run asked for its first node: it starts up from then
    timeline: Timeline = field(default_factory=Timeline)
    attempt: int = 0
    world_size: int = 0
    step: int = 0
    total: int | None = None
    epoch: int = 0
    loss: float | None = None
    first_loss: float | None = None
    lr: float | None = None
    saved_step: int | None = None
    saved_bytes: int = 0
    failed_saves: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _pace: Pace = field(default_factory=Pace)
    _last: datetime | None = None

    def add(self, fact: Mapping[str, Any]) -> None:
        """Take one fact."""
        match fact["kind"]:
            case "attempt":
                self._attempt(int(fact["attempt"]), moment(fact["time"]))
            case "started" | "resumed":
                self.world_size = int(fact["world"])
                self.step = int(fact["step"])
                self.loss = None  # until this attempt has one of its own
                self.notes.clear()  # an attempt that starts over says its notes again
            case "step":
                self._step(fact)
            case "saved":
                self._saved(fact)
            case "save_failed":
                self.failed_saves.append(f"step {fact['step']}: {fact['error']}")
            case "note":
                self.notes.append(str(fact["text"]))
            case _:
                pass  # of a later version

    def _attempt(self, attempt: int, at: datetime) -> None:
        if self.attempt and self._last:
            self.timeline.add(AttemptEnded(self.attempt, self._last))
        first = self.attempt == 0 and self.began is not None
        self.attempt, self._last = attempt, at
        self._pace.restart()
        self.timeline.add(AttemptStarted(attempt, self.began if first and self.began else at))

    def _step(self, fact: Mapping[str, Any]) -> None:
        start, end = moment(fact["start"]), moment(fact["end"])
        step, tokens = int(fact["step"]), int(fact["tokens"])
        samples = int(fact["samples"])
        self.timeline.add(StepDone(int(fact["attempt"]), step, start, end, samples, tokens))
        self.step, self.total, self.epoch = step, fact.get("total"), int(fact["epoch"])
        self.loss, self.lr = _number(fact.get("loss")), _number(fact.get("lr"))
        self.first_loss = self.loss if self.first_loss is None else self.first_loss
        self._pace.add(end, tokens)
        self._last = end

    def _saved(self, fact: Mapping[str, Any]) -> None:
        start, end = moment(fact["start"]), moment(fact["end"])
        self.saved_step = int(fact["step"])
        self.saved_bytes = int(fact["size_bytes"])
        self.timeline.add(Saved(int(fact["attempt"]), self.saved_step, start, end))
        self._last = end

    @property
    def seconds_per_step(self) -> float | None:
        """Over the last steps of this attempt; None before the second."""
        return self._pace.seconds_per_step

    @property
    def tokens_per_second(self) -> float | None:
        """Over the last steps of this attempt; None when the script counts no tokens."""
        return self._pace.tokens_per_second

    @property
    def seconds_left(self) -> float | None:
        """Until the last step, at the present pace."""
        return self._pace.seconds_left(self.step, self.total)


def _number(value: str | float | None) -> float | None:
    """Read a metric: JSON has "nan" as text, and a command reports none."""
    return None if value is None else float(value)


def legs(spans: Iterable[NodeSpan], run: RunRecord) -> tuple[Leg, ...]:
    """Return what the ledger needs of the nodes that are paid for; a head apart is not one."""
    return tuple(
        _leg(span)
        for span in spans
        if not span.refused and not (run.head_apart and span.index == 0)
    )


def failed_launches(spans: Iterable[NodeSpan]) -> tuple[FailedLaunch, ...]:
    """Return the launches that made no machine."""
    return tuple(
        FailedLaunch(
            pool=span.choice.place.pool,
            region=span.choice.place.region,
            zone=span.choice.place.zone,
            machine_type=span.choice.place.machine_type,
            count=1,
            started_at=span.launched,
            ended_at=span.ended or span.launched,
            reason=span.note,
        )
        for span in spans
        if span.refused
    )


def _leg(span: NodeSpan) -> Leg:
    choice, place = span.choice, span.choice.place
    rule = BillingRule(choice.billing_unit_s, choice.billing_minimum_s, known=True)
    quote = Quote(
        usd_per_hour=choice.usd_per_hour,
        source=choice.price_source,
        observed_at=moment(choice.observed_at) if choice.observed_at else span.launched,
        billing=rule,
        free=choice.usd_per_hour == Decimal(0),
    )
    return Leg(
        node_id=span.node_id,
        pool=place.pool,
        region=place.region,
        zone=place.zone,
        machine_type=place.machine_type,
        spot=place.spot,
        started_at=span.launched,
        ended_at=span.ended,
        prices=(PricePoint(span.launched, quote),),
        state="running" if span.ended is None else "gone",
        note=span.note if span.note.startswith("its controller") else "",
    )
