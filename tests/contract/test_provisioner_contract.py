"""What every pool must do (burst.ports.Provisioner); run against each of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from burst.errors import SetupError, TransientError
from burst.ports import NodeView, Provisioner
from pool_bench import OTHER_RUN, RUN, Bench, Killed

TRIES = 1000
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def pool(bench: Bench) -> Provisioner:
    return bench.open()


def view_of(pool: Provisioner, node_id: str) -> NodeView:
    """Return what the pool says of a node; one that it does not tell of any more is gone."""
    views = {view.node_id: view for view in pool.observe(RUN, [node_id])}
    return views.get(node_id, NodeView(node_id=node_id, state="gone"))


def is_(state: str, pool: Provisioner, node_id: str) -> bool:
    return view_of(pool, node_id).state == state


def until(bench: Bench, what: Callable[[], bool]) -> None:
    """Wait for something that must happen; a pool that stutters meanwhile is asked again."""
    for _ in range(TRIES):
        try:
            if what():
                return
        except TransientError:
            pass
        bench.wait()
    pytest.fail("it did not happen")


def running(bench: Bench, pool: Provisioner, *node_ids: str) -> None:
    """Launch nodes, and wait until they run."""
    for node_id in node_ids:
        pool.launch(bench.request(node_id))
    for node_id in node_ids:
        until(bench, partial(is_, "running", pool, node_id))


def ended(bench: Bench, pool: Provisioner, node_id: str) -> None:
    """End a node as the controller does: again and again until it is gone."""
    until(bench, lambda: pool.end(RUN, node_id))


def test_a_node_is_asked_for_and_then_runs_and_then_is_gone(
    bench: Bench, pool: Provisioner
) -> None:
    pool.launch(bench.request("n001"))
    seen: list[str] = []

    def runs() -> bool:
        seen.append(view_of(pool, "n001").state)
        return seen[-1] == "running"

    until(bench, runs)
    assert set(seen) <= {"asked", "running"}
    assert bench.there() == {"n001"}
    ended(bench, pool, "n001")
    until(bench, lambda: view_of(pool, "n001").state == "gone")


def test_a_request_that_is_made_again_gets_no_second_machine(
    bench: Bench, pool: Provisioner
) -> None:
    running(bench, pool, "n001")
    since = view_of(pool, "n001").since
    pool.launch(bench.request("n001"))
    until(bench, lambda: view_of(pool, "n001").state == "running")
    assert (view_of(pool, "n001").since, bench.there()) == (since, {"n001"})


def test_a_successor_may_ask_for_the_same_node_again(bench: Bench, pool: Provisioner) -> None:
    """It cannot know whether its predecessor's request came in."""
    running(bench, pool, "n001")
    successor = bench.open()
    running(bench, successor, "n001")
    assert bench.there() == {"n001"}
    ended(bench, successor, "n001")
    assert bench.there() == set()


@pytest.mark.needs("refuse")
def test_a_refusal_has_place_and_reason_and_leaves_nothing(bench: Bench, pool: Provisioner) -> None:
    bench.fill()
    pool.launch(bench.request("n001"))
    until(bench, lambda: view_of(pool, "n001").state != "asked")
    view = view_of(pool, "n001")
    assert view.state == "refused"
    assert [(one.place, one.reason) for one in view.refusals] == [
        (bench.place_of("n001"), "capacity")
    ]
    assert bench.there() == set()
    ended(bench, pool, "n001")


def test_a_machine_that_is_taken_away_is_gone_and_its_end_is_no_error(
    bench: Bench, pool: Provisioner
) -> None:
    running(bench, pool, "n001", "n002")
    bench.lose("n001")
    until(bench, lambda: view_of(pool, "n001").state == "gone")
    assert view_of(pool, "n002").state == "running"
    ended(bench, pool, "n001")
    assert bench.there() == {"n002"}


def test_an_end_is_true_only_when_the_machine_is_gone_and_may_be_asked_for_again(
    bench: Bench, pool: Provisioner
) -> None:
    running(bench, pool, "n001", "n002")

    def over() -> bool:
        gone = pool.end(RUN, "n001")
        assert not (gone and "n001" in bench.there())
        return gone

    until(bench, over)
    assert pool.end(RUN, "n001")
    assert bench.there() == {"n002"}


def test_a_node_that_is_given_up_while_it_is_asked_for_leaves_nothing(
    bench: Bench, pool: Provisioner
) -> None:
    pool.launch(bench.request("n001"))
    ended(bench, pool, "n001")
    assert bench.there() == set()
    until(bench, lambda: view_of(pool, "n001").state == "gone")


def test_the_end_of_a_node_that_nobody_knows_is_no_error(bench: Bench, pool: Provisioner) -> None:
    running(bench, pool, "n001")
    ended(bench, pool, "n003")
    assert bench.there() == {"n001"}


def test_a_successor_sees_the_same_nodes_and_ends_them(bench: Bench, pool: Provisioner) -> None:
    running(bench, pool, "n001", "n002")
    successor = bench.open()
    states = {view.node_id: view.state for view in successor.observe(RUN)}
    assert states == {"n001": "running", "n002": "running"}
    ended(bench, successor, "n001")
    assert bench.there() == {"n002"}


def test_a_sweep_ends_all_but_the_named_and_says_what_it_found(
    bench: Bench, pool: Provisioner
) -> None:
    running(bench, pool, "n001", "n002")
    successor = bench.open()
    found = successor.sweep(RUN, ["n002"])
    assert any("n001" in one for one in found)
    assert not any("n002" in one for one in found)
    until(bench, lambda: bench.there() == {"n002"})
    assert view_of(successor, "n002").state == "running"
    assert any("n002" in one for one in successor.sweep(RUN))
    until(bench, lambda: bench.there() == set())
    assert successor.sweep(RUN) == ()


def test_nodes_of_another_run_are_neither_seen_nor_touched(bench: Bench, pool: Provisioner) -> None:
    """The other's name begins with ours, and goes on as a node of ours is named."""
    other = bench.open()
    other.launch(bench.request("n001", OTHER_RUN))
    until(bench, lambda: bench.there(OTHER_RUN) == {"n001"})
    running(bench, pool, "n001")
    assert [view.node_id for view in pool.observe(RUN)] == ["n001"]
    ended(bench, pool, "n001")
    pool.sweep(RUN)
    assert (bench.there(), bench.there(OTHER_RUN)) == (set(), {"n001"})
    until(bench, lambda: other.end(OTHER_RUN, "n001"))


@pytest.mark.needs("fall silent")
def test_a_pool_that_does_not_answer_has_lost_nothing(bench: Bench, pool: Provisioner) -> None:
    running(bench, pool, "n001", "n002")
    newcomer = bench.open()
    with bench.silent():
        for one in (pool, newcomer):
            for _ in range(5):
                try:
                    states = {view.node_id: view.state for view in one.observe(RUN, ["n001"])}
                except TransientError:
                    continue
                assert states in ({"n001": s, "n002": s} for s in ("asked", "running"))
    until(bench, lambda: view_of(newcomer, "n001").state == "running")
    assert bench.there() == {"n001", "n002"}


@pytest.mark.needs("fall silent")
def test_a_part_that_does_not_answer_when_a_controller_takes_over_has_lost_nothing(
    bench: Bench, pool: Provisioner
) -> None:
    running(bench, pool, "n001", "n002")
    newcomer = bench.open()
    with bench.silent_about("n001"), suppress(TransientError):
        assert view_of(newcomer, "n001").state in {"asked", "running"}
    until(bench, partial(is_, "running", newcomer, "n001"))


@pytest.mark.needs("fall silent in part")
def test_a_part_that_does_not_answer_holds_up_nothing_elsewhere(
    bench: Bench, pool: Provisioner
) -> None:
    running(bench, pool, "n001", "n002")
    with bench.silent_about("n001"):
        ended(bench, pool, "n002")
        until(bench, partial(is_, "gone", pool, "n002"))
        assert is_("running", pool, "n001")
    assert bench.there() == {"n001"}


@pytest.mark.needs("fall silent in part")
def test_a_part_that_does_not_answer_when_its_node_ends_gives_it_back_later(
    bench: Bench, pool: Provisioner
) -> None:
    running(bench, pool, "n001", "n002")
    with bench.silent_about("n001"):
        for _ in range(5):
            with suppress(TransientError):
                pool.end(RUN, "n001")
            bench.wait()

    def over() -> bool:
        gone = pool.end(RUN, "n001") and is_("gone", pool, "n001")
        return gone and bench.there() == {"n002"}

    until(bench, over)
    assert is_("running", pool, "n002")


def settled(pool: Provisioner) -> bool:
    return view_of(pool, "n002").state != "asked"


def over(bench: Bench, number: int, pool: Provisioner) -> bool:
    """Whether a set-up met the fault of its call, or came to its end with fewer calls."""
    return bench.calls.made >= number or settled(pool)


def swept(bench: Bench, pool: Provisioner) -> bool:
    return pool.sweep(RUN) == () and bench.there() == set()


def steps(bench: Bench) -> int:
    """Return how many calls it takes to set a node up."""
    pool, before = bench.open(), bench.calls.made
    running(bench, pool, "n002")
    made = bench.calls.made - before
    ended(bench, pool, "n002")
    return made


@pytest.mark.parametrize("after", [False, True], ids=["undone", "unheard"])
def test_a_failure_at_any_step_of_a_set_up_leaves_nothing(bench: Bench, after: bool) -> None:
    """An error may come before anything happened, or in place of an answer."""
    made = steps(bench)
    assert made > 0
    for number in range(1, made + 1):
        pool = bench.open()
        bench.calls.fail(number, bench.trouble("boom"), after=after)
        try:
            pool.launch(bench.request("n002"))
            until(bench, partial(settled, pool))
            if view_of(pool, "n002").state == "refused":
                assert bench.there() == set(), number
        except (TransientError, SetupError):
            pass  # as the port allows; the controller ends what is lost
        ended(bench, pool, "n002")
        until(bench, lambda: bench.there() == set())
        assert pool.sweep(RUN) == (), number


@pytest.mark.parametrize("after", [False, True], ids=["undone", "done"])
def test_what_a_controller_leaves_that_dies_at_any_step_is_swept(bench: Bench, after: bool) -> None:
    for number in range(1, steps(bench) + 1):
        bench.calls.fail(number, Killed(), after=after)
        pool = bench.open()
        with suppress(Killed):
            pool.launch(bench.request("n002"))
        until(bench, partial(over, bench, number, pool))
        until(bench, partial(swept, bench, bench.open()))
