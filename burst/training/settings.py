"""The numbers of a session: the script's own, unless the task file says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from burst.errors import SetupError
from burst.records import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to train. `steps` counts optimizer steps; with `epochs`, the earlier end counts."""

    global_batch: int = 32
    micro_batch: int | None = None
    epochs: int | None = None
    steps: int | None = None
    seed: int = 0
    clip_norm: float | None = None
    precision: str = "fp32"
    strategy: str = "ddp"
    reduction: str = "auto"

    @property
    def slot_size(self) -> int:
        """Samples in one forward pass."""
        return min(self.micro_batch or self.global_batch, self.global_batch)


def settle(script: Settings, run: RunRecord | None) -> Settings:
    """Put the task's words over the script's, and check that training has an end."""
    settled = script if run is None else _overlay(script, run)
    if settled.epochs is None and settled.steps is None:
        raise SetupError(
            "nothing says when training is over",
            hint="give `steps` or `epochs` in the burst: block or to burst.session()",
        )
    if settled.global_batch < 1 or settled.slot_size < 1:
        raise SetupError(
            f"a batch needs at least 1 sample (global_batch {settled.global_batch}, "
            f"micro_batch {settled.micro_batch})"
        )
    return settled


def _overlay(script: Settings, run: RunRecord) -> Settings:
    said = {
        f.name: value for f in fields(Settings) if (value := getattr(run, f.name, None)) is not None
    }
    settled = replace(script, **said)
    if settled.micro_batch is None:  # one slot for each worker of the largest group
        settled = replace(settled, micro_batch=-(-settled.global_batch // run.workers_high))
    return settled
