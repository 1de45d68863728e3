"""A run's machines at Lambda, by burst's tags."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from burst.cost.offers import Offer
from burst.cost.quotes import PER_MINUTE, Quote
from burst.errors import TransientError
from burst.provision.lambda_cloud.api import LambdaApi, Launch
from burst.provision.lambda_cloud.cloud import LambdaCloud, at_todays_price
from burst.provision.rented import NODE_TAG, RUN_TAG
from lambda_emulator import TERMINATE, Fault, LambdaEmulator, StepClock

RUN = "toy-abcdef"


def launch(api: LambdaApi, clock: StepClock, node: str, run: str = RUN) -> str:
    return api.launch(
        Launch(
            name=f"burst-{run}-{node}-0a0b0c0d-head",
            region="us-east-1",
            machine_type="gpu_1x_a10",
            ssh_key="sky-key-me",
            tags={RUN_TAG: run, NODE_TAG: node},
        )
    )


@pytest.fixture
def cloud(api: LambdaApi, clock: StepClock) -> LambdaCloud:
    return LambdaCloud(api, clock)


def test_machines_are_told_by_node_with_their_times(
    api: LambdaApi, cloud: LambdaCloud, clock: StepClock, emulator: LambdaEmulator
) -> None:
    asked = clock.now()
    launch(api, clock, "n001")
    launch(api, clock, "n001", run="another-abcdef")
    first = cloud.machines(RUN)["n001"]
    assert (first.costs, first.works, first.until) == (True, True, None)
    assert timedelta(0) <= first.since - asked < timedelta(seconds=2)
    assert "gpu_1x_a10" in str(first)
    clock.sleep(100)
    other = LambdaCloud(api, clock)  # another process
    assert other.machines(RUN)["n001"].since == first.since
    cloud.end(RUN, ["n001"])
    gone = cloud.machines(RUN)["n001"]
    clock.sleep(100)
    assert cloud.machines(RUN)["n001"] == gone  # the time of its end stays
    assert (gone.costs, gone.since) == (False, first.since)
    assert gone.until is not None
    assert len(emulator.running()) == 1


def test_one_that_vanished_is_gone_and_one_of_no_use_is_lost_but_paid_for(
    api: LambdaApi, cloud: LambdaCloud, clock: StepClock, emulator: LambdaEmulator
) -> None:
    gone, taken, sick = (launch(api, clock, f"n00{number}") for number in (1, 2, 3))
    cloud.machines(RUN)
    emulator.lose(gone)
    emulator.vms[taken].state = "preempted"
    emulator.vms[sick].state = "unhealthy"
    found = cloud.machines(RUN)
    told = {node: (m.costs, m.works, m.until is None) for node, m in found.items()}
    assert told == {
        "n001": (False, False, False),
        "n002": (False, False, False),
        "n003": (True, False, True),
    }


def test_a_list_that_left_one_out_is_forgiven(
    api: LambdaApi, cloud: LambdaCloud, clock: StepClock, emulator: LambdaEmulator
) -> None:
    launch(api, clock, "n001")
    first = cloud.machines(RUN)["n001"]
    emulator.hidden_s = 1e6
    assert not cloud.machines(RUN)["n001"].costs
    emulator.hidden_s = 0.0
    assert cloud.machines(RUN)["n001"] == first


def test_both_of_a_machine_that_was_launched_twice_are_ended(
    api: LambdaApi, cloud: LambdaCloud, clock: StepClock, emulator: LambdaEmulator
) -> None:
    launch(api, clock, "n001")
    emulator.vms[launch(api, clock, "n001")].state = "unhealthy"
    assert cloud.machines(RUN)["n001"].works  # the one that is of use counts
    kept = launch(api, clock, "n002")
    cloud.end(RUN, ["n001", "n009"])
    assert emulator.running() == [kept]


def test_machines_of_others_are_none_of_ours(
    api: LambdaApi, cloud: LambdaCloud, clock: StepClock, emulator: LambdaEmulator
) -> None:
    api.launch(Launch(name="mine", region="us-east-1", machine_type="gpu_1x_a10",
                      ssh_key="sky-key-me"))  # fmt: skip
    assert cloud.machines(RUN) == {}
    theirs = launch(api, clock, "n001", run="toy-ffffff")
    assert cloud.machines(RUN) == {}
    cloud.end(RUN, ["n001"])
    assert theirs in emulator.running()
    assert len(emulator.running()) == 2


def test_without_tags_in_an_answer_machines_are_known_by_their_names(
    api: LambdaApi, cloud: LambdaCloud, clock: StepClock, emulator: LambdaEmulator
) -> None:
    emulator.tells_tags = False
    launch(api, clock, "n001")
    launch(api, clock, "n001", run="toy-abcdef-2")
    clock.sleep(50)
    machine = cloud.machines(RUN)["n001"]
    assert machine.costs
    assert clock.now() - machine.since < timedelta(seconds=5)  # when it was seen first
    clock.sleep(50)
    assert cloud.machines(RUN)["n001"].since == machine.since
    cloud.end(RUN, ["n001"])
    assert [emulator.vms[name].body["name"] for name in emulator.running()] == [
        "burst-toy-abcdef-2-n001-0a0b0c0d-head"
    ]


def offer(pool: str, kind: str) -> Offer:
    price = Quote(
        usd_per_hour=Decimal("0.75"),
        source="SkyPilot's catalog of 2026-01-01",
        observed_at=datetime(2026, 1, 1, tzinfo=UTC),
        billing=PER_MINUTE,
    )
    return Offer(
        pool=pool, region="us-east-1", zone="", machine_type=kind, cpus=30.0, memory_gb=226.0,
        accelerators=None, spot=False, quote=price,
    )  # fmt: skip


def test_prices_are_those_of_today(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    known, unknown, other = (
        offer("lambda", "gpu_1x_a10"), offer("lambda", "gpu_9x"), offer("aws", "gpu_1x_a10")
    )  # fmt: skip
    fresh, *rest = at_todays_price((known, unknown, other), api, clock.now())
    assert str(fresh.quote.usd_per_hour) == "1.29"
    assert fresh.quote.source == "Lambda Cloud's API"
    assert clock.now() - fresh.quote.observed_at < timedelta(seconds=3)
    assert fresh.quote.billing == PER_MINUTE
    assert rest == [unknown, other]
    emulator.faults.append(Fault("/instance-types", 403))
    assert at_todays_price((known,), api, clock.now()) == (known,)


def test_what_lambda_does_not_say_or_do_is_transient(
    api: LambdaApi, cloud: LambdaCloud, clock: StepClock, emulator: LambdaEmulator
) -> None:
    launch(api, clock, "n001")
    emulator.faults.append(Fault("/instances", 403))
    with pytest.raises(TransientError, match="did not say what is there"):
        cloud.machines(RUN)
    emulator.faults.append(Fault(TERMINATE, 403))
    with pytest.raises(TransientError, match="did not end"):
        cloud.end(RUN, ["n001"])
    cloud.end(RUN, ["n001"])
    assert emulator.running() == []
