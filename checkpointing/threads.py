"""Doing the same to several things at once, up to a deadline."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from burst.errors import StorageError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Done(Generic[Result]):
    index: int
    results: tuple[Result, ...] = ()
    error: BaseException | None = None


def for_each(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    workers: int,
    deadline_s: float | None = None,
) -> tuple[Result, ...]:
    """Return `work(item)` of every item, in order, done in up to `workers` threads.

    Raises the first error seen, once what had begun is over; the rest is never begun. StorageError
    names an item that is not through after `deadline_s`. Then a thread that hangs is left behind:
    it is a daemon, so that it holds up neither the caller nor the end of the process.
    """
    end = math.inf if deadline_s is None else time.monotonic() + deadline_s
    waiting: queue.SimpleQueue[tuple[int, Item]] = queue.SimpleQueue()
    done: queue.SimpleQueue[_Done[Result]] = queue.SimpleQueue()
    for numbered in enumerate(items):
        waiting.put(numbered)
    stop = threading.Event()
    threads = [
        threading.Thread(target=_work, args=(waiting, done, work, stop), daemon=True)
        for _ in range(min(workers, len(items)))
    ]
    for thread in threads:
        thread.start()
    try:
        return _collect(items, done, end, deadline_s)
    finally:
        stop.set()
        for thread in threads:
            thread.join(_left(end))


def _work(
    waiting: queue.SimpleQueue[tuple[int, Item]],
    done: queue.SimpleQueue[_Done[Result]],
    work: Callable[[Item], Result],
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            index, item = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            done.put(_Done(index, (work(item),)))
        except BaseException as error:  # noqa: BLE001 - a thread's entry; raised by the caller
            done.put(_Done(index, error=error))
            stop.set()


def _collect(
    items: Sequence[Item],
    done: queue.SimpleQueue[_Done[Result]],
    end: float,
    deadline_s: float | None,
) -> tuple[Result, ...]:
    results: dict[int, Result] = {}
    while len(results) < len(items):
        try:
            one = done.get(timeout=_left(end))
        except queue.Empty:
            late = next(item for i, item in enumerate(items) if i not in results)
            raise StorageError(f"{late}: not through after {deadline_s:g} s") from None
        if one.error is not None:
            raise one.error
        results[one.index] = one.results[0]
    return tuple(results[i] for i in range(len(items)))


def _left(end: float) -> float | None:
    """Return the seconds left, None for no end."""
    return None if end == math.inf else max(0.0, end - time.monotonic())
