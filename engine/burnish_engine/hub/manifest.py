"""burnish-model.json: where a fetched model comes from, under which license, and what its files were."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from burnish_engine.contract.files import write_atomic

FILE_NAME = "burnish-model.json"


class FetchedFile(BaseModel):
    """One file as it was checked."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    bytes: int
    sha256: str


class Manifest(BaseModel):
    """What was fetched.

    Attributes:
        v: Version of this file's form.
        name: The model's name.
        revision: Branch, tag or commit asked for.
        commit: The commit that it was.
        license: As the model's page or the catalog names it.
        fetched: When, in UTC.
        files: The files.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = 1
    name: str
    revision: str
    commit: str
    license: str
    fetched: str
    files: list[FetchedFile]

    def is_whole(self, folder: Path) -> bool:
        """Whether all files are still there in their size (their content was checked when they came)."""
        return all(
            (folder / file.name).is_file() and (folder / file.name).stat().st_size == file.bytes for file in self.files
        )


def read_manifest(folder: Path) -> Manifest | None:
    """What is written in a fetched model's folder; None where there is no such folder or file."""
    try:
        return Manifest.model_validate_json((folder / FILE_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it into the folder.

    Raises:
        NoSpaceError: It could not be written.
    """
    write_atomic(folder / FILE_NAME, manifest.model_dump_json(indent=2) + "\n")
