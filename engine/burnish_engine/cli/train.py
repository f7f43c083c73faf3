"""`burnish train`: one run in this process, with progress in the terminal and everything in the run folder."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from burnish_engine.cli.progress import RunProgress
from burnish_engine.cli.terminal import out, say_error, typed_run
from burnish_engine.contract.errors import ExitCode, LeasedError, UsageError
from burnish_engine.contract.exports import next_export
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe_file import load_recipe
from burnish_engine.runs.card import read_card
from burnish_engine.runs.store import create_run, read_recipe, read_state, trains_whole_model

_REFUSALS = (
    ExitCode.USAGE,
    ExitCode.DATA,
    ExitCode.ENVIRONMENT,
    ExitCode.LEASED,
    ExitCode.DOES_NOT_FIT,
    ExitCode.NO_SPACE,
)


def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe (TOML).")],
    run_dir: Annotated[
        Path | None, typer.Option(help="New folder for the run. Default: one beside your other runs.")
    ] = None,
    queue: Annotated[bool, typer.Option("--queue", help="If the device is busy, start when it is free.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Use the device even if another run holds it.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Start even if the plan says that it does not fit.")] = False,
) -> int:
    """Train what the recipe describes.

    Ctrl-C finishes the step, saves and stops; `burnish runs resume last` goes on.
    """
    parsed = load_recipe(recipe)
    if not parsed.data.files:
        raise UsageError(
            f"The recipe {recipe} names no training files (data.files is empty).",
            'Add some, such as files = ["conversations.jsonl"] under [data].',
        )
    paths = create_run(parsed, run_dir)
    code = ExitCode.BUG
    try:
        code = carry_out(paths, queue=queue, force=force, anyway=anyway)
    finally:
        if run_dir is None and code is not ExitCode.DONE and never_began(paths):
            shutil.rmtree(paths.root, ignore_errors=True)  # a mistake in recipe or data leaves nothing in the list
    return code


def _next_export(paths: RunPaths, run: str) -> str:
    """The export that works for this run, to be printed after the first command; empty where none does."""
    with suppress(UsageError):  # a damaged card
        card = read_card(paths)
        options = next_export(card.exports if card else [])
        return f"   or   burnish export {run} {options}" if options else ""
    return ""


def never_began(paths: RunPaths) -> bool:
    """Whether the run was refused before its first step, so that its folder holds nothing of worth."""
    state = read_state(paths)
    refused = state.status == "failed" and state.exit_code in _REFUSALS
    return (refused or state.status == "created") and state.step == 0 and not paths.checkpoints.exists()


def carry_out(paths: RunPaths, *, queue: bool = False, force: bool = False, anyway: bool = False) -> ExitCode:
    """Train a run folder's recipe here and now, or queue it where its device is busy.

    Args:
        paths: The run folder.
        queue: Wait in the queue where the device is busy.
        force: Share the device.
        anyway: Start although the plan says that it does not fit.
    """
    from burnish_engine.models.device import choose_device, lease_name
    from burnish_engine.runs import lease
    from burnish_engine.train.run import run_training

    if not force:
        lease.start_waiting()  # whoever waits longer goes first
    with RunProgress() as progress:
        try:
            outcome = run_training(
                paths, listener=progress.show, stopping=progress.stopping, force=force, anyway=anyway
            )
        except LeasedError as error:
            if not queue:
                raise
            lease.enqueue(paths, lease_name(choose_device(read_recipe(paths).devices)), anyway=anyway)
            lease.start_waiting()  # the holder may have ended in between, and nobody else would look
            out.print(f"{error.what} The run {paths.root.name} is queued and starts when the device is free.")
            return ExitCode.DONE
    run = escape(typed_run(paths))
    if outcome.exit_code in (ExitCode.DONE, ExitCode.STOPPED) and (memory := progress.memory_line()):
        out.print(memory)
    if outcome.exit_code is ExitCode.DONE:
        what = "model" if trains_whole_model(paths) else "adapter"
        out.print(f"Done. The {what} is in {escape(str(paths.root / what))}")
        out.print(f"Next: burnish chat {run}{_next_export(paths, run)}")
    elif outcome.exit_code is ExitCode.STOPPED:
        out.print(f"{outcome.message} Go on with: burnish runs resume {run}")
    else:
        say_error(outcome.message)
        if outcome.step:
            out.print(f"After step {outcome.step}. The run is in {escape(str(paths.root))}")
    return outcome.exit_code
