"""One pass over 100 runs of 10 nodes each, against the time that passes between two of them.

Everything but the cloud and the object store is the real controller; both of these are in memory,
so what is measured is burst's own work. The rival is the clock: a pass must be shorter than the
second that a controller lets go by.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from fake_world import World

from burst.cost.placement import Choice, Place
from burst.cost.state import Active, Limits
from some_run import RUN

RUNS, NODES, PASSES = 100, 10, 20
PLACE = Place(
    pool="aws", region="us-east-1", zone="us-east-1a", machine_type="m6i.large", spot=True
)
CHOICE = Choice(place=PLACE, usd_per_hour=Decimal("0.034"))


def main() -> None:
    limits = Limits(nodes=NODES, least_nodes=1, choices=(CHOICE,))
    driven = []
    for _ in range(RUNS):
        world = World(steps=10**9)
        world.outlives = True
        world.run = replace(RUN, nodes=NODES, choices=(CHOICE,), head_apart=False)
        controller = world.controller(limits)
        state = controller.begin()
        for _ in range(5):
            assert isinstance(state, Active)
            world.sleep(1.0)
            state = controller.reconcile(state)
        driven.append((world, controller, state))
    took = []
    for _ in range(PASSES):
        began = time.perf_counter()
        for n, (world, controller, state) in enumerate(driven):
            assert isinstance(state, Active)
            assert state.driving
            world.seconds += 1.0
            driven[n] = (world, controller, controller.reconcile(state))
        took.append(time.perf_counter() - began)
    calls = sum(world.cloud.calls for world, _, _ in driven)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took.sort()
    print(f"{RUNS} runs, {RUNS * NODES} nodes: a pass takes {took[len(took) // 2]:.3f} s, at most")
    print(f"{took[-1]:.3f} s; {took[len(took) // 2] / 1.0:.2f} of the second between two passes")
    print(f"memory {megabytes:.0f} MB; {calls} calls of the cloud in {PASSES + 5} passes")


if __name__ == "__main__":
    main()
