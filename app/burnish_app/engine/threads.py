"""Start the threads in which Qt objects read and parse, so that none of them is destroyed there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject

_running: list[tuple[threading.Thread, QObject]] = []


def start_thread(
    owner: QObject, work: Callable[..., None], *args: Any, name: str, daemon: bool = True
) -> threading.Thread:
    """Start a thread that works for a Qt object, and keep the object until the thread is over.

    A thread that dropped the last reference would run Qt's destructor, which holds one of Qt's locks while it waits for
    Python's. The window's thread can hold Python's and wait for Qt's: then neither continues.

    Args:
        owner: object whose signals the thread emits. Called in its own thread.
        work: function that the thread runs, such as a method of the owner.
        args: arguments of the function.
        name: name of the thread.
        daemon: whether the program may end before the thread does.

    Returns:
        The thread, started.
    """
    _running[:] = [(thread, kept) for thread, kept in _running if thread.is_alive()]
    thread = threading.Thread(target=work, args=args, name=name, daemon=daemon)
    _running.append((thread, owner))
    thread.start()
    return thread
