"""Handle Ctrl-C, a termination and a closed terminal in one way for all commands.

By default each of them raises KeyboardInterrupt in the main thread, and the command ends with "Stopped." and exit code
20. Work that can save first handles them itself meanwhile: training (`train.lifecycle.commands`), and everything inside
`set_on_stop`. Imports nothing heavy: it is loaded before the commands.
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
_AGAIN_S = 0.05  # until a finalizer that swallowed the interrupt has ended
_LONGEST_SAVE_S = 60.0  # Windows itself waits about 5 s for a closed console, 20 s at a shutdown


class StopSignals:
    """Handler of stop signals, which records whether one has come.

    Attributes:
        asked: whether a signal has raised KeyboardInterrupt.
        importing: while true, a signal ends the process at once. An import may swallow an exception raised inside it,
            or turn it into another; nothing needs saving yet.
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
    """Make every stop signal raise KeyboardInterrupt inside the context; respects `nohup`. Only in the main thread."""
    stop = StopSignals()
    with _handled_by(stop.interrupt), _raised_again(), _closed_console():
        yield stop


@contextmanager
def set_on_stop(asked: threading.Event) -> Iterator[None]:
    """Make a stop signal only set the event inside the context, so that the work can end cleanly.

    Args:
        asked: event that the first signal sets.
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
def _raised_again() -> Iterator[None]:
    """Raise KeyboardInterrupt again, inside the context, where a finalizer or a callback of a C library swallowed it.

    Python cannot pass an exception on from there: it prints it and continues.
    """
    before = sys.unraisablehook

    def heed(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is KeyboardInterrupt:  # not at once, which would be within this function
            threading.Timer(_AGAIN_S, _interrupt_main_thread).start()
        else:
            before(lost)

    sys.unraisablehook = heed
    try:
        yield
    finally:
        sys.unraisablehook = before


def _interrupt_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):  # a real signal, which ends a wait in the main thread
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


@contextmanager
def _closed_console() -> Iterator[None]:
    """Treat closing the console, logging off and shutting down as stop signals on Windows, inside the context.

    Windows ends the process as soon as its handler returns, so the handler, which runs in its own thread, waits until
    the work is done (https://learn.microsoft.com/windows/console/handlerroutine).
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
    """Handle a console event; return whether it needs no further handler."""
    if event not in _CLOSING_EVENTS:
        return 0
    _thread.interrupt_main(SIGNALS[-1])
    done.wait(_LONGEST_SAVE_S)
    return 1


class _Console(NamedTuple):
    """Windows' functions for console events.

    Attributes:
        handler: function that makes a C function from a Python one.
        set_handler: function that installs a handler (1) or removes it (0).
    """

    handler: Callable[[Callable[[int], int]], Any]
    set_handler: Callable[[Any, int], int]


def _kernel32() -> _Console | None:
    if sys.platform == "win32":
        return _Console(ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint), ctypes.windll.kernel32.SetConsoleCtrlHandler)
    return None
