"""When a pool or a store stays away, a person's Ctrl-C still ends the controller."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from fake_world import Killed, World, check_books

from burst.controller.loop import STORE_LIMIT_S
from burst.cost.state import Limits
from burst.errors import StorageError, TransientError
from some_run import CHOICE, RUN

LIMITS = Limits(nodes=2, least_nodes=1, choices=(CHOICE,))


class Hung(BaseException):
    """The controller is still at work long after it had to end."""


def a_world(steps: int = 300) -> World:
    world = World(steps=steps)
    world.outlives = True
    world.run = replace(RUN, nodes=2, head_apart=False)
    return world


def hang_at(world: World, seconds: float) -> None:
    def hung() -> None:
        raise Hung

    world.when(seconds, hung)


class Away:
    """A store out of reach from a moment on."""

    def __init__(self, world: World, since: float) -> None:
        self._world, self._since = world, since

    def __getattr__(self, name: str) -> object:
        def call(*given: object, **named: object) -> object:
            if self._world.seconds >= self._since:
                raise TransientError("no route to the bucket")
            return getattr(self._world.store, name)(*given, **named)

        return call if callable(getattr(self._world.store, name)) else None


def test_a_second_ctrl_c_ends_a_controller_whose_pool_does_not_answer() -> None:
    world = a_world()
    world.cloud.faults.throttled = 1.0
    controller = world.controller(LIMITS)
    world.when(20, lambda: controller.ask_stop("you (ctrl-c)", now=False))
    world.when(30, lambda: controller.ask_stop("you (ctrl-c)", now=True))
    hang_at(world, 600)
    with pytest.raises(TransientError):
        controller.run()


def test_a_second_ctrl_c_ends_a_controller_whose_store_stays_away() -> None:
    world = a_world()
    controller = world.controller(LIMITS, store=Away(world, 20))
    world.when(40, lambda: controller.ask_stop("you (ctrl-c)", now=False))
    world.when(60, lambda: controller.ask_stop("you (ctrl-c)", now=True))
    hang_at(world, 600)
    with pytest.raises(StorageError):
        controller.run()


def test_a_controller_whose_store_stays_away_gives_up_in_the_end() -> None:
    world = a_world()
    world.when(30, lambda: world.lose(world.nodes()[0]))
    controller = world.controller(LIMITS, store=Away(world, 20))
    hang_at(world, 3 * STORE_LIMIT_S)
    with pytest.raises(StorageError):
        controller.run()


class Sleeper(World):
    """A laptop that was closed for a while: only its wall clock went on."""

    slept = timedelta()

    def now(self) -> datetime:
        return super().now() + self.slept

    def elapsed(self) -> float:
        return self.monotonic() + self.slept.total_seconds()


def test_a_deadline_counts_the_hours_that_the_laptop_slept() -> None:
    world = Sleeper(steps=900)
    world.outlives = True
    world.run = replace(RUN, nodes=2, head_apart=False)
    limits = replace(LIMITS, deadline_s=600.0)
    world.when(60, lambda: setattr(world, "slept", timedelta(hours=3)))
    done = world.controller(limits).run()
    assert done.reason == "deadline"
    assert world.seconds < 200


def test_a_failure_that_was_counted_is_not_counted_again_by_the_next_controller() -> None:
    world = a_world(steps=40)
    limits = replace(LIMITS, max_failures=1)

    def fail() -> None:
        world.end("failed", "ValueError: bad batch")
        world.over |= world.drivers  # until Ray starts the workers again, nothing trains

    world.when(15, fail)
    world.when(25, world.over.clear)
    world.when(25, lambda: world.begin(1))

    def die() -> None:
        raise Killed

    world.when(20, die)
    with pytest.raises(Killed):
        world.controller(limits).run()
    done = world.controller(limits).run()
    assert (done.reason, done.step) == ("finished", 40), done


def test_workers_that_an_earlier_controller_told_to_stop_go_on_when_one_takes_over() -> None:
    """`burst resume` means the run to go on."""
    world = a_world(steps=60)
    first = world.controller(LIMITS)
    world.when(20, lambda: first.ask_stop("you (ctrl-c)", now=False))

    def die() -> None:
        raise Killed

    world.when(20.5, die)
    with pytest.raises(Killed):
        first.run()
    world.sleep(3)  # the workers save and stop
    done = world.controller(LIMITS).run()
    assert (done.reason, done.step) == ("finished", 60), done
    check_books(world)
