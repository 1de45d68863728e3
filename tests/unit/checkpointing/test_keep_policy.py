"""Which checkpoints go, and above all which never do."""

from hypothesis import given
from hypothesis import strategies as st

from burst.checkpointing.keep_policy import to_delete
from burst.checkpointing.manifest import CheckpointRef

refs = st.builds(CheckpointRef, attempt=st.integers(1, 4), step=st.integers(0, 20))
sets = st.frozensets(refs, max_size=12)


def steps(*numbers: int, attempt: int = 1) -> frozenset[CheckpointRef]:
    return frozenset(CheckpointRef(attempt, number) for number in numbers)


def left(
    complete: frozenset[CheckpointRef], keep: int, pinned: frozenset[CheckpointRef] = frozenset()
) -> frozenset[CheckpointRef]:
    gone = to_delete(complete=complete, torn=(), keep=keep, pinned=pinned, live_attempt=1)
    return complete - set(gone)


def test_the_newest_stay_by_number() -> None:
    """C29: 10000 is newer than 9900, whatever their names sort like."""
    assert left(steps(200, 400, 600, 800, 1000), keep=3) == steps(600, 800, 1000)
    thousands = steps(*range(9000, 10001, 100))
    assert left(thousands, keep=10) == thousands - steps(9000)


def test_torn_ones_never_push_out_the_good() -> None:
    """C31: six saves, three of them torn, the best pinned."""
    best, complete, torn = steps(100), steps(), steps()
    expected = {
        100: steps(100),
        200: steps(100, 200),
        300: steps(100, 200),
        400: steps(100, 200),
        500: steps(100, 200, 500),
        600: steps(100, 200, 500),
    }
    for step, after in expected.items():
        if step in {300, 400, 600}:
            torn |= steps(step)
        else:
            complete |= steps(step)
        gone = set(to_delete(complete=complete, torn=torn, keep=2, pinned=best, live_attempt=1))
        complete, torn = complete - gone, torn - gone
        assert complete == after
        assert torn == {400: steps(300, 400), 300: steps(300), 600: steps(600)}.get(step, steps())


def test_two_stay_even_if_one_is_asked_for() -> None:
    assert left(steps(1, 2, 3), keep=1) == steps(2, 3)


def test_a_torn_one_of_a_live_writer_stays() -> None:
    """C31: attempt 2 may still be writing step 6, newer than anything complete of its own."""
    torn = steps(5) | steps(6, attempt=2)
    gone = to_delete(complete=steps(7), torn=torn, keep=2, pinned=(), live_attempt=2)
    assert gone == tuple(steps(5))


def test_left_overs_of_an_earlier_attempt_go() -> None:
    """C28."""
    gone = to_delete(complete=steps(4, attempt=2), torn=steps(9), keep=2, pinned=(), live_attempt=2)
    assert gone == tuple(steps(9))


@given(complete=sets, torn=sets, keep=st.integers(0, 5), pinned=sets, live=st.integers(1, 4))
def test_what_never_happens(
    complete: frozenset[CheckpointRef],
    torn: frozenset[CheckpointRef],
    keep: int,
    pinned: frozenset[CheckpointRef],
    live: int,
) -> None:
    torn -= complete
    gone = set(to_delete(complete=complete, torn=torn, keep=keep, pinned=pinned, live_attempt=live))
    assert gone <= complete | torn
    assert not gone & pinned
    stays = complete - gone
    assert len(stays) >= min(len(complete), max(keep, 2))
    assert all(ref > lost for lost in gone & complete for ref in stays - pinned)
    if complete:
        assert max(complete) in stays
    for ref in gone & torn:
        assert ref < max(complete)
        assert ref.attempt < live or ref.attempt == max(complete).attempt
