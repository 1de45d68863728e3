"""Which GPUs ECS machine types have, in the names that task files use.

ECS has its own words for GPUs, and names of types say little: `ecs.gn6i-c24g1.12xlarge` has two
T4. So what counts is `GPUAmount`, and only GPUs that stand here are known; shared ones (vGPU) and
new ones are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burst.task_specs.model import Accelerators

# ECS's `GPUSpec` and the GiB of one GPU. ECS, "Instance families", GPU-accelerated; "GPU H" has no
# public name there, its users' nvidia-smi says H20.
NAMES: Mapping[tuple[str, int], str] = {
    ("NVIDIA T4", 16): "T4",
    ("NVIDIA V100", 16): "V100",
    ("NVIDIA V100", 32): "V100-32GB",
    ("NVIDIA A100", 40): "A100",
    ("NVIDIA A100", 80): "A100-80GB",
    ("NVIDIA A100 80G", 80): "A100-80GB",
    ("NVIDIA A10", 24): "A10",
    ("NVIDIA A30", 24): "A30",
    ("NVIDIA L20", 48): "L20",
    ("GPU H", 96): "H20",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """An ECS machine type."""

    name: str
    cpus: int
    memory_gb: float
    accelerators: Accelerators | None
    gpu_gb: int  # of one GPU
    arch: str  # "x86_64" or "arm64"


def machine_type(raw: Mapping[str, Any]) -> MachineType | None:
    """Read one entry of DescribeInstanceTypes; None when it has GPUs that are not known here."""
    count = int(raw.get("GPUAmount") or 0)
    spec, memory_gb = str(raw.get("GPUSpec") or ""), float(raw.get("GPUMemorySize") or 0)
    name = NAMES.get((spec, round(memory_gb))) if count else None
    if name is None and (count or spec):
        return None
    return MachineType(
        name=raw["InstanceTypeId"],
        cpus=int(raw["CpuCoreCount"]),
        memory_gb=float(raw["MemorySize"]),
        accelerators=Accelerators(kind=name, count=count) if name else None,
        gpu_gb=round(memory_gb),
        arch="arm64" if raw.get("CpuArchitecture") == "ARM" else "x86_64",
    )
