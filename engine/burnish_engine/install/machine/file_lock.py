"""Locks a file between processes. The system drops the lock when its holder ends, however that happens."""

from __future__ import annotations

import sys
from typing import BinaryIO


def try_lock(handle: BinaryIO) -> bool:
    """Lock an open file; returns False where another process holds it."""
    if sys.platform == "win32":
        import msvcrt

        try:
            handle.seek(0)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # some network file systems know no locks; better to continue than to refuse them
    return True
