"""An agent takes in orphans, but leaves alone the children whose exit codes it asks for."""

from __future__ import annotations

import time
from pathlib import Path

from burst.agent.deadman import DeadMan
from burst.agent.node import Agent, Place
from burst.agent.ray_node import Child, start
from burst.agent.set_up import SetUp
from burst.processes import reap_orphans
from burst.storage.memory import MemoryStore


class Started(SetUp):
    """A set-up under way."""

    def __init__(self, folder: Path) -> None:
        super().__init__(MemoryStore(), folder, index=0)
        self._child: Child | None = start(["sh", "-c", "exit 7"], {}, folder / "setup.log")


def test_a_set_up_that_failed_is_not_taken_for_one_that_worked(tmp_path: Path) -> None:
    """Who waits for a child first has its exit code; the other is told 0."""
    store, set_up = MemoryStore(), Started(tmp_path)
    place = Place(
        run_id="r", node_id="n001", ip="127.0.0.1", index=0, scratch=tmp_path, poll_s=1, beat_s=1
    )
    agent = Agent(
        place=place, store=store, deadman=DeadMan(store, ttl_s=60, watch_fd=None), set_up=set_up
    )
    end = time.monotonic() + 5
    while set_up.error is None:
        reap_orphans([child.process.pid for child in agent._children()])
        set_up.step()
        assert not set_up.done
        assert time.monotonic() < end
    assert "exit code 7" in set_up.error
