"""C67: a machine just made is in no list yet, and one create call in five times out."""

from __future__ import annotations

import random
from decimal import Decimal

from burst.cost.placement import Choice, Place
from burst.ports import NodeRequest
from burst.provision.fake import FakeCloud, FakeProvisioner, Faults
from burst.storage.memory import MemoryStore
from cli_scene import StillClock

PLACE = Place(pool="aws", region="r", zone="ra", machine_type="m", spot=True)


def test_what_is_not_listed_yet_is_neither_gone_nor_made_twice() -> None:
    clock = StillClock()
    cloud = FakeCloud(clock, chance=random.Random(67))
    cloud.faults = Faults(unheard=0.2, late_s=1.5)
    pools = {
        f"run-{n:06d}": FakeProvisioner(cloud, MemoryStore(), outlives=True) for n in range(20)
    }
    for run_id, pool in pools.items():
        for index in range(2):
            pool.launch(
                NodeRequest(
                    run_id=run_id,
                    node_id=f"n{index + 1:03d}",
                    run_uri="",
                    index=index,
                    choice=Choice(place=PLACE, usd_per_hour=Decimal(1)),
                )
            )
    for _ in range(40):
        clock.sleep(0.25)
        for run_id, pool in pools.items():
            assert {view.state for view in pool.observe(run_id)} <= {"asked", "running"}
    assert len(cloud.machines) == len(cloud.alive()) == 40
    for run_id, pool in pools.items():
        pool.sweep(run_id)
    assert cloud.alive() == {}
