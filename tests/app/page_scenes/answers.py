"""Answers of the engine and run folders that scenes are made from."""

import tempfile
from pathlib import Path

from burnish_engine.contract.serve.messages import Failure, Result


def result(**fields):
    """Return an answer of the engine."""
    return Result(id="x", **fields)


def failure(what, remedy="", code=1):
    """Return an answer of the engine that says what went wrong."""
    return Failure(id="x", what=what, remedy=remedy, exit_code=code)


SIZES = {"Q8_0": 640_000_000, "Q4_K_M": 400_000_000}


def run_folder(exported=(), name="support-desk"):
    """Make the folder of a run with an adapter and exported files; return its path."""
    folder = Path(tempfile.mkdtemp()) / "20261121-1012-support-desk"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    (folder / "export").mkdir()
    (folder / "recipe.toml").write_text(f'name = "{name}"\n', encoding="utf-8")
    for file in exported:
        with (folder / "export" / file).open("wb") as made:
            made.truncate(SIZES[file.removesuffix(".gguf").rpartition("-")[2]])  # takes no space on the disk
    return str(folder)
