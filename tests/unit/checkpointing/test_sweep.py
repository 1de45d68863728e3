"""Deleting what is not kept, whatever goes wrong meanwhile."""

import logging
from collections.abc import Callable
from typing import Any

from burst.checkpointing.commit import list_checkpoints
from burst.checkpointing.manifest import CheckpointRef, Manifest
from burst.checkpointing.sweep import apply_keep
from burst.errors import TransientError

Commit = Callable[..., Manifest]
log = logging.getLogger("burst.test")


def left(store: Any) -> list[tuple[int, bool]]:
    return [(found.ref.step, found.complete) for found in list_checkpoints(store)]


def test_old_ones_go_with_all_their_files(store: Any, commit: Commit) -> None:
    """C29."""
    for step in (200, 400, 600, 800, 1000):
        commit(step)
    gone = apply_keep(store, keep=3, live_attempt=1, log=log)
    assert [ref.step for ref in gone] == [200, 400]
    assert left(store) == [(600, True), (800, True), (1000, True)]


def test_a_failed_delete_is_told_and_tried_again(store: Any, commit: Commit, caplog: Any) -> None:
    """C29: it stops neither training nor the other deletes."""
    for step in (1, 2, 3, 4):
        commit(step)
    store.faults["delete"] = lambda k: TransientError("503") if "01-a" in k else None
    assert [ref.step for ref in apply_keep(store, keep=2, live_attempt=1, log=log)] == [2]
    assert "step-00000001-a0001 not deleted, left for the next save: 503" in caplog.text
    store.faults.clear()
    assert [ref.step for ref in apply_keep(store, keep=2, live_attempt=1, log=log)] == [1]


def test_a_crash_between_leaves_no_half_checkpoint_that_counts(store: Any, commit: Commit) -> None:
    """The manifest goes before the files, also before those that are listed ahead of it."""
    for step in (1, 2, 3):
        commit(step, a=b"first", z=b"last")
    store.faults["delete"] = lambda k: TransientError("503") if "01-a0001/a" in k else None
    apply_keep(store, keep=2, live_attempt=1, log=log)
    assert left(store) == [(1, False), (2, True), (3, True)]
    store.faults.clear()
    apply_keep(store, keep=2, live_attempt=1, log=log)
    assert left(store) == [(2, True), (3, True)]


def test_the_one_resumed_from_stays(store: Any, commit: Commit) -> None:
    for step in (1, 2, 3, 4):
        commit(step)
    apply_keep(store, keep=2, live_attempt=1, log=log, verified=CheckpointRef(1, 1))
    assert left(store) == [(1, True), (3, True), (4, True)]


def test_a_store_that_cannot_list_stops_nothing(store: Any, monkeypatch: Any, caplog: Any) -> None:
    def keys(_prefix: str = "") -> Any:
        raise TransientError("503")

    monkeypatch.setattr(store, "keys", keys)
    assert apply_keep(store, keep=2, live_attempt=1, log=log) == ()
    assert "left for the next save" in caplog.text
