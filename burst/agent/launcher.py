"""`python -m burst.agent.launcher PARENT COMMAND ARG...`: a command that dies with its parent.

Asks the kernel to SIGKILL this process when its parent ends, then becomes the command. The
request survives exec, and not fork: it holds for the command itself, not for its children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the command, unless the parent is gone already."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(137)
    os.execvp(command[0], command)  # noqa: S606 - that is what it is for


if __name__ == "__main__":
    main()
