"""Reads and writes burnish-model.json, which records a fetched model's origin, license and files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from burnish_engine.contract.files import read_plain, write_atomic

FILE_NAME = "burnish-model.json"


class FetchedFile(BaseModel):
    """The name, size and checksum of one fetched file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    bytes: int
    sha256: str


class Manifest(BaseModel):
    """The record of a fetched model.

    Attributes:
        v: version of the record's format.
        name: name of the model.
        revision: requested branch, tag or commit.
        commit: commit that the revision named.
        license: license that the model's page or the catalog names.
        fetched: time of the download in UTC, ISO 8601.
        files: fetched files.
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
        """Whether all files still exist with their sizes (their content was checked when they were fetched)."""
        return all(
            (folder / file.name).is_file() and (folder / file.name).stat().st_size == file.bytes for file in self.files
        )


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a fetched model's folder; None where it is missing or invalid."""
    try:
        return Manifest.model_validate_json(read_plain(folder / FILE_NAME))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into a model's folder.

    Raises:
        NoSpaceError: The manifest could not be written.
    """
    write_atomic(folder / FILE_NAME, manifest.model_dump_json(indent=2) + "\n")
