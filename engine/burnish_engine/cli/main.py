"""Entry point of `burnish`: Ctrl-C and a closed terminal end it with a message from its first moment on.

It imports nothing heavy: the commands, with all they need, are imported after the signal handlers are installed.
"""

from __future__ import annotations

import signal
import sys

from burnish_engine.cli.stop_signals import stop_signals
from burnish_engine.contract.errors import ExitCode


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: arguments without the program's name; by default those of the process.

    Returns:
        The exit code (see `contract.errors`); it is also what the process exits with when run as a script.
    """
    with stop_signals() as stop:
        try:
            stop.importing = True
            from burnish_engine.cli.command_line import run_command

            stop.importing = False
            return run_command(arguments, stop)
        except KeyboardInterrupt:
            stop.say()
            return ExitCode.STOPPED


def run() -> None:
    """Run the console script."""
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while the interpreter ends prints no traceback
    sys.exit(code)


if __name__ == "__main__":
    run()
