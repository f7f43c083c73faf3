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


def run_folder(exported=()):
    """Make the folder of a run with an adapter and exported files; return its path."""
    folder = Path(tempfile.mkdtemp()) / "20261121-1012-support-desk"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    (folder / "export").mkdir()
    for name in exported:
        (folder / "export" / name).write_bytes(b"")
    return str(folder)
