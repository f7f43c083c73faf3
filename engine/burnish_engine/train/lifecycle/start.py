"""The adapter that a run continues from: checked against the base, copied into the run, and hashed."""

from __future__ import annotations

import shutil
from pathlib import Path

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import replace_with_retry
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.card import HashedFile
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.saved_adapters.saved_adapter import ADAPTER_FILES
from burnish_engine.models.saved_adapters.start_adapter import as_started, open_start, other_base, refuse_other_base
from burnish_engine.runs.file_hashes import known_sha256, sha256_file


def provide_start(paths: RunPaths, recipe: Recipe, source: ModelSource, *, fresh: bool) -> Path | None:
    """Return the run's own copy of the adapter that it continues from; None where it begins with a new one.

    Args:
        paths: run folder.
        recipe: recipe of the run.
        source: base model of the run.
        fresh: whether the run begins; only then the adapter is checked and copied.

    Raises:
        UsageError: The recipe names no adapter.
        SetupError: The adapter is damaged, or was trained on other weights.
        NoSpaceError: The adapter cannot be copied.
    """
    if not recipe.adapter.start:
        return None
    if not fresh:
        return paths.start
    start = open_start(recipe.adapter)
    assert start is not None
    refuse_other_base(start, source)
    files = {file.name: file for file in source.weight_files}
    for file in start.base_weights:
        found = known_sha256(files[file.name]) if file.sha256 else None
        if found != file.sha256:
            raise other_base(start, source, f"{file.name} with the SHA-256 {file.sha256}; here it is {found}")
    try:
        paths.start.mkdir(parents=True, exist_ok=True)
        for name in ADAPTER_FILES:
            part = paths.start / f"{name}.part"
            shutil.copyfile(start.folder / name, part)
            replace_with_retry(part, paths.start / name)
    except OSError as error:
        raise NoSpaceError(
            f"The adapter in {start.folder} could not be copied to {paths.start}: {error.strerror or error}.",
            "Free some space, or check the folders' rights.",
        ) from error
    return paths.start


def started_recipe(recipe: Recipe, start: Path | None) -> Recipe:
    """Return the recipe with the method, rank, alpha, dropout and targets of the run's copy of its starting adapter.

    Raises:
        UsageError: The copy is gone.
        SetupError: The copy is damaged.
    """
    if start is None:
        return recipe
    adapter = recipe.adapter.model_copy(update={"start": str(start)})
    return as_started(recipe.model_copy(update={"adapter": adapter}))


def hashed_files(folder: Path) -> list[HashedFile]:
    """List the files of an adapter with size and hash."""
    files = [folder / name for name in ADAPTER_FILES]
    return [HashedFile(name=file.name, bytes=file.stat().st_size, sha256=sha256_file(file)) for file in files]
