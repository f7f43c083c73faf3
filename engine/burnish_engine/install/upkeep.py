"""Checks, repairs and moves an engine."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, NoSpaceError, SetupError
from burnish_engine.contract.files import cannot_write
from burnish_engine.install.engines import STAMP, Engines, InstalledEngine, remove_folder
from burnish_engine.install.machine.setup_checks import DiskNeed, SetupProblem, check_space
from burnish_engine.install.release.description import Target
from burnish_engine.install.set_up import SetUpProgress
from burnish_engine.install.trial import try_engine


def damaged_files(folder: Path, target: Target, progress: SetUpProgress) -> list[Path]:
    """Return files of an engine's packages that are missing or were changed, by the hashes in their RECORD files.

    Args:
        folder: folder of the engine.
        target: kind of machine that it was made for, whose packages it has to have.
        progress: way to stop it.

    Returns:
        The files. Where a package's list of files cannot be read, that list; where it is missing, a path that ends in
        the package's name.

    Raises:
        StoppedError: The work was stopped.
    """
    damaged: list[Path] = []
    records = {_package(record): record for record in folder.glob("**/site-packages/*.dist-info/RECORD")}
    for name in target.packages():
        record = records.get(_normalized(name))
        if record is None:
            damaged.append(folder / name)
            continue
        try:
            recorded = list(_recorded(record))
        except (OSError, ValueError, csv.Error):
            damaged.append(record)
            continue
        for path, digest in recorded:
            progress.check()
            if not _is_intact(path, digest):
                damaged.append(path)
    return damaged


def move(engine: InstalledEngine, engines: Engines, place: Path, progress: SetUpProgress) -> InstalledEngine:
    """Move the engine in use to another place: copy, try, switch, and only then remove the old one.

    Args:
        engine: engine in use.
        engines: engines of this PC.
        place: folder that it goes to.
        progress: what is told meanwhile, and the way to stop it.

    Returns:
        The engine in its new place.

    Raises:
        SetupError: The copy does not work.
        NoSpaceError: There is too little space.
        StoppedError: The work was stopped.
    """
    if engine.folder.resolve() in (place.resolve(), *place.resolve().parents):
        raise SetupError(f"{place} lies in the engine itself.", "Choose a folder elsewhere.")
    with engines.locked():
        engines.clear(place)
        _check_space(engine, place)
        folder = engines.new_folder(place, engine.release, engine.target)
        moved = InstalledEngine(folder)
        try:
            progress.stage = "unpacking"
            shutil.copytree(
                engine.folder,
                folder,
                symlinks=True,
                ignore=lambda _folder, _names: [STAMP],
                copy_function=_copying(progress),
                dirs_exist_ok=True,
            )
            if damaged := damaged_files(folder, engine.target, progress):
                raise SetupError(f"{damaged[0]} is damaged.", "Repair the engine, then move it.")
            progress.stage = "trying"
            try_engine(folder / engine.target.python, progress.check, uses_gpu=engine.target.uses_gpu)
            moved.finish(engine.release, engine.target)
            engines.use(moved)
        except (OSError, shutil.Error, BurnishError) as error:
            remove_folder(folder)
            raise error if isinstance(error, BurnishError) else cannot_write(folder, error) from error
        remove_folder(engine.folder)
        engines.clear(engine.place)
    return moved


def _copying(progress: SetUpProgress) -> Callable[[str, str], str]:
    def copy(source: str, target: str) -> str:
        progress.check()
        return shutil.copy2(source, target)

    return copy


def _check_space(engine: InstalledEngine, place: Path) -> None:
    needed = sum(path.stat().st_size for path in engine.folder.rglob("*") if path.is_file() and not path.is_symlink())
    try:
        place.mkdir(parents=True, exist_ok=True)
        check_space([DiskNeed("packages", place, 0, shutil.disk_usage(place).free, needed)])
    except SetupProblem as problem:
        raise NoSpaceError(str(problem)) from problem
    except OSError as error:
        raise cannot_write(place, error) from error


def _recorded(record: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a package with their hashes, as RECORD names them; those without a hash are left out.

    Raises:
        OSError: The list cannot be read.
        ValueError: The list is none: it names no file with a hash, or is no text.
    """
    names = 0
    with record.open(encoding="utf-8", newline="") as file:
        for name, digest, _size in csv.reader(file, strict=True):
            if digest.startswith("sha256="):
                names += 1
                yield record.parent.parent / name, digest.removeprefix("sha256=")
    if not names:
        raise ValueError(f"{record} names no file")


def _package(record: Path) -> str:
    """Return the normalized name of the package that a list of files is of."""
    return _normalized(record.parent.name.removesuffix(".dist-info").rpartition("-")[0])


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_intact(path: Path, digest: str) -> bool:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode() == digest
