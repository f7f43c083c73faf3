"""Entry point of `burnish`: Ctrl-C and a closed terminal end it with a message from its first moment on.

It imports nothing heavy: the command, with all it needs, is imported after the signal handlers are installed.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

_STOPPED = 20  # `ExitCode.STOPPED`, which is not imported yet


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: arguments without the program's name; by default those of the process.

    Returns:
        The exit code (see `contract.errors`); it is also what the process exits with when run as a script.
    """
    from burnish_engine.cli.stop_signals import stop_signals

    with stop_signals() as stop:
        try:
            stop.importing = True
            from burnish_engine.cli.command_line import import_command, run_command

            import_command(arguments)
            stop.importing = False
            return run_command(arguments, stop)
        except KeyboardInterrupt:
            stop.say()
            return _STOPPED


def run() -> None:
    """Run the console script."""
    from burnish_engine.contract.garbage import collect_seldom

    collect_seldom()
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _stop_at_once)
            # Registered first, so called last: then all is done, and Python's own end would let the signal kill.
            atexit.register(signal.signal, number, signal.SIG_IGN)
    code = main()
    if code == _STOPPED:
        # After KeyboardInterrupt in an exec("...") of a library, `python -m` would end with SIGINT instead of 20.
        atexit._run_exitfuncs()
        with suppress(AttributeError, OSError, ValueError):  # there is no output, or it is closed
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def _stop_at_once(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"burnish: Stopped.\n")
    os._exit(_STOPPED)


if __name__ == "__main__":
    run()
