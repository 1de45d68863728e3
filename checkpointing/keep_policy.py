"""Which checkpoints may go. Pure: names and numbers in, names out; file times play no part."""

from __future__ import annotations

from collections.abc import Collection

from burst.checkpointing.manifest import CheckpointRef

KEEP_AT_LEAST = 2  # were the newest damaged unseen, one to step back to is left


def to_delete(
    *,
    complete: Collection[CheckpointRef],
    torn: Collection[CheckpointRef],
    keep: int,
    pinned: Collection[CheckpointRef],
    live_attempt: int,
) -> tuple[CheckpointRef, ...]:
    """Return what to delete, oldest first.

    Kept are the `keep` (at least two) newest complete checkpoints that are not pinned, and the
    pinned ones: a run's best, or the one that was verified when it resumed. Torn ones count for
    nothing; one goes once a newer complete one exists and its writers are known to be gone.
    """
    loose = sorted(set(complete) - set(pinned))
    old = loose[: max(0, len(loose) - max(keep, KEEP_AT_LEAST))]
    newest = max(complete, default=None)
    done = [
        ref for ref in set(torn) if newest and ref < newest and _over(ref, newest, live_attempt)
    ]
    return tuple(sorted({*old, *done} - set(pinned)))


def _over(torn: CheckpointRef, newest: CheckpointRef, live_attempt: int) -> bool:
    """Whether nobody writes this one any more.

    An earlier attempt is dead. Within one attempt all ranks finish or give up a save together
    before the next begins, so a later one that is complete proves an earlier one over.
    """
    return torn.attempt < live_attempt or torn.attempt == newest.attempt
