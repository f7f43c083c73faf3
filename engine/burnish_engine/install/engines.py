"""The engines of this PC: versions side by side, the one in use, and the one before it.

An engine is a folder with a standalone Python, in whose own folder the packages are, so that it can be moved. Its
stamp is written last: a folder without one is unfinished. Which engine is in use stands in one small file, which is
replaced in one step:

    <user data folder>/engine/current.json     the engine in use and the one before it
    <place>/engines/<version>-<build>-<number>/   an engine; the place is <user data folder>/engine, or as chosen
    <place>/downloads/                         files that were fetched for the next one
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from burnish_engine.contract.errors import LeasedError, SetupError
from burnish_engine.contract.files import is_file, make_private, write_atomic
from burnish_engine.install.machine.file_lock import try_lock
from burnish_engine.install.release.description import Release, Target, read_release

STAMP = "burnish-engine.json"
_POINTER, _LOCK = "current.json", "setup.lock"
_ENGINES, _DOWNLOADS = "engines", "downloads"


@dataclass(frozen=True)
class InstalledEngine:
    """An engine that is set up.

    Attributes:
        folder: folder of the engine.
    """

    folder: Path

    @cached_property
    def is_complete(self) -> bool:
        """Whether it was set up to its end, and its Python is there."""
        try:
            return is_file(self.python)
        except SetupError:
            return False

    @property
    def release(self) -> Release:
        """The release that it is of."""
        return read_release(self._stamp["release"])

    @property
    def target(self) -> Target:
        """The kind of machine that it was made for, with its files."""
        return self.release.target(self._stamp["target"])

    @property
    def python(self) -> Path:
        """The path of its Python."""
        return self.folder / self._stamp["python"]

    @property
    def place(self) -> Path:
        """The folder in which it and its downloads lie."""
        return self.folder.parent.parent

    def finish(self, release: Release, target: Target) -> None:
        """Write the stamp: the engine is complete.

        Raises:
            NoSpaceError: The stamp cannot be written.
        """
        stamp = {"release": release.text, "target": target.name, "python": target.python}
        write_atomic(self.folder / STAMP, json.dumps(stamp, ensure_ascii=False))

    @cached_property
    def _stamp(self) -> dict[str, str]:
        try:
            stamp = json.loads((self.folder / STAMP).read_text(encoding="utf-8"))
            return {name: str(stamp[name]) for name in ("release", "target", "python")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SetupError(f"The engine in {self.folder} is not complete.", "Set the engine up again.") from error


def engine_home(data_folder: Path) -> Path:
    """Return the folder of what this PC knows about its engines.

    Args:
        data_folder: the user data folder.
    """
    return data_folder / "engine"


def engine_python(data_folder: Path) -> Path | None:
    """Return the Python of the engine in use; None: no engine is set up.

    Args:
        data_folder: the user data folder.
    """
    engine = Engines(engine_home(data_folder)).current
    return None if engine is None else engine.python


class Engines:
    """The engines that this PC has.

    Args:
        home: folder of what this PC knows about them.
    """

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def current(self) -> InstalledEngine | None:
        """The engine in use. Where that was damaged, the one before it; None: there is none."""
        return next((engine for engine in self._pointed() if engine.is_complete), None)

    @property
    def former(self) -> InstalledEngine | None:
        """The engine that was in use before the present one, if it is still there."""
        return next((engine for engine in self._pointed()[1:] if engine.is_complete), None)

    @property
    def place(self) -> Path:
        """The folder in which engines lie: the one of the engine in use, at first this PC's user data folder."""
        pointed = self._pointed()
        return pointed[0].place if pointed else self.home

    def use(self, engine: InstalledEngine) -> None:
        """Switch to an engine, in one step; the present one becomes the former one, unless this one replaces it.

        An engine of the same release, as after a repair, replaces the present one.

        Raises:
            SetupError: The engine is not complete.
            NoSpaceError: The pointer cannot be written.
        """
        if not engine.is_complete:
            raise SetupError(f"The engine in {engine.folder} is not complete.", "Set the engine up again.")
        before = self.current
        replaces = before is None or before.release.text == engine.release.text
        self._point(engine, self.former if replaces else before)

    def roll_back(self) -> InstalledEngine:
        """Switch back to the former engine; the present one becomes the former one.

        Raises:
            SetupError: There is no former engine.
        """
        former = self.former
        if former is None:
            raise SetupError("There is no engine from before.", "Set the engine up again.")
        self.use(former)
        return former

    def new_folder(self, place: Path, release: Release, target: Target) -> Path:
        """Make the folder of an engine that is to be set up, with a name that no other one has.

        Raises:
            OSError: The folder cannot be made.
        """
        build = target.name.rpartition("-")[2]
        folder = place / _ENGINES / f"{re.sub(r'[^0-9A-Za-z.]', '_', release.version)}-{build}-{secrets.token_hex(3)}"
        folder.mkdir(parents=True)
        return folder

    def clear(self, place: Path) -> None:
        """Remove what no pointer names: unfinished engines and those older than the former one. What is held stays."""
        kept = {engine.folder for engine in self._pointed()}
        for folder in (place / _ENGINES).glob("*"):
            if folder not in kept and (folder.is_dir() or folder.is_symlink()):
                remove_folder(folder)

    def remove(self) -> None:
        """Remove all engines and downloads; runs, models and settings stay."""
        places = {engine.place for engine in self._pointed()} | {self.home}
        (self.home / _POINTER).unlink(missing_ok=True)
        for place in places:
            for name in (_ENGINES, _DOWNLOADS):
                remove_folder(place / name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the engines for one set-up at a time.

        Raises:
            LeasedError: Another process is setting an engine up.
        """
        make_private(self.home)
        with (self.home / _LOCK).open("a+b") as handle:
            if not try_lock(handle):
                raise LeasedError("Another window is setting the engine up.", "Wait until it is done.")
            yield

    def _pointed(self) -> list[InstalledEngine]:
        """Return the engine in use and the former one, whether they are complete or not."""
        try:
            pointer = json.loads((self.home / _POINTER).read_text(encoding="utf-8"))
            names = [pointer["current"], pointer["former"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return [InstalledEngine(self.home / name) for name in names if isinstance(name, str) and name]

    def _point(self, engine: InstalledEngine, former: InstalledEngine | None) -> None:
        names = [self._name(one) for one in (engine, former)]
        make_private(self.home)
        write_atomic(self.home / _POINTER, json.dumps(dict(zip(("current", "former"), names, strict=True))))

    def _name(self, engine: InstalledEngine | None) -> str:
        """Return how the pointer names an engine: within its own folder by the way from there, so that it may move."""
        if engine is None:
            return ""
        with suppress(ValueError):
            return engine.folder.relative_to(self.home).as_posix()
        return str(engine.folder)


def downloads(place: Path) -> Path:
    """Return the folder of fetched files."""
    return place / _DOWNLOADS


def remove_folder(folder: Path) -> None:
    """Remove a folder, or as much of it as no other program holds. Its stamp goes first: half of it is no engine."""
    with suppress(OSError):
        (folder / STAMP).unlink(missing_ok=True)
        shutil.rmtree(folder)
