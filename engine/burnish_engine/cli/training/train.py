"""`burnish train`: trains one run in this process, with progress in the terminal and everything in the run folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from burnish_engine.cli.terminal import out, say_error, typed_run
from burnish_engine.cli.training.elsewhere import train_there
from burnish_engine.cli.training.progress import RunProgress
from burnish_engine.contract.errors import ExitCode, LeasedError, NoSpaceError, UsageError
from burnish_engine.contract.facts.exports import next_export
from burnish_engine.contract.paths import RunPaths, runs_dir
from burnish_engine.contract.recipe.on_gpus import with_gpus
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import MOST_GPUS, DevicesSection, Recipe
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.runs.card import read_card
from burnish_engine.runs.store import create_run, read_state

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
    gpus: Annotated[
        int, typer.Option(min=0, max=MOST_GPUS, help="Share each step among so many GPUs. 0: as the recipe says.")
    ] = 0,
    keep_refused: Annotated[bool, typer.Option("--keep-refused", hidden=True, help="For a duel.")] = False,
) -> int:
    """Train what the recipe describes.

    Ctrl-C finishes the step, saves and stops; `burnish runs resume last` continues.
    """
    if is_other_rank():  # the leader reads the recipe
        return help_leader()
    return start_run(
        share_out(load_recipe(recipe), gpus), recipe, run_dir, queue=queue, force=force, anyway=anyway,
        keep_refused=keep_refused,
    )  # fmt: skip


def start_run(
    parsed: Recipe,
    recipe: Path,
    run_dir: Path | None,
    *,
    queue: bool = False,
    force: bool = False,
    anyway: bool = False,
    gpus: int = 0,
    keep_refused: bool = False,
) -> int:
    """Make a run of a recipe and train it here and now, or where the recipe says; return the exit code.

    Args:
        parsed: recipe with absolute paths.
        recipe: file that it was read from, for messages.
        run_dir: new folder for the run; None: one beside the other runs.
        queue: whether to wait in the queue where the device is busy.
        force: whether to share the device.
        anyway: whether to start although the plan says that it does not fit.
        gpus: number of GPUs of another machine that share the steps; 0: as the recipe says.
        keep_refused: whether a run that was refused leaves its folder behind.

    Raises:
        UsageError: The recipe names no training files.
        NoSpaceError: The run folder cannot be written.
    """
    if not parsed.data.files:
        raise UsageError(
            f"The recipe {recipe} names no training files (data.files is empty).",
            'Add some, such as files = ["conversations.jsonl"] under [data].',
        )
    made = _missing(run_dir.absolute()) if run_dir else []
    try:
        paths = create_run(parsed, run_dir)
    except NoSpaceError:
        if run_dir:
            _discard(run_dir.absolute(), made)
        raise
    code = ExitCode.BUG
    try:
        code = train_run(paths, parsed, queue=queue, force=force, anyway=anyway, gpus=gpus)
    finally:
        if code is not ExitCode.DONE and not keep_refused and never_began(paths):
            _discard(paths.root, made)  # a mistake in recipe or data leaves nothing behind
    return code


def is_other_rank() -> bool:
    """Whether torchrun started this process to help another one, which is the run.

    Raises:
        SetupError: Variables of the processes are no numbers.
        UsageError: Variables do not say which process this is, or where all meet.
    """
    if "WORLD_SIZE" not in os.environ:
        return False
    from burnish_engine.train.parallel.world import World

    world = World.from_environment()
    return world is not None and world.rank > 0


def help_leader() -> int:
    """Train as a rank of the run that another process is; return the exit code."""
    from burnish_engine.train.parallel.replica import RunReplica
    from burnish_engine.train.parallel.run_rank import join

    return join(RunReplica)


def share_out(recipe: Recipe, gpus: int) -> Recipe:
    """Return the recipe with so many GPUs; 0: as it is. Processes of torchrun take those that they see, in order."""
    if not gpus:
        return recipe
    return with_gpus(recipe, range(gpus) if "WORLD_SIZE" in os.environ else recipe.devices.first_gpus(gpus))


def _next_export(paths: RunPaths, run: str) -> str:
    """Return the export command that works for this run, to print after the first command; empty where none does."""
    with suppress(UsageError):  # a damaged card
        card = read_card(paths)
        options = next_export(card.exports if card else [])
        return f"   or   burnish export {run} {options}" if options else ""
    return ""


def _missing(folder: Path) -> list[Path]:
    """List the missing folders of a path, the deepest first."""
    found = []
    while not folder.exists() and folder != folder.parent:
        found.append(folder)
        folder = folder.parent
    return found


def _discard(root: Path, made: list[Path]) -> None:
    """Delete a run that never began: the content of its folder, and the folders that were made for it."""
    if root in made or root.parent == runs_dir().absolute():
        shutil.rmtree(root, ignore_errors=True)
    else:
        for path in root.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    for folder in made:
        with suppress(OSError):
            folder.rmdir()


def never_began(paths: RunPaths) -> bool:
    """Whether the run was refused before its first step, so that its folder holds nothing worth keeping."""
    state = read_state(paths)
    refused = state.status == "failed" and state.exit_code in _REFUSALS
    return (
        (refused or state.status == "created")
        and state.step == 0
        and not paths.checkpoints.exists()
        and not paths.remote.exists()
    )


def _busy_device(section: DevicesSection, gpus: Sequence[int]) -> str:
    """Return the name of the device that a run has to wait for: the first of its own that another run holds."""
    from burnish_engine.models.device.device import choose_device, lease_name
    from burnish_engine.runs.jobs import lease
    from burnish_engine.train.parallel.launch import devices_of

    names = [lease_name(device) for device in devices_of(choose_device(section), gpus or section.gpus)]
    return next((name for name in names if lease.holder_of(name)), names[0])


def train_run(paths: RunPaths, recipe: Recipe, *, queue: bool, force: bool, anyway: bool, gpus: int) -> ExitCode:
    """Train a run here and now, or queue it where its device is busy.

    Args:
        paths: paths of the run folder.
        recipe: frozen recipe of the run.
        queue: whether to wait in the queue where the device is busy.
        force: whether to share the device.
        anyway: whether to start although the plan says that it does not fit.
        gpus: number of GPUs that share the steps now, see `DevicesSection.first_gpus`; 0: as the recipe says.
    """
    if recipe.devices.where != HERE:
        return train_there(paths, recipe, anyway=anyway, gpus=gpus)
    from burnish_engine.runs.jobs import lease
    from burnish_engine.runs.jobs.keeper import watched
    from burnish_engine.train.run import run_training

    chosen = recipe.devices.first_gpus(gpus)
    if not force:
        lease.start_waiting()  # runs that have waited longer go first
    with watched(paths.process_end, paths.stderr_log), RunProgress() as progress:
        try:
            outcome = run_training(
                paths,
                recipe,
                listener=progress.show,
                stopping=progress.stopping,
                force=force,
                anyway=anyway,
                gpus=chosen,
            )
        except LeasedError as error:
            if not queue:
                raise
            lease.enqueue(paths, _busy_device(recipe.devices, chosen), anyway=anyway, gpus=gpus)
            lease.start_waiting()  # the holder may have ended in between, and nobody else would check
            out.print(f"{error.what} The run {paths.root.name} is queued and starts when the device is free.")
            return ExitCode.DONE
    run = typed_run(paths)
    if outcome.exit_code in (ExitCode.DONE, ExitCode.STOPPED) and (memory := progress.memory_line()):
        out.print(memory)
    if outcome.exit_code is ExitCode.DONE:
        what = "model" if recipe.adapter.method == "full" else "adapter"
        out.print(f"Done. The {what} is in {paths.root / what}")
        out.print(f"Next: burnish chat {run}{_next_export(paths, run)}")
    elif outcome.exit_code is ExitCode.STOPPED:
        out.print(f"{outcome.message} Continue with: burnish runs resume {run}")
    else:
        say_error(outcome.message)
        if outcome.step:
            out.print(f"After step {outcome.step}. The run is in {paths.root}")
    return outcome.exit_code
