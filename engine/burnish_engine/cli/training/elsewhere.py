"""Trains a run on another machine, with progress in the terminal: what `submit`, `train` and `runs resume` share."""

from __future__ import annotations

from contextlib import suppress

from burnish_engine.cli.terminal import out, say_error, typed_run
from burnish_engine.cli.training.progress import RunProgress
from burnish_engine.contract.errors import BurnishError, ExitCode, UsageError
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.model_places import model_dir
from burnish_engine.contract.paths import RunPaths, is_address, is_model_name
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.runs.store import read_state


def known_data(recipe: Recipe) -> DatasetFacts | None:
    """Inspect the recipe's data where that needs no download; else None."""
    from burnish_engine.cli.training.plan import inspect_data

    name = recipe.model.path
    if is_model_name(name) and not model_dir(name).is_dir():
        return None
    if any(is_address(file) for file in (*recipe.data.files, *recipe.data.validation_files)):
        return None
    return inspect_data(recipe)


def train_there(paths: RunPaths, recipe: Recipe, *, anyway: bool = False, gpus: int = 0) -> ExitCode:
    """Train a run where its recipe says, or follow the job that does; return the exit code."""
    from burnish_engine.remote.submit import train_elsewhere

    run, began = typed_run(paths), paths.remote.exists()
    if began and gpus:
        raise UsageError(
            f"--gpus {gpus} cannot change a run that has begun at {recipe.devices.where}.",
            f"Leave --gpus out, or submit the recipe as a new run with --gpus {gpus}.",
        )
    try:
        with RunProgress() as progress:
            dataset = None if began else known_data(recipe)
            outcome = train_elsewhere(
                paths, recipe, note=progress.note, listener=progress.show, dataset=dataset, gpus=gpus, anyway=anyway
            )
    except KeyboardInterrupt:
        if paths.remote.exists():
            out.print(f"The job continues at {recipe.devices.where}. Follow it again: burnish runs resume {run}")
            out.print(f"Let it save and end: burnish runs stop {run}")
        raise
    except BurnishError as error:
        if not paths.remote.exists():
            record_refusal(paths, error)
        raise
    if outcome.exit_code is ExitCode.DONE:
        out.print(f"Done. The result is in {paths.root}")
    elif outcome.exit_code is ExitCode.STOPPED:
        out.print(f"Stopped; what was saved is in {paths.root}. Continue with: burnish runs resume {run}")
    else:
        say_error(outcome.message or f"The run failed at {recipe.devices.where}.")
    return outcome.exit_code


def record_refusal(paths: RunPaths, error: BurnishError) -> None:
    """Record in a run that has not begun why it could not be handed over."""
    from burnish_engine.runs.store import write_state

    with suppress(BurnishError):
        failed = {"status": "failed", "exit_code": int(error.exit_code), "message": str(error)}
        write_state(paths, read_state(paths).model_copy(update=failed))
