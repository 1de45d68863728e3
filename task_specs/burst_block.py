"""The `burst:` block: everything SkyPilot has no word for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from burst.task_specs import units
from burst.task_specs.fields import Fields
from burst.task_specs.infra import infra_text, parse_infra
from burst.task_specs.keys import BURST, CHECKPOINT, POOLS
from burst.task_specs.model import (
    NEVER_S,
    Burst,
    CheckpointRule,
    Pools,
    Precision,
    Range,
    Resources,
    Spot,
    Strategy,
)
from burst.task_specs.mounts import Local
from burst.task_specs.nodes import MapNode
from burst.task_specs.params import read_params
from burst.task_specs.run_uris import run_uri

KEEP_AT_LEAST = 2  # the newest may be the one that turns out damaged
STRATEGIES: tuple[Strategy, ...] = ("ddp", "fsdp2", "zero1", "zero2", "zero3")
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
SPOTS: tuple[Spot, ...] = ("spot", "on-demand", "auto")
REDUCTIONS = ("auto", "exact", "fast")
_STRATEGY_NAMES = {
    "fsdp": "fsdp2", "deepspeed": "zero3", "zero": "zero3", "zero-1": "zero1", "zero-2": "zero2",
    "zero-3": "zero3", "stage1": "zero1", "stage2": "zero2", "stage3": "zero3",
    "dataparallel": "ddp",
}  # fmt: skip
_PRECISION_NAMES = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
    "full": "fp32", "no": "fp32", "bf16-mixed": "bf16", "16": "fp16", "32": "fp32",
}  # fmt: skip
_SPOT_NAMES = {
    "ondemand": "on-demand", "on_demand": "on-demand", "true": "spot", "false": "on-demand",
    "yes": "spot", "no": "on-demand", "preemptible": "spot", "any": "auto", "mixed": "auto",
}  # fmt: skip
_TRAIN = re.compile(r"(?:[^:\s]+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*", re.ASCII)
_STEPS = re.compile(r"(.+?)\s*steps?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What of the rest of the file bears on the block."""

    num_nodes: int
    candidates: tuple[Resources, ...]
    local: Local


def read_burst(root: Fields, around: Around) -> Burst:
    """Return the block, and a top-level `train:` mapping as its `params`."""
    fields = root.fields("burst") or Fields(MapNode({}), "burst", root.report)
    fields.refuse_unknown(BURST, "burst")
    workers = fields.read("workers", _workers)
    block = Burst(
        train=fields.read("train", _train),
        params=_params(root, fields),
        workers=workers,
        strategy=cast("Strategy", fields.word("strategy", STRATEGIES, _STRATEGY_NAMES) or "ddp"),
        precision=cast(
            "Precision", fields.word("precision", PRECISIONS, _PRECISION_NAMES) or "fp32"
        ),
        global_batch=fields.whole("global_batch", least=1),
        micro_batch=fields.whole("micro_batch", least=1),
        epochs=fields.whole("epochs", least=1),
        steps=fields.whole("steps", least=1),
        seed=fields.whole("seed", least=0),
        clip_norm=fields.positive("clip_norm"),
        reduction=cast(
            'Literal["auto", "exact", "fast"]', fields.word("reduction", REDUCTIONS, {}) or "auto"
        ),
        run_uri=fields.read(
            "run_uri",
            lambda text: run_uri(text, num_nodes=around.num_nodes, absolute=around.local.path),
        ),
        checkpoint=_checkpoint(fields.fields("checkpoint")),
        spot=_spot(fields, around.candidates),
        budget_usd=fields.read("budget_usd", units.usd),
        deadline_s=fields.read("deadline", _deadline),
        max_failures=_max_failures(fields, around.candidates),
        pools=_pools(fields.fields("pools")),
    )
    _check_batch(fields, block)
    return block


def _train(text: str) -> str:
    if not _TRAIN.fullmatch(text):
        raise ValueError("needs a function, as in train.py:main or package.module:main")
    return text


def _workers(text: str) -> Range:
    if re.fullmatch(r"\s*[0-9]+\s*-\s*[0-9]+\s*", text):
        raise ValueError(f"a range has two dots: {text.replace('-', '..').replace(' ', '')}")
    return units.count_range(text)


def _params(root: Fields, fields: Fields) -> dict[str, Any]:
    if root.has("train") and fields.has("params"):
        root.problem("train", "a second name for `burst.params`; keep one of them")
    if root.is_single("train"):
        root.problem("train", "the function belongs under `burst`; here are its parameters")
        return {}
    params = root.fields("train") or fields.fields("params")
    return {} if params is None else read_params(params.map, params.path, root.report)


def _checkpoint(fields: Fields | None) -> CheckpointRule:
    if fields is None:
        return CheckpointRule()
    fields.refuse_unknown(CHECKPOINT, "burst.checkpoint")
    every = fields.read("every", _every)
    every_s, every_steps = (300.0, None) if every is None else every
    keep = fields.read("keep", _keep)
    return CheckpointRule(
        every_s=every_s,
        every_steps=every_steps,
        keep=3 if keep is None else keep,
        dir=fields.text("dir"),
    )


def _every(text: str) -> tuple[float, int | None]:
    """Read a duration or `200 steps`, as seconds and steps."""
    match = _STEPS.fullmatch(text.strip())
    if match is not None:
        steps = units.whole(match[1])
        if steps < 1:
            raise ValueError("needs at least 1 step")
        return NEVER_S, steps
    try:
        seconds = units.duration_s(text)
    except ValueError as error:
        raise ValueError(f"{error}; or a number of steps, as in `200 steps`") from error
    if seconds == 0:
        raise ValueError("needs to be more than 0")
    return seconds, None


def _keep(text: str) -> int:
    keep = units.whole(text)
    if keep < KEEP_AT_LEAST:
        raise ValueError(
            f"burst keeps at least {KEEP_AT_LEAST}: if the newest is damaged, the one before saves "
            "the run"
        )
    return keep


def _deadline(text: str) -> float:
    seconds = units.duration_s(text)
    if seconds == 0:
        raise ValueError("needs to be more than 0")
    return seconds


def _spot(fields: Fields, candidates: tuple[Resources, ...]) -> Spot:
    """Return what the block says; else what `use_spot` says; else auto."""
    fields.refuse_both("spot", "spot_policy")
    key = "spot" if fields.has("spot") else "spot_policy"
    said = cast("Spot | None", fields.word(key, SPOTS, _SPOT_NAMES))
    wanted = {one.use_spot for one in candidates}
    if said is None:
        return implied_spot(candidates)
    allowed: dict[Spot, set[bool | None]] = {
        "spot": {True, None}, "on-demand": {False, None}, "auto": {None}
    }  # fmt: skip
    if not wanted <= allowed[said] and wanted != {True, False}:
        fields.problem(key, "does not agree with `resources.use_spot`; keep one of them")
    return said


def implied_spot(candidates: tuple[Resources, ...]) -> Spot:
    """Return what the candidates' `use_spot` says, `auto` if they do not agree or say nothing."""
    match {one.use_spot for one in candidates}:
        case s if s == {True}:
            return "spot"
        case s if s == {False}:
            return "on-demand"
        case _:
            return "auto"


def _max_failures(fields: Fields, candidates: tuple[Resources, ...]) -> int:
    """Return the block's number, else what job_recovery says."""
    said = fields.whole("max_failures", least=0)
    return implied_failures(candidates) if said is None else said


def implied_failures(candidates: tuple[Resources, ...]) -> int:
    """Return how often SkyPilot's job_recovery would restart failed code."""
    recovery = candidates[0].other.get("job_recovery")
    restarts = recovery.get("max_restarts_on_errors") if isinstance(recovery, dict) else None
    return restarts if isinstance(restarts, int) and restarts > 0 else 0


def _pools(fields: Fields | None) -> Pools:
    if fields is None:
        return Pools()
    fields.refuse_unknown(POOLS, "burst.pools")
    listed = fields.items("prefer") is not None
    return Pools(
        prefer=tuple(fields.scalars("prefer", _pool)) if listed else (),
        overflow_after_s=fields.read("overflow_after", units.duration_s),
        return_after_s=fields.read("return_after", units.duration_s),
    )


def _pool(text: str) -> str:
    return infra_text(parse_infra(text)) or "*"


def _check_batch(fields: Fields, block: Burst) -> None:
    if block.global_batch is None:
        return
    if block.workers is not None and block.workers.high > block.global_batch:
        fields.problem(
            "global_batch",
            f"{block.workers.high} workers cannot share {block.global_batch} samples; every worker "
            "needs at least one",
        )
    if block.micro_batch is not None and block.micro_batch > block.global_batch:
        fields.problem("micro_batch", f"is more than global_batch, {block.global_batch}")
