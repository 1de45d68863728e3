"""A task, as the rest of burst sees it: valid, immutable and in plain types.

Everything outside `Burst` has SkyPilot's meaning (0.14.1); `Burst` is the `burst:` block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Strategy = Literal["ddp", "fsdp2", "zero1", "zero2", "zero3"]
Precision = Literal["fp32", "bf16", "fp16"]
NEVER_S = 3650 * 86_400.0  # ten years: the longest duration a file can say
Spot = Literal["spot", "on-demand", "auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A size or count: exactly `value`, at least `value`, or `value` times the CPU count."""

    value: float
    at_least: bool = False
    per_cpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerators:
    """`count` accelerators of one type on each node. The type is in the catalog's own spelling."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Infra:
    """Where: a cloud and what part of it; None means any."""

    cloud: str | None = None  # lower case: aws, alibaba, lambda, k8s, slurm, ssh, local, ...
    region: str | None = None  # for k8s: the context; for slurm and ssh: the cluster or pool
    zone: str | None = None  # for slurm: the partition

    def __str__(self) -> str:
        """Return it as task files say it.

        >>> print(Infra(cloud="aws", region="eu-west-1"), Infra(zone="eu-west-1a"), Infra())
        aws/eu-west-1 */*/eu-west-1a *
        """
        parts = "/".join(part or "*" for part in (self.cloud, self.region, self.zone))
        return parts.removesuffix("/*").removesuffix("/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Autostop:
    """When an idle machine goes away; None means never."""

    idle_minutes: int | None
    down: bool = False
    other: Mapping[str, Any] = field(default_factory=dict)  # SkyPilot's further keys, as read


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """One candidate for what a node may be."""

    infra: Infra = Infra()
    accelerators: Accelerators | None = None
    instance_type: str | None = None
    cpus: Amount | None = None
    memory_gb: Amount | None = None
    disk_size_gb: int | None = None
    use_spot: bool | None = None  # None: not said
    image_id: str | None = None  # a map of regions to images is in `other`
    max_hourly_usd: float | None = None
    autostop: Autostop | None = None
    ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)  # SkyPilot's further keys, as read


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One entry of file_mounts."""

    target: str
    source: str | None  # local path or URI; None for a named bucket
    mode: Literal["COPY", "MOUNT", "MOUNT_CACHED"] = "COPY"
    name: str | None = None
    remote: bool = False  # the source is a URI: a download, not a local path
    other: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """`low..high`, both ends included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRule:
    """When to save and how many to keep."""

    every_s: float = 300.0
    every_steps: int | None = None  # if given, every_s is NEVER_S
    keep: int = 3
    dir: str | None = None  # for tasks without burst.train: the folder that is committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Which pools to try and when to leave them."""

    prefer: tuple[str, ...] = ()
    overflow_after_s: float | None = None  # how long own machines are waited for; None: not
    return_after_s: float | None = None  # how long they are vacant before the run goes back


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The `burst:` block; every field has a default, so a SkyPilot file runs without it."""

    train: str | None = None  # `file.py:function` or `package.module:function`
    params: Mapping[str, Any] = field(default_factory=dict)  # given to the function
    workers: Range | None = None  # None: one per accelerator, or one per node without any
    strategy: Strategy = "ddp"
    precision: Precision = "fp32"
    global_batch: int | None = None  # samples per optimizer step; None: the script says
    micro_batch: int | None = None  # samples per forward; None: global_batch / workers.high
    epochs: int | None = None
    steps: int | None = None
    seed: int | None = None
    clip_norm: float | None = None
    reduction: Literal["auto", "exact", "fast"] = "auto"
    run_uri: str | None = None  # None: file://$BURST_HOME/runs
    checkpoint: CheckpointRule = CheckpointRule()
    spot: Spot = "auto"
    budget_usd: float | None = None
    deadline_s: float | None = None
    max_failures: int = 0  # restarts after the user's own code failed
    pools: Pools = Pools()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task file, read and checked."""

    name: str  # as typed; for people
    source: str  # the file it came from
    workdir: str | None = None  # absolute local path; a git workdir is in `other`
    num_nodes: int = 1
    candidates: tuple[Resources, ...] = (Resources(),)
    ordered: bool = False  # try candidates in this order, instead of the cheapest first
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    private_envs: frozenset[str] = frozenset()  # of `envs`: values that are written down nowhere
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    mounts: tuple[Mount, ...] = ()
    setup: str | None = None
    run: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)  # SkyPilot's further keys, as read
    burst: Burst = Burst()
    warnings: tuple[str, ...] = ()
