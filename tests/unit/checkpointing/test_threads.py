"""Several at once: in order, first error, and no waiting for what hangs."""

import threading

import pytest

from burst.checkpointing.threads import for_each
from burst.errors import StorageError


def test_results_come_in_order() -> None:
    assert for_each(range(20), lambda n: n * n, workers=3) == tuple(n * n for n in range(20))


def test_nothing_to_do() -> None:
    assert for_each([], lambda n: n, workers=3) == ()


def test_the_first_error_is_raised_and_the_rest_not_begun() -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        raise ValueError(str(number))

    with pytest.raises(ValueError, match="0"):
        for_each(range(100), work, workers=1)
    assert len(begun) < 100


def test_what_had_begun_is_over_when_the_error_comes() -> None:
    """Otherwise it would go on writing into a folder that the next try uses."""
    failed, finished = threading.Event(), threading.Event()

    def work(name: str) -> None:
        if name == "fails":
            failed.set()
            raise ValueError(name)
        failed.wait()
        finished.set()

    with pytest.raises(ValueError, match="fails"):
        for_each(["slow", "fails"], work, workers=2)
    assert finished.is_set()


def test_a_hang_is_cut_by_the_deadline_and_named() -> None:
    """C85, step 15: the stuck thread is left behind."""
    never = threading.Event()
    with pytest.raises(StorageError, match=r"^p/__1_0.distcp: not through after 0\.01 s$"):
        for_each(["p/__1_0.distcp"], lambda _: never.wait(), workers=2, deadline_s=0.01)
    never.set()
