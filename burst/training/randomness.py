"""Seeds that depend on the step and the sample, never on the worker.

Every source of randomness (Python's, NumPy's when the script uses it, torch's on CPU and on the
accelerator) is set before each forward pass from (seed, step, slot), and before each sample is
read from (seed, epoch, sample). So dropout and augmentation are the same on any number of
workers and after any restart, without saving a generator's state.
"""

from __future__ import annotations

import hashlib
import random
import sys

import torch


def mix(*parts: int | str) -> int:
    """Return 63 bits that depend on every part; the same on every machine (BLAKE2b)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_all(value: int) -> None:
    """Set every global generator of this process."""
    random.seed(value)
    torch.manual_seed(value)  # also every CUDA device
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(value % 2**32)
