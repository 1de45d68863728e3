"""What a training script calls.

    session = burst.session(model=model, optimizer=optimizer, scheduler=scheduler, steps=400)
    for batch in session.batches(dataset):
        loss = loss_of(session.model, batch)
        session.step(loss)

Inside `burst run` the session spreads this over workers, saves, resumes and reports. Under plain
`python train.py` the same script trains in one process, without saving.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from burst.checkpointing.manifest import CheckpointRef
from burst.checkpointing.save_policy import AnyOf, EverySeconds, EverySteps, LastSave, SavePolicy
from burst.checkpointing.sweep import apply_keep
from burst.checkpointing.torch_state import Ranks, TrainState, load, save
from burst.errors import BurstError, SetupError, TrainingError
from burst.records import RunRecord, stamp
from burst.training.context import (
    PeerLostError,
    RunContext,
    Stopped,
    at_return,
    current,
    params,
)
from burst.training.loading import MapDataset, read
from burst.training.order import Order, Position, Slot, share
from burst.training.randomness import mix, seed_all
from burst.training.settings import Settings, settle
from burst.training.strategy import strategy_for

__all__ = ["Session", "params", "session"]

log = logging.getLogger(__name__)
OWN_METRICS = frozenset(
    {"kind", "time", "attempt", "step", "epoch", "start", "end", "samples", "tokens", "total"}
    | {"loss", "lr", "grad_norm"}
)
FAILED_SAVES_ALLOWED = 3  # in a row, once a good checkpoint exists


class Stateful(Protocol):
    """Anything that can be saved and put back."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...  # noqa: ANN401 - torch's own


def session(  # noqa: PLR0913 - the public face; keyword-only
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Stateful | None = None,
    extras: Mapping[str, Stateful] | None = None,
    global_batch: int | None = None,
    micro_batch: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    clip_norm: float | None = None,
) -> Session:
    """Start or resume training.

    `global_batch` is samples per optimizer step, whatever the number of workers (default 32);
    `micro_batch` samples per forward pass (default: `global_batch` over the most workers the task
    allows). Training ends after `epochs` or `steps` optimizer steps, whichever comes first. The
    task file's `burst:` block wins over these numbers. `scheduler.step()` is called once per
    optimizer step. `extras` are saved and put back by name.

    Raises SetupError for numbers that cannot be, CheckpointMismatchError when the newest
    checkpoint does not fit the model or optimizer.
    """
    said = {
        "global_batch": global_batch,
        "micro_batch": micro_batch,
        "epochs": epochs,
        "steps": steps,
        "seed": seed,
        "clip_norm": clip_norm,
    }
    context = current()
    script = Settings(**{k: v for k, v in said.items() if v is not None})  # type: ignore[arg-type]
    settings = settle(script, context.run if context else None)
    made = Session(context, settings, model, optimizer, scheduler, dict(extras or {}))
    made.begin()
    at_return(made.complete)
    return made


@dataclass(slots=True)
class _OpenStep:
    """The step being worked on; it ends when none of this worker's slots is left."""

    order: Order
    slots: tuple[Slot, ...]
    started: float
    left: int


class Session:
    """One training run as seen from one worker; made by `burst.session`."""

    def __init__(
        self,
        context: RunContext | None,
        settings: Settings,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Stateful | None,
        extras: dict[str, Stateful],
    ) -> None:
        self.settings = settings
        self.position = Position()
        self._context = context
        self._ranks = context.ranks if context else Ranks(rank=0, world=1, local_rank=0, group=None)
        self._group = context.group if context else None
        self._optimizer = optimizer
        self._scheduler = scheduler
        scaled = settings.precision == "fp16"
        self._device = next(model.parameters()).device
        self._scaler = torch.amp.GradScaler(self._device.type) if scaled else None
        self._strategy = strategy_for(
            settings.strategy,
            model,
            reduction=settings.reduction,
            rank=self._ranks.rank,
            world=self._ranks.world,
            group=self._group,
        )
        self._state = TrainState(
            model=model,
            optimizers={"optimizer": optimizer},
            schedulers={"scheduler": scheduler} if scheduler else {},
            scaler=self._scaler,
            extras=extras,
        )
        self._facts = context.facts if context else None
        self._total: int | None = settings.steps
        self._slot: Slot | None = None
        self._open: _OpenStep | None = None
        self._precision = contextlib.ExitStack()  # holds autocast between _enter and _leave
        self._loss = 0.0
        self._tokens = 0
        self._extra_metrics: dict[str, float] = {}
        self._tokens_done = 0
        self._order_done = 0
        self._saved_step = -1
        self._saved_at = time.monotonic()
        self._failed_saves = 0
        self._verified: CheckpointRef | None = None  # what was resumed from; never deleted

    # What a script uses ---------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The model to call in the loop."""
        return self._strategy.model

    @property
    def step_count(self) -> int:
        """Optimizer steps done, those before a restart included."""
        return self.position.step

    @property
    def attempt(self) -> int:
        """Which start of the workers this is, from 1; 0 under plain `python train.py`."""
        return self._context.attempt if self._context else 0

    @property
    def is_main(self) -> bool:
        """Whether this worker is the one that should print and evaluate."""
        return self._ranks.rank == 0

    def batches(
        self,
        dataset: MapDataset,
        *,
        collate: Callable[[Sequence[Any]], Any] | None = None,
        loader_workers: int = 0,
    ) -> Iterator[Any]:
        """Yield this worker's batches, from where training stands to its end.

        Call `step` once for each. `dataset` has a length and an index; batches are made by
        `collate` (torch's default_collate otherwise) and their tensors moved to the model's device.
        """
        if len(dataset) == 0:
            raise SetupError("the dataset is empty")
        order = Order(
            samples=len(dataset),
            seed=self.settings.seed,
            global_batch=self.settings.global_batch,
            micro_batch=self.settings.slot_size,
        )
        start = self.position
        self._total = self._last_step(order)
        batches = read(
            dataset,
            (slot for slots in self._steps(order, start) for slot in self._mine(slots)),
            seed=self.settings.seed,
            loader_workers=loader_workers,
            collate=collate,
        )
        for slots in self._steps(order, start):
            mine = self._mine(slots)
            self._open = _OpenStep(order, slots, time.time(), left=len(mine))
            for slot in mine:
                batch = _to(next(batches), self._device)
                self._enter(slot)
                yield batch
                if self._slot is not None:
                    raise TrainingError("session.step(loss) was not called for this batch")
            if not mine:  # more workers than slots: this one only takes part in the sum
                self._finish(self._open)
        self.complete()

    def step(self, loss: torch.Tensor, *, tokens: int = 0) -> None:
        """Take the mean loss of the batch: backward, and the optimizer when the step is full.

        `tokens` counts towards tokens per second and dollars per million tokens.
        """
        slot = self._slot
        if slot is None:
            raise TrainingError("session.step(loss) was called twice for one batch")
        self._leave()
        scaled = loss * (len(slot.indices) / slot.batch)
        (self._scaler.scale(scaled) if self._scaler else scaled).backward()  # type: ignore[no-untyped-call]
        self._loss += float(scaled.detach())
        self._tokens += tokens
        self._strategy.after_backward(slot.number)
        self._slot = None
        assert self._open is not None
        self._open.left -= 1
        if self._open.left == 0:
            self._finish(self._open)

    def log(self, **metrics: float) -> None:
        """Add numbers to the next step's line of metrics (rank 0's count).

        Names that the session itself reports (step, loss, lr, ...) are refused with ValueError.
        """
        if taken := sorted(OWN_METRICS & metrics.keys()):
            raise ValueError(f"the session itself reports {', '.join(taken)}; choose other names")
        self._extra_metrics.update({name: float(value) for name, value in metrics.items()})

    def note(self, text: str) -> None:
        """Show the person a line of text, in the live view and in the logs (rank 0's counts)."""
        if self.is_main:
            self._tell("note", text=text)
            if self._context is not None:
                sys.stdout.write(f"{text}\n")

    # How it works ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Resume from the newest good checkpoint, or start; collective."""
        if self._context is not None:
            self._resume(self._context)
        seed_all(mix("begin", self.settings.seed, self.position.step))

    def _resume(self, context: RunContext) -> None:
        with self._collective():
            manifest = load(
                self._state, context.store, staging=_folder(context, "in"), ranks=context.ranks
            )
        if manifest is None:
            self._tell("started", step=0, world=self._ranks.world)
            return
        known = {k: v for k, v in manifest.position.items() if k in asdict(Position())}
        self.position = Position(**known)
        self._tokens_done = int(manifest.position.get("tokens", 0))
        self._saved_step = self.position.step
        self._verified = manifest.ref
        self._tell("resumed", step=self.position.step, world=self._ranks.world)

    def _steps(self, order: Order, start: Position) -> Iterator[tuple[Slot, ...]]:
        for slots in order.steps(start):
            if self._over(slots[0]):
                return
            yield slots

    def _over(self, slot: Slot) -> bool:
        steps, epochs = self.settings.steps, self.settings.epochs
        return (steps is not None and slot.step >= steps) or (
            epochs is not None and slot.epoch >= epochs
        )

    def _mine(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        mine = share(len(slots), self._ranks.rank, self._ranks.world)
        return slots[mine.start : mine.stop]

    def _enter(self, slot: Slot) -> None:
        """Set randomness and precision for the forward pass of a slot."""
        seed_all(mix("slot", self.settings.seed, slot.step, slot.number))
        self._slot = slot
        if self.settings.precision != "fp32":
            kind = torch.bfloat16 if self.settings.precision == "bf16" else torch.float16
            self._precision.enter_context(torch.autocast(self._device.type, dtype=kind))

    def _leave(self) -> None:
        self._precision.close()

    def _finish(self, done: _OpenStep) -> None:
        """End a step on all workers together: gradient, update, count, save, stop."""
        with self._collective():
            self._strategy.reduce(len(done.slots))
        norm = self._update()
        with self._collective():
            loss, tokens, wants_save, wants_stop = self._agree()
        self._tokens_done += tokens
        self.position = done.order.after(self.position)
        self._report(done.started, done.slots[0].batch, loss, tokens, norm)
        if wants_save or wants_stop:
            self._save()
        if wants_stop:
            raise Stopped(self.position.step)

    @contextlib.contextmanager
    def _collective(self) -> Iterator[None]:
        """Turn what a collective raises when a peer is gone into PeerLostError."""
        try:
            yield
        except RuntimeError as error:
            if self._ranks.world == 1:  # no peer to lose: an error of its own
                raise
            raise PeerLostError(str(error)) from error

    def _update(self) -> float | None:
        norm = None
        if self._scaler:
            self._scaler.unscale_(self._optimizer)
        if self.settings.clip_norm is not None:
            inner = self._state.model.parameters()
            norm = float(nn.utils.clip_grad_norm_(inner, self.settings.clip_norm))
        if self._scaler:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()  # type: ignore[attr-defined]
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def _agree(self) -> tuple[float, int, bool, bool]:
        """Add up loss and tokens, and agree on saving and stopping: one small collective."""
        save, stop = self._wishes()
        numbers = torch.tensor(
            [self._loss, float(self._tokens), float(save), float(stop)], dtype=torch.float64
        )
        self._loss, self._tokens = 0.0, 0
        if self._ranks.world > 1:
            dist.all_reduce(numbers, group=self._group)
        loss, tokens, saves, stops = numbers.tolist()
        return loss, int(tokens), saves > 0, stops > 0

    def _wishes(self) -> tuple[bool, bool]:
        """Return what this worker wants: rank 0 by cadence and orders, the others nothing."""
        if self._context is None or not self.is_main:
            return False, False
        save, stop = self._due(), False
        order = self._facts.order() if self._facts else None
        if order is not None and order.number > self._order_done:
            self._order_done = order.number
            mine = order.attempt in {None, self._context.attempt}
            save, stop = save or mine, mine and order.kind == "stop"
        return save, stop

    def _due(self) -> bool:
        assert self._context is not None
        last = LastSave(step=self._saved_step, at_s=self._saved_at)
        return _policy(self._context.run).should_save(
            self.position.step + 1, time.monotonic(), last
        )

    def _report(
        self, started: float, samples: int, loss: float, tokens: int, norm: float | None
    ) -> None:
        rate = self._optimizer.param_groups[0]["lr"]
        numbers = {"loss": loss, "lr": float(rate), **self._extra_metrics}
        if norm is not None:
            numbers["grad_norm"] = norm
        self._extra_metrics = {}
        self._tell(
            "step",
            step=self.position.step,
            epoch=self.position.epoch,
            start=_iso(started),
            end=_iso(time.time()),
            samples=samples,
            tokens=tokens,
            total=self._total,
            **{k: v if math.isfinite(v) else str(v) for k, v in numbers.items()},
        )

    def _last_step(self, order: Order) -> int | None:
        """Return how many steps training has."""
        steps, epochs = self.settings.steps, self.settings.epochs
        whole = None if epochs is None else epochs * math.ceil(order.samples / order.global_batch)
        return min((n for n in (steps, whole) if n is not None), default=None)

    def _save(self) -> None:
        """Commit a checkpoint; a failure is told and survived a few times."""
        context = self._context
        if context is None or self._saved_step == self.position.step:
            return
        started = time.time()
        position = {**asdict(self.position), "tokens": self._tokens_done}
        if self._facts is not None:  # a step that a checkpoint holds is never run again
            self._facts.flush()
        try:
            with self._collective():
                manifest = save(
                    self._state,
                    context.store,
                    step=self.position.step,
                    attempt=context.attempt,
                    staging=_folder(context, f"out-{self.position.step}"),
                    position=position,
                    ranks=context.ranks,
                )
        except BurstError as error:
            self._failed(error)
            return
        self._failed_saves = 0
        self._saved_step, self._saved_at = self.position.step, time.monotonic()
        size = sum(file.size_bytes for file in manifest.files)
        self._tell(
            "saved",
            step=self.position.step,
            start=_iso(started),
            end=_iso(time.time()),
            size_bytes=size,
            gradient_bytes=self._strategy.gradient_bytes,
        )
        if self.is_main:
            apply_keep(
                context.store,
                keep=context.run.keep,
                live_attempt=context.attempt,
                log=log,
                verified=self._verified,
            )

    def _failed(self, error: BurstError) -> None:
        self._failed_saves += 1
        self._saved_at = time.monotonic()
        self._tell("save_failed", step=self.position.step, error=str(error))
        log.warning("saving step %s failed: %s", self.position.step, error)
        if self._saved_step < 0 or self._failed_saves > FAILED_SAVES_ALLOWED:
            raise error

    def complete(self) -> None:
        """Save what is not saved yet, and insist on it; all workers together.

        Called after the last step, and once the script's function returns: a loop may end early.
        """
        self._save()
        if self._context is not None and self._saved_step != self.position.step:
            raise TrainingError(f"the final checkpoint of step {self.position.step} was not saved")

    def _tell(self, kind: str, **fact: Any) -> None:  # noqa: ANN401 - JSON
        line = {"kind": kind, "time": _iso(time.time()), **fact}
        if self._facts is not None:
            self._facts.tell({"attempt": self._context.attempt if self._context else 0, **line})
        elif self._context is None and self.is_main:
            _show(line)


def _policy(run: RunRecord) -> SavePolicy:
    by_time = EverySeconds(run.every_s)
    return by_time if run.every_steps is None else AnyOf((EverySteps(run.every_steps), by_time))


def _show(line: Mapping[str, Any]) -> None:
    """Print progress under plain `python train.py`, about ten lines per order of magnitude."""
    if line["kind"] == "step":
        step = int(line["step"])
        if step % max(1, 10 ** (len(str(step)) - 1)) and step != line.get("total"):
            return
        sys.stderr.write(f"step {step}  loss {line['loss']:.4f}  lr {line['lr']:.3g}\n")
    elif line["kind"] == "note":
        sys.stderr.write(f"{line['text']}\n")


def _iso(seconds: float) -> str:
    return stamp(datetime.fromtimestamp(seconds, UTC))


def _folder(context: RunContext, name: str) -> Path:
    return Path(context.staging) / f"a{context.attempt:04d}-{name}"


def _to(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 - the user's own structure
    if device.type == "cpu":
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: _to(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [_to(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch
