"""Register all commands of `burnish`, and turn their errors into paragraphs and exit codes."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
import typer.main
from typer.core import TyperGroup

from burnish_engine.cli.stop_signals import StopSignals
from burnish_engine.cli.terminal import print_raw, say_error, show_log
from burnish_engine.contract.errors import EXIT_CODE_MEANINGS, ExitCode, StoppedError, UsageError
from burnish_engine.contract.failure_report import failure_report, last_error_file
from burnish_engine.contract.files import is_file, make_private
from burnish_engine.contract.paths import is_address, user_cache_dir, user_data_dir
from burnish_engine.contract.plain_text import is_unicode
from burnish_engine.contract.system_errors import known_error
from burnish_engine.contract.version import burnish_version
from burnish_engine.hub.offline import remember_offline_choice
from burnish_kernels.tuning import CACHE_VARIABLE

_TYPER_INTERRUPTED = 130
"""Return value of typer where a command ended with KeyboardInterrupt; no command of ours returns it."""

_LARGEST_NUMBER = 10**15

_EXIT_CODES = (
    "Exit codes: " + ", ".join(f"{code.value} {meaning}" for code, meaning in EXIT_CODE_MEANINGS.items()) + "."
)

COMMANDS = {
    "studio": "start", "demo": "start", "doctor": "machine", "models": "prepare", "inspect": "prepare",
    "suggest": "prepare", "recipe": "prepare", "plan": "training", "rewards": "training", "train": "training",
    "submit": "training", "runs": "training", "sweep": "training", "duel": "training", "chat": "results",
    "evaluate": "results", "export": "results", "verify": "results", "bench": "machine", "serve": "start",
    "bundle": "machine",
}  # fmt: skip
"""Commands in the order in which a person needs them, each with the folder of its module, which has its name."""


_STYLE: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}


class _Commands(Mapping[str, Any]):
    """The commands by name; each is imported when it is asked for, since a process needs only one."""

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)


class _LazyGroup(TyperGroup):
    """The group of all commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": None})
        self.commands = _Commands()  # type: ignore[assignment]  # it is never added to

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)


app = typer.Typer(
    cls=_LazyGroup,
    epilog=_EXIT_CODES,
    name="burnish",
    no_args_is_help=True,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_STYLE,
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Fine-tune a language model on your own machine and walk away with a verified, quantized GGUF.

    New here? `burnish demo` does the whole job in minutes; `burnish studio` opens the desktop app.
    """
    if version:
        print_raw(f"burnish {burnish_version()}\n")
        raise typer.Exit


@cache
def _command(name: str) -> Any:
    """Import a command; its values are checked before it runs."""
    module = import_module(f"burnish_engine.cli.{COMMANDS[name]}.{name}")
    alone = typer.Typer(**_STYLE)
    if hasattr(module, "app"):
        alone.add_typer(module.app, name=name)
    else:
        alone.command(name)(getattr(module, name))
    command = typer.main.get_group(alone).commands[name]
    _refuse_odd_values(command)
    return command


def import_command(arguments: Sequence[str] | None) -> None:
    """Import the command that the arguments name, if they name one.

    Args:
        arguments: same as in `run_command`.
    """
    named = next((one for one in arguments or sys.argv[1:] if not one.startswith("-")), "")
    if named in COMMANDS:
        _command(named)


def run_command(arguments: list[str] | None, stop: StopSignals) -> int:
    """Run the command that the arguments name, and turn errors into paragraphs and exit codes.

    Args:
        arguments: arguments without the program's name; None: those of the process.
        stop: handler of stop signals.

    Returns:
        The exit code (see `contract.errors`).

    Raises:
        KeyboardInterrupt: The person stopped it.
    """
    _prepare_process()
    try:
        result: Any = _commands().main(args=arguments, prog_name="burnish", standalone_mode=False)
    except typer.Abort as abort:
        # Typer takes every EOFError for a prompt that was left; a file or a worker that ends too early raises it too.
        if isinstance(abort.__cause__, EOFError) and not stop.asked:
            return _report(abort.__cause__, arguments)
        raise KeyboardInterrupt from None
    except Exception as error:  # noqa: BLE001  the last line of defense: a bug is reported, never dumped
        # A library may turn the interrupt into an error of its own.
        if stop.asked and not isinstance(error, StoppedError):
            raise KeyboardInterrupt from None
        return _report(error, arguments)
    if result == _TYPER_INTERRUPTED:
        raise KeyboardInterrupt
    return int(result) if isinstance(result, int) else ExitCode.DONE


@cache
def _commands() -> Any:
    commands = typer.main.get_command(app)
    _refuse_own_odd_values(commands)
    return commands


def _refuse_odd_values(command: Any) -> None:
    """Refuse odd values in every option of a command and of its subcommands."""
    for below in getattr(command, "commands", {}).values():
        _refuse_odd_values(below)
    _refuse_own_odd_values(command)


def _refuse_own_odd_values(command: Any) -> None:
    """Refuse odd values in every option of a command.

    Odd are NaN, infinity, uselessly large numbers, and names that are no Unicode, which no file of ours could hold.
    """
    carried_out = command.callback

    def checked(*arguments: Any, **options: Any) -> Any:
        for name, value in options.items():
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, int | float) and not abs(one) <= _LARGEST_NUMBER:
                    raise UsageError(
                        f"--{name.replace('_', '-')} is {one!s:.30}, which is out of range.",
                        "`--help` shows what it is.",
                    )
                if isinstance(one, str | Path):
                    _refuse_undecodable("The argument", one)
                if isinstance(one, Path):
                    _refuse_address(one)
        _refuse_odd_folders()
        _refuse_odd_endpoint()
        return carried_out(*arguments, **options)

    if carried_out is not None:
        command.callback = checked


def _refuse_address(path: Path) -> None:
    """Refuse an address where only a path can be; as a path it has lost one of its slashes."""
    scheme, found, rest = str(path).replace("\\", "/").partition(":/")
    if found and is_address(f"{scheme}://") and not path.exists():
        raise UsageError(f"{scheme}://{rest} is an address, and this takes a path.", "Give a path on this machine.")


def _refuse_odd_folders() -> None:
    try:
        _refuse_undecodable("The current folder", Path.cwd())
    except FileNotFoundError:
        raise UsageError("The current folder is gone.", "Change to a folder that exists.") from None
    home = user_data_dir()
    _refuse_undecodable("Burnish's folder", home)
    if is_file(home):
        raise UsageError(f"Burnish's folder {home} is a file.", "Name a folder in BURNISH_HOME, or move the file away.")


def _refuse_odd_endpoint() -> None:
    """Refuse an HF_ENDPOINT with which the libraries that read models and data cannot even be imported."""
    try:
        urlsplit(os.environ.get("HF_ENDPOINT", ""))
    except ValueError:
        from burnish_engine.hub.endpoint import endpoint

        endpoint()


def _refuse_undecodable(what: str, value: str | Path) -> None:
    if not is_unicode(str(value)):
        raise UsageError(f"{what} {value} is not valid UTF-8 text.", "Rename it, or use another.")


def _report(error: Exception, arguments: Sequence[str] | None) -> int:
    """Explain an error to a person and return the exit code; an unexpected one is reported as a bug."""
    known = known_error(error)
    if known is not None:
        say_error(str(known))
        return known.exit_code
    format_message = getattr(error, "format_message", None)  # click's own usage errors, however typer packages click
    if type(error).__name__ == "NoArgsIsHelpError" and callable(format_message):
        sys.stderr.write(format_message() + "\n")
        return ExitCode.USAGE
    if callable(format_message):
        said = format_message()
        end = "" if said.endswith((".", "?", "!")) else "."
        helps = f"`{_command_path(arguments)} --help` shows how it is used."
        say_error(f"{said}{end} {'Check its permissions.' if said.endswith(' is not readable.') else helps}")
        return ExitCode.USAGE
    log = last_error_file()
    given = list(arguments if arguments is not None else sys.argv[1:])
    recipe = next((Path(one) for one in given if one.endswith(".toml") and is_file(Path(one))), None)
    what = " ".join([_command_path(arguments), *(one.partition("=")[0] for one in given if one.startswith("--"))])
    report = failure_report(what, traceback.format_exc(), recipe=recipe)
    try:
        make_private(log.parent)
        log.write_text(report, encoding="utf-8", errors="replace")
        where = f" A report is in {log}, without paths and secrets; please send it."
    except OSError as problem:
        where = f" The report could not be written to {log} ({problem.strerror})."
    say_error(f"This is a bug in Burnish: {type(error).__name__}: {error}.{where}")
    return ExitCode.BUG


def _command_path(arguments: Sequence[str] | None) -> str:
    """Name the command that the arguments lead to, such as "burnish runs show"; not every usage error knows its own."""
    path, command = ["burnish"], None
    for name in arguments if arguments is not None else sys.argv[1:]:
        below = getattr(command, "commands", {}) if command else COMMANDS
        if name not in below:
            break
        command = below[name] if command else _command(name)
        path.append(name)
    return " ".join(path)


def _prepare_process() -> None:
    # Nothing here may reach the network by itself: models and data are on disk. `models fetch` alone may, unless the
    # person set these variables.
    remember_offline_choice()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the order in which NVML, and so the doctor, counts
    os.environ.setdefault(CACHE_VARIABLE, str(user_cache_dir() / "kernels"))
    # GNU OpenMP's idle threads spin so long that two busy processes slow each other several times; must be set before
    # torch or llama.cpp load it.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    if sys.platform.startswith("linux") and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # its older name
        # Passes differ in length; without growing segments torch's allocator keeps up to twice the memory it uses
        # (measured, tests/bench/LOG.md). Windows has none.
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    os.environ.setdefault("TQDM_DISABLE", "1")  # libraries' own progress bars
    logging.basicConfig(level=logging.ERROR)
    show_log()
    warnings.filterwarnings("ignore", category=FutureWarning)  # addressed to the developers of our libraries
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(encoding="utf-8", errors="replace")
