"""Ctrl-C, a termination and a closed terminal: one way to stop for all commands.

By default each of them raises KeyboardInterrupt in the main thread, and the command ends with "Stopped." and exit code
20. Work that can save first takes them over for its time: training (`train.commands`), and whatever runs inside
`noticed`. Imports nothing heavy: it has to be there before the commands are.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

from burnish_engine.contract.errors import ExitCode

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name))
_CLOSING_EVENTS = {2, 5, 6}  # Windows: CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT
_LONGEST_SAVE_S = 60.0  # Windows itself waits about 5 s for a closed console, 20 s at a shutdown


class StopSignals:
    """The handler of signals to stop, and whether one has come.

    Attributes:
        asked: whether one has asked to stop by raising KeyboardInterrupt.
        importing: while true, a signal ends the process at once. An exception that is raised inside an import may be
            swallowed there, or be turned into another; nothing that would have to be saved exists yet.
    """

    def __init__(self) -> None:
        self.asked = False
        self.importing = False

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self.asked = True
        if self.importing:
            self.say()
            os._exit(ExitCode.STOPPED)
        raise KeyboardInterrupt

    def say(self) -> None:
        """Say on standard error that the command was stopped."""
        if sys.stderr is not None:  # on Windows a program without a console may have none
            with suppress(OSError, ValueError):
                sys.stderr.write("burnish: Stopped.\n")
                sys.stderr.flush()


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Inside, every signal to stop raises KeyboardInterrupt; `nohup` is respected. Only in the main thread."""
    stop = StopSignals()
    with _handled_by(stop.interrupt), _closed_console():
        yield stop


@contextmanager
def noticed(asked: threading.Event) -> Iterator[None]:
    """Inside, a signal to stop only sets the event; the work looks at it and ends cleanly.

    Args:
        asked: set by the first signal.
    """
    with _handled_by(lambda _number, _frame: asked.set()):
        yield


@contextmanager
def _handled_by(handler: signal._HANDLER) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for number in SIGNALS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def _closed_console() -> Iterator[None]:
    """Inside, on Windows, closing the console, logging off and shutting down count as a signal to stop.

    Windows ends the process as soon as its handler returns, so the handler, which runs in a thread of its own, waits
    until the work is done (https://learn.microsoft.com/windows/console/handlerroutine).
    """
    done = threading.Event()
    library = _kernel32()
    if library is not None:
        handle = library.handler(lambda event: _closing(event, done))
        library.set_handler(handle, 1)
    try:
        yield
    finally:
        if library is not None:
            library.set_handler(handle, 0)
        done.set()


def _closing(event: int, done: threading.Event) -> int:
    """Answer a console event; returns whether nobody else has to."""
    if event not in _CLOSING_EVENTS:
        return 0
    _thread.interrupt_main(SIGNALS[-1])
    done.wait(_LONGEST_SAVE_S)
    return 1


class _Console(NamedTuple):
    """Windows' functions on console events.

    Attributes:
        handler: makes a C function of a Python one.
        set_handler: installs it (1) or takes it away (0).
    """

    handler: Callable[[Callable[[int], int]], Any]
    set_handler: Callable[[Any, int], int]


def _kernel32() -> _Console | None:
    if sys.platform == "win32":
        return _Console(ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint), ctypes.windll.kernel32.SetConsoleCtrlHandler)
    return None
