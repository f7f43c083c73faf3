"""Run a rank's module in a process that ends with the leader, from its first moment on.

Until a rank has joined, no connection tells it that the leader is gone, and loading its libraries takes a while. So the
leader starts this program (`python -m`), which watches before it imports anything large. The leader holds the other end
of standard input and writes nothing there: the system closes it when the leader ends, however that happens.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading

from burnish_engine.contract.errors import ExitCode


def main(module: str) -> None:
    """Watch the leader, and run a module as a program.

    Args:
        module: dotted name of the module.
    """
    leader = _take_input()
    threading.Thread(target=_end_with, args=(leader,), name="leader", daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _take_input() -> int:
    """Return a private copy of standard input, and leave an empty one to everything else.

    On Windows, libraries that ask for the kind of standard input would wait as long as somebody reads it.
    """
    private, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return private


def _end_with(leader: int) -> None:
    """End this process when the other end of a pipe is closed.

    Args:
        leader: file descriptor of the end to read from.
    """
    try:
        while os.read(leader, 1):
            pass
    except OSError:  # Windows calls the closed pipe broken
        pass
    os._exit(ExitCode.STOPPED)


if __name__ == "__main__":
    main(sys.argv[1])
