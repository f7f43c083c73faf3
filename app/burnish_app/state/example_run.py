"""The finished runs that ship with Burnish: the embedded model on the sample notes, and a first try at a lower rate."""

from __future__ import annotations

import shutil
from pathlib import Path

from burnish_engine.contract.files import make_private
from burnish_engine.contract.paths import RunPaths, assets_dir, user_data_dir

_MAIN, _OTHER = "example-fixes-at-home", "example-first-try"
"""The run that is opened, and the one that it is compared with."""
_SAMPLES = ("bench-notes.train.jsonl", "bench-notes.heldout.jsonl")


def open_example() -> Path:
    """Put the examples among the person's runs, unless they are there, and return the folder of the one to open.

    Raises:
        OSError: A folder cannot be written.
    """
    runs = user_data_dir() / "runs"
    if not (runs / _MAIN).is_dir():
        make_private(runs)
        for name in (_OTHER, _MAIN):  # the one to open comes last: it stands for both
            _copy(assets_dir() / "example-runs" / name, runs / name)
    return runs / _MAIN


def _copy(source: Path, folder: Path) -> None:
    """Copy an example, whose recipe then names the sample data of this installation."""
    if folder.is_dir():
        return
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(source, aside)
    recipe = RunPaths(aside).recipe
    text = recipe.read_text(encoding="utf-8")
    for name in _SAMPLES:
        text = text.replace(f'"{name}"', f'"{(assets_dir() / "samples" / name).as_posix()}"')
    recipe.write_text(text, encoding="utf-8")
    aside.replace(folder)
