"""A run's static facts for tests that need some; `replace` what matters."""

from __future__ import annotations

from decimal import Decimal

from burst.cost.placement import Choice, Place
from burst.cost.state import Limits
from burst.records import RunRecord

CHOICE = Choice(
    place=Place(pool="local", machine_type="box", owned=True),
    usd_per_hour=Decimal("3.60"),
    price_source="test",
)

RUN = RunRecord(
    run_id="r-abcdef",
    name="r",
    created="2026-01-01T00:00:00.000000Z",
    train="train.py:main",
    setup=None,
    run=None,
    workdir="/",
    params={},
    strategy="ddp",
    precision="fp32",
    reduction="auto",
    global_batch=4,
    micro_batch=2,
    epochs=None,
    steps=10,
    seed=0,
    clip_norm=None,
    threads=1,
    nodes=2,
    workers_low=1,
    workers_high=2,
    slots_per_node=1,
    gpus_per_worker=0,
    gpus_per_node=0,
    every_s=60.0,
    every_steps=None,
    keep=2,
    checkpoint_dir=None,
    max_failures=0,
    budget_usd=None,
    deadline_s=None,
    choices=(CHOICE,),
    head_apart=True,
)

# Machines of one's own, which are first, and rented ones, which are asked for after 30 s
OWN = Choice(
    place=Place(pool="ssh/lab", machine_type="8xA100", owned=True), usd_per_hour=Decimal("0.1")
)
SPOT = Choice(
    place=Place(pool="aws", region="r", zone="ra", machine_type="p4d", spot=True),
    usd_per_hour=Decimal(9),
    after_s=30.0,
)
OWN_FIRST = Limits(
    nodes=2, least_nodes=1, choices=(OWN, SPOT), max_idle_losses=50, return_after_s=60.0
)
