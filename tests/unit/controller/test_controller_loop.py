"""The loop against a fake pool and a scripted training, with a clock that only moves when asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pytest
from fake_world import LIMITS, Deadly, Killed, World

from burst.controller.account import legs
from burst.controller.book import entries, read_history
from burst.cost.state import Done
from burst.errors import OwnedError
from burst.provision.fake import Faults
from burst.storage.journal import Journal
from some_run import RUN


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    assert not made.nodes(), "nodes left over"
    spans = read_history(Journal(made.store)).spans
    assert sorted(s.node_id for s in spans) == sorted(made.ever()), "launched but not written"
    assert all(span.ended for span in spans), "a node without an end"


def test_an_undisturbed_run_finishes_and_gives_every_node_back(world: World) -> None:
    done = world.controller().run()
    assert done.reason == "finished"
    assert done.step == 10
    assert world.ever() == ["n001", "n002", "n003"]


def test_a_lost_node_is_replaced_while_the_others_stay(world: World) -> None:
    world.when(5, lambda: world.lose("n003"))
    done = world.controller().run()
    assert done.reason == "finished"
    assert done.preemptions == 1
    assert world.ever() == ["n001", "n002", "n003", "n004"]


def test_the_word_of_a_node_s_cloud_is_a_notice_though_its_agent_hears_nothing(
    world: World,
) -> None:
    """The run saves, and a successor is there, before the machine is taken."""
    world.when(3.5, lambda: world.cloud.take("r-abcdef/n003", 4.0))
    before: list[tuple[int, list[str]]] = []
    world.when(7.25, lambda: before.append((world.saved, world.nodes())))
    done = world.controller().run()
    assert done.reason == "finished"
    ((saved, nodes),) = before
    assert saved > 0
    assert nodes == ["n001", "n002", "n003", "n004"]
    events = (entry.get("event") or {} for _, entry in entries(Journal(world.store)))
    (told,) = (event for event in events if event.get("type") == "NoticeGiven")
    assert (told["node_id"], told["deadline_s"]) == ("n003", 4.0)


def test_a_lost_head_starts_over_from_the_last_checkpoint(world: World) -> None:
    world.when(8, lambda: world.lose("n001"))
    done = world.controller().run()
    assert done.reason == "finished"
    assert world.attempt == 2
    assert world.ever() == ["n001", "n002", "n003", "n004"]


def test_the_users_error_ends_the_run(world: World) -> None:
    world.when(5.5, lambda: world.end("failed", "ValueError: no"))
    controller = world.controller()
    done = controller.run()
    assert (done.reason, done.detail) == ("failed", "ValueError: no")
    assert controller.error_type == "TrainingError"


def test_a_stop_is_saved_and_resume_goes_on_from_there(world: World) -> None:
    first = world.controller()
    world.when(5.5, lambda: first.ask_stop("you"))
    done = first.run()
    assert done.reason == "stopped"
    assert done.saved_step == done.step == world.saved > 0
    saved = world.saved
    again = world.controller().run()
    assert again.reason == "finished"
    assert world.attempt == 2
    assert again.step == 10
    assert saved < 10


def test_a_launch_that_fails_for_now_is_tried_again(world: World) -> None:
    world.cloud.faults = Faults(throttled=0.3)
    done = world.controller().run()
    assert done.reason == "finished"


def test_a_second_controller_stops_the_first_at_its_next_word(world: World) -> None:
    first = world.controller()
    second: list[Done] = []

    def take_over() -> None:
        second.append(world.controller().run())

    world.when(6.5, take_over)
    world.when(6.75, lambda: None)
    with pytest.raises(OwnedError, match="another controller"):
        first.run()
    assert second[0].reason == "finished"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 14))
def test_a_controller_killed_at_any_journal_write_is_followed_by_one_that_ends_the_run(
    world: World, at: int, *, after: bool
) -> None:
    world.when(6, lambda: world.lose("n003"))
    deadly = Deadly(world.store, at, after=after)
    try:
        done = world.controller(store=deadly).run()
    except Killed:
        done = world.controller().run()
    assert done.reason == "finished"
    assert done.step == 10


def test_the_ledger_counts_each_node_from_launch_to_end(world: World) -> None:
    world.when(5, lambda: world.lose("n003"))
    world.controller().run()
    spans = read_history(Journal(world.store)).spans
    paid = legs(spans, RUN)
    assert [leg.node_id for leg in paid] == ["n002", "n003", "n004"]
    assert all(leg.prices[0].quote.usd_per_hour == Decimal("3.60") for leg in paid)
    lost = next(span for span in spans if span.node_id == "n003")
    assert lost.note == "lost"
    assert lost.ended is not None
    assert (lost.ended - lost.launched).total_seconds() == pytest.approx(5, abs=0.6)


def test_spending_stops_at_the_budget(world: World) -> None:
    limits = replace(LIMITS, budget_usd=Decimal("0.012"))
    done = world.controller(limits).run()
    assert done.reason == "budget"
    assert done.saved_step == done.step
