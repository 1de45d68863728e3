"""A cluster's machines at Lambda: never a wait without an end, never a machine too many."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from burst.errors import TransientError
from burst.provision.lambda_cloud import cluster
from burst.provision.lambda_cloud.api import LambdaApi, LambdaError, Launch, LostAnswerError
from burst.provision.lambda_cloud.cluster import Wanted, bring_up, end, members
from burst.provision.refusals import reason_of
from lambda_emulator import LAUNCH, TERMINATE, Fault, LambdaEmulator, StepClock

LIKE = Launch(name="", region="us-east-1", machine_type="gpu_1x_a10", ssh_key="sky-key-me")


def wanted(count: int = 1, name: str = "c") -> Wanted:
    return Wanted(cluster=name, count=count, like=LIKE)


def test_a_cluster_has_one_head_and_is_made_once(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    made = bring_up(api, clock, wanted(3))
    assert [one.name for one in made.machines] == ["c-head", "c-worker", "c-worker"]
    assert {one.state for one in made.machines} == {"active"}
    assert sorted(made.new) == sorted(emulator.running())
    again = bring_up(api, clock, wanted(3))
    assert again.machines == made.machines
    assert again.new == ()
    assert emulator.calls[f"POST {LAUNCH}"] == 3
    assert emulator.limited.total() == 0


def test_other_machines_are_left_alone(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    other = bring_up(api, clock, Wanted(cluster="c-2", count=1, like=LIKE)).new
    bring_up(api, clock, wanted())
    end(api, members(api, "c"))
    assert emulator.running() == list(other)


def test_one_of_three_that_is_gone_is_made_anew(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    """SkyPilot's own provisioner launches none and waits for ever."""
    lost = bring_up(api, clock, wanted(3)).machines[1]
    emulator.lose(lost.instance_id)
    again = bring_up(api, clock, wanted(3))
    assert len(again.machines) == 3
    assert len(again.new) == 1


@pytest.mark.parametrize("state", ["unhealthy", "preempted", "terminating"])
def test_a_machine_of_no_use_is_ended_and_made_anew(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator, state: str
) -> None:
    (first,) = bring_up(api, clock, wanted()).new
    emulator.vms[first].state = state
    (second,) = bring_up(api, clock, wanted()).new
    assert emulator.running() == [second]


def test_workers_too_many_are_told_not_ended(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    bring_up(api, clock, wanted(3))
    with pytest.raises(LambdaError, match="burst/too-many"):
        bring_up(api, clock, wanted(2))
    assert len(emulator.running()) == 3


# Waiting --------------------------------------------------------------------------------------


def never(emulator: LambdaEmulator) -> Callable[[], None]:
    def keep() -> None:
        for vm in emulator.vms.values():
            vm.state = vm.state or "booting"

    return keep


def sick(emulator: LambdaEmulator) -> Callable[[], None]:
    def keep() -> None:
        for vm in emulator.vms.values():
            vm.state = vm.state or "unhealthy"

    return keep


def taken(emulator: LambdaEmulator) -> Callable[[], None]:
    def keep() -> None:
        for vm in emulator.vms.values():
            vm.state = vm.state or "preempted"

    return keep


def vanished(emulator: LambdaEmulator) -> Callable[[], None]:
    def keep() -> None:
        for name in list(emulator.vms):
            if emulator.clock.monotonic() - emulator.vms[name].born_s > 30:
                emulator.lose(name)

    return keep


@pytest.mark.parametrize(
    ("accident", "code", "limit_s"),
    [
        (never, "burst/never-ready", cluster.BOOT_S),
        (sick, "burst/never-ready", cluster.SICK_S),
        (taken, "burst/machine-lost", 0.0),
        (vanished, "burst/machine-lost", 20 + cluster.MISSED_S),
    ],
)
def test_waiting_has_an_end_that_is_a_refusal_and_leaves_nothing(
    api: LambdaApi,
    clock: StepClock,
    emulator: LambdaEmulator,
    accident: Callable[[LambdaEmulator], Callable[[], None]],
    code: str,
    limit_s: float,
) -> None:
    clock.during = accident(emulator)
    with pytest.raises(LambdaError) as error:
        bring_up(api, clock, wanted())
    assert error.value.code == code
    assert reason_of(str(error.value)) == "capacity"
    assert limit_s <= clock.monotonic() - 1000 <= limit_s + 3 * cluster.POLL_S
    assert emulator.running() == []
    assert emulator.calls[f"POST {LAUNCH}"] == 1


def test_a_machine_that_never_shows_up_is_lost(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    emulator.hidden_s = 1e6
    with pytest.raises(LambdaError, match="burst/machine-lost"):
        bring_up(api, clock, wanted())
    assert cluster.APPEAR_S <= clock.monotonic() - 1000 <= cluster.APPEAR_S + 30


def test_lists_may_be_late_and_machines_sick_for_a_while(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    emulator.hidden_s = 45.0

    def stumble() -> None:
        for vm in emulator.vms.values():
            vm.state = "unhealthy" if 60 < clock.monotonic() - vm.born_s < 90 else None

    clock.during = stumble
    assert len(bring_up(api, clock, wanted()).machines) == 1
    assert emulator.calls[f"POST {LAUNCH}"] == 1


def test_lambda_may_be_silent_for_a_while_of_waiting(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    def fall_silent() -> None:
        if emulator.vms and not emulator.faults:
            emulator.faults.append(Fault("/instances", 503, times=11))

    clock.during = fall_silent
    assert len(bring_up(api, clock, wanted()).machines) == 1
    emulator.faults.clear()
    clock.during = lambda: emulator.faults.append(Fault("/instances", 503, times=9999))
    emulator.boot_s = 1e6
    with pytest.raises(TransientError):
        bring_up(api, clock, Wanted(cluster="d", count=1, like=LIKE))
    assert clock.monotonic() - 1000 < 2 * cluster.BOOT_S


# Launching ------------------------------------------------------------------------------------


def test_no_stock_is_refused_without_a_launch(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    emulator.stock["gpu_1x_a10", "us-east-1"] = 0
    with pytest.raises(LambdaError) as error:
        bring_up(api, clock, wanted())
    assert "regions with capacity: us-west-1" in str(error.value)
    assert reason_of(str(error.value)) == "capacity"
    assert emulator.calls[f"POST {LAUNCH}"] == 0


def test_a_refused_second_machine_takes_the_first_with_it(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    emulator.quota = 1
    with pytest.raises(LambdaError) as error:
        bring_up(api, clock, wanted(2))
    assert reason_of(str(error.value)) == "quota"
    assert emulator.running() == []


@pytest.mark.parametrize("hidden_s", [0.0, 65.0])
def test_a_launch_whose_answer_was_lost_is_not_made_again(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator, hidden_s: float
) -> None:
    emulator.hidden_s = hidden_s
    emulator.faults.append(Fault(LAUNCH, 0))
    made = bring_up(api, clock, wanted())
    assert list(made.new) == emulator.running()
    assert emulator.calls[f"POST {LAUNCH}"] == 1


def test_a_machine_of_a_lost_answer_is_looked_for_though_lists_fail_too(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    def fail() -> None:
        if emulator.vms:
            emulator.faults.append(Fault("/instances", 503, times=7))
            clock.during = lambda: None

    emulator.faults.append(Fault(LAUNCH, 0))
    clock.during = fail
    made = bring_up(api, clock, wanted())
    assert list(made.new) == emulator.running()
    assert emulator.calls[f"POST {LAUNCH}"] == 1


def test_forty_machines_are_forty_though_answers_are_lost_and_lists_are_late(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    """C67."""
    emulator.stock["gpu_1x_a10", "us-east-1"] = 100
    emulator.hidden_s = 1.5
    made = set()
    for number in range(40):
        if number % 5 == 0:
            emulator.faults.append(Fault(LAUNCH, 0))
        made |= {*bring_up(api, clock, wanted(name=f"c{number}")).new}
    assert len(made) == 40
    assert made == {*emulator.running()}
    assert emulator.limited.total() == 0


def test_a_launch_that_did_nothing_is_told_and_can_be_made_again(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    emulator.faults.append(Fault(LAUNCH, 502))
    with pytest.raises(LostAnswerError):
        bring_up(api, clock, wanted())
    assert emulator.running() == []
    made = bring_up(api, clock, wanted())
    assert list(made.new) == emulator.running()


def test_a_machine_of_a_lost_answer_that_shows_up_late_is_ended(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    """It shows only when its successor is being waited for."""
    emulator.hidden_s = cluster.APPEAR_S + 60
    emulator.faults.append(Fault(LAUNCH, 0))
    with pytest.raises(LostAnswerError):
        bring_up(api, clock, wanted())
    assert len(emulator.running()) == 1
    emulator.hidden_s = 0.0
    emulator.vms[emulator.running()[0]].born_s = clock.monotonic() + 20 - emulator.boot_s
    emulator.hidden_s = emulator.boot_s
    made = bring_up(api, clock, wanted())
    assert emulator.running() == [one.instance_id for one in made.machines]
    assert len(made.machines) == 1


def test_two_heads_become_one(api: LambdaApi, clock: StepClock, emulator: LambdaEmulator) -> None:
    for _ in range(2):
        api.launch(Launch(name="c-head", region="us-east-1", machine_type="gpu_1x_a10",
                          ssh_key="sky-key-me"))  # fmt: skip
    made = bring_up(api, clock, wanted())
    assert emulator.running() == [one.instance_id for one in made.machines]


# Ending ---------------------------------------------------------------------------------------


def test_ending_what_has_ended_is_no_error(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    end(api, members(api, "c"))
    assert emulator.calls[f"POST {TERMINATE}"] == 0  # Lambda may refuse an empty list
    machines = bring_up(api, clock, wanted(3)).machines
    emulator.lose(machines[1].instance_id)
    emulator.vms[machines[2].instance_id].state = "terminated"
    end(api, machines)
    assert emulator.running() == []
    end(api, machines)


def test_an_end_that_is_refused_is_told(
    api: LambdaApi, clock: StepClock, emulator: LambdaEmulator
) -> None:
    machines = bring_up(api, clock, wanted()).machines
    emulator.faults.append(Fault(TERMINATE, 403, times=9, body=b"no"))
    with pytest.raises(LambdaError, match="http-403: no"):
        end(api, machines)
