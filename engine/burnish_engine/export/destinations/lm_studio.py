"""Place files in LM Studio's layout: PUBLISHER/REPOSITORY/FILE.gguf below its models folder.

Source: https://lmstudio.ai/docs/app/basics/import-model
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import cannot_write
from burnish_engine.contract.paths import safe_name
from burnish_engine.export.base.staging import require_space


def link_or_copy(gguf: Path, target: Path) -> None:
    """Put a finished file at a second path: hard-linked where the disk allows it, else copied.

    Raises:
        NoSpaceError: The file does not fit the disk, or cannot be written.
    """
    if target.exists() and target.samefile(gguf):
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = target.with_name(f".partial-{target.name}")
        staging.unlink(missing_ok=True)
        try:
            try:
                os.link(gguf, staging)
            except OSError:  # another disk, or a file system without links
                require_space(target.parent, gguf.stat().st_size, target.name)
                shutil.copyfile(gguf, staging)
            staging.replace(target)
        finally:
            staging.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(target, error) from error


def export_lm_studio(gguf: Path, models: Path, repository: str, publisher: str = "burnish") -> Path:
    """Put a file where LM Studio looks for it.

    Args:
        gguf: A finished, verified file.
        models: LM Studio's models folder, or another folder of that layout.
        repository: name of the model's folder.
        publisher: name of the publisher's folder.

    Returns:
        Path of the file in its new place.

    Raises:
        UsageError: There is no such file.
        NoSpaceError: The file does not fit the disk.
    """
    if not gguf.is_file():
        raise UsageError(f"There is no file {gguf}.", "Export it first.")
    target = models / safe_name(publisher, "burnish") / safe_name(repository, "model") / gguf.name
    link_or_copy(gguf, target)
    return target
