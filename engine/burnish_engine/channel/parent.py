"""End this process together with its parent, however the parent ends.

The parent holds the other end of standard input and writes nothing there: the system closes it when the parent ends.
"""

from __future__ import annotations

import os
import threading

from burnish_engine.channel.stdio import take_input
from burnish_engine.contract.errors import ExitCode


def end_with_parent() -> None:
    """Watch standard input in a thread that ends this process when the parent closes it or ends.

    Everything else finds standard input empty from here on.
    """
    threading.Thread(target=_end_with, args=(take_input(),), name="parent", daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when the other end of a pipe is closed."""
    try:
        while os.read(parent, 64):
            pass
    except OSError:  # Windows calls the closed pipe broken
        pass
    os._exit(ExitCode.STOPPED)
