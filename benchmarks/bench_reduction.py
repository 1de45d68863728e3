"""How much exact sums cost against torch's own all_reduce, for the tiny-lm's 1.3 M parameters.

Two gloo processes on this machine; prints milliseconds per step and the ratio. The whole step of
that model takes about 200 ms on two cores.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from burst.training.order import share
from burst.training.reduction import Exact

SIZE = 1_330_000
SLOTS = 2
ROUNDS = 40


def timed(work: Callable[[], object]) -> float:
    """Return the median seconds of a round."""
    seconds = []
    for _ in range(ROUNDS):
        dist.barrier()
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def rank(number: int, world: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=world)
    gradient = torch.randn(SIZE)
    reduction = Exact(number, world, None)

    def exact() -> None:
        for slot in share(SLOTS, number, world):
            reduction.add(slot, gradient)
        reduction.total(SLOTS, SIZE, gradient[:0])

    rival = timed(lambda: dist.all_reduce(gradient.clone()))
    ours = timed(exact)
    if number == 0:
        print(f"torch all_reduce  {1000 * rival:6.1f} ms a step")
        print(f"exact tree sums   {1000 * ours:6.1f} ms a step")
        print(f"ratio             {ours / rival:6.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank, args=(2, f"{folder}/meeting"), nprocs=2)
