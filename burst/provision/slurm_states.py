"""When a node of a Slurm cluster can take a job, by the state that sinfo prints of it.

sinfo(1), STATE and "NODE STATE CODES", of Slurm 20.11 to 24.05: a word, mostly shortened, then one
character for each thing that goes on with the node. What a later version may print besides can
take none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum


class When(IntEnum):
    """When a node can take a job; of two things that are so, the lesser decides."""

    NEVER = 0  # unless somebody mends it
    LATER = 1  # by itself: others' jobs or a reservation end, it is switched on
    NOW = 2  # what of it is free


_WORDS: Mapping[When, str] = {
    When.NOW: "idle mix mixed",
    # in use; about to be used, reserved or its state asked for; on its way to another power state
    When.LATER: (
        "alloc allocated comp completing npc perfctrs "
        "plnd planned resv reserved block blocked unk unknown "
        "pow_up powering_up pow_dn power_down powering_down powered_down "
        "boot reboot reboot_requested reboot_issued"
    ),
    # its operator has it, or it is not what slurm.conf says
    When.NEVER: (
        "down drain drained drng draining fail failg failing maint maintenance "
        "futr future inval invalid err error"
    ),
}
_BY_WORD = {word: when for when, words in _WORDS.items() for word in words.split()}
_MARKS: Mapping[str, When] = {
    "*": When.NEVER,  # does not respond
    "$": When.NEVER,  # in a reservation for maintenance
    "~": When.LATER,  # switched off; Slurm switches it on for a job
    "#": When.LATER,  # being switched on, or configured
    "!": When.LATER,  # to be switched off
    "%": When.LATER,  # being switched off
    "@": When.LATER,  # to be rebooted
    "^": When.LATER,  # being rebooted
    "-": When.LATER,  # planned for a job of a higher priority
    "+": When.NOW,  # with jobs that end, besides those that run
}


def when(state: str) -> When:
    """Return when a node of this state can take a job.

    >>> when("idle"), when("idle~"), when("mix-"), when("alloc*")
    (<When.NOW: 2>, <When.LATER: 1>, <When.LATER: 1>, <When.NEVER: 0>)
    """
    match = re.fullmatch(r"(\w+)([^\w\s]*)", state.lower())
    if match is None:
        return When.NEVER
    marks = (_MARKS.get(mark, When.NEVER) for mark in match[2])
    return min(_BY_WORD.get(match[1], When.NEVER), *marks, When.NOW)
