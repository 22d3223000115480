"""Runs a command in this process's place that ends when its parent does, also when that is killed.

It is started as a file of its own: ``python -I -S with_parent.py PARENT COMMAND...``. On Linux the
kernel kills the process (prctl(2), PR_SET_PDEATHSIG); elsewhere nothing does.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    """Bind this process to its parent, by its id, and become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have ended before the kernel was asked.
    if os.getppid() == int(parent):
        os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
