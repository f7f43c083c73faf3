"""The finished run that ships with Burnish: real events of the embedded model on the sample notes."""

from __future__ import annotations

import shutil
from pathlib import Path

from burnish_engine.contract.files import make_private
from burnish_engine.contract.paths import assets_dir, user_data_dir

_NAME = "example"


def open_example() -> Path:
    """Put the example among the person's runs, unless it is there, and return its folder.

    Raises:
        OSError: The folder cannot be written.
    """
    folder = user_data_dir() / "runs" / _NAME
    if not folder.is_dir():
        make_private(folder.parent)
        aside = folder.with_name(f".{_NAME}.part")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(assets_dir() / "example-run", aside)
        aside.replace(folder)
    return folder
