"""The engines of this PC: versions side by side, the one in use, and the one before it.

An engine is a folder with a standalone Python, in whose own folder the packages are, so that it can be moved. Its
stamp is written last: a folder without one is unfinished. Which engine is in use stands in one small file, which is
replaced in one step:

    <user data folder>/engine/current.json     the engine in use and the one before it
    <user data folder>/engine/set-up.log       what the last installation of packages said
    <place>/engines/<version>-<build>-<number>/   an engine; the place is <user data folder>/engine, or as chosen
    <place>/downloads/                         files that were fetched for the next one
"""

from __future__ import annotations

import hashlib
import json
import platform
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
_POINTER, _LOCK, _LOG = "current.json", "setup.lock", "set-up.log"
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
        """Whether it was set up to its end, its stamp can be read, and its Python is there."""
        try:
            return bool(self.target.files) and is_file(self.python)
        except SetupError:
            return False

    @cached_property
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
    def log(self) -> Path:
        """The file of what the last installation of packages said."""
        return self.home / _LOG

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
        """The folder in which engines lie: the one of the engine in use, at first the one that was chosen."""
        pointed = self._pointed()
        return pointed[0].place if pointed else self.home / self._pointer().get("place", "")

    def choose(self, place: Path) -> None:
        """Remember where the first engine goes, so that its set-up continues there after a restart.

        Raises:
            NoSpaceError: The pointer cannot be written.
        """
        self._write_pointer({**self._pointer(), "place": str(place.absolute())})

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
            LeasedError: Another process is setting an engine up.
        """
        with self.locked():
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
        version = re.sub(r"[^0-9A-Za-z.]", "_", release.version)
        folder = place / _ENGINES / f"{version}-{target.build}-{secrets.token_hex(3)}"
        folder.mkdir(parents=True)
        return folder

    def place_in(self, chosen: Path) -> Path:
        """Return the folder for this PC's engines in a folder that a person chose.

        What is removed later is so never the person's own, nor of another PC or account that uses the same drive.
        """
        whose = f"{platform.node()}\0{self.home.absolute()}"
        name = f"burnish-engine-{hashlib.sha256(whose.encode(errors='surrogateescape')).hexdigest()[:8]}"
        return chosen if chosen.name == name else chosen / name

    def clear(self, place: Path) -> None:
        """Remove what no pointer names: unfinished engines and those older than the former one. What is held stays."""
        kept = {key for engine in self._pointed() for key in _keys_of(engine.folder)}
        for folder in (place / _ENGINES).glob("*"):
            if folder.is_symlink() or (folder.is_dir() and _key_of(folder) not in kept):
                remove_folder(folder)

    def remove(self) -> None:
        """Remove all engines and downloads; runs, models and settings stay.

        Raises:
            SetupError: Another program holds some of their files. The next call removes the rest.
            LeasedError: Another process is setting an engine up.
        """
        with self.locked():
            engines = self._pointed()
            try:
                for engine in engines:  # none of them is in use while the others go
                    (engine.folder / STAMP).unlink(missing_ok=True)
                for place in {engine.place for engine in engines} | {self.place, self.home}:
                    for name in (_ENGINES, _DOWNLOADS):
                        _delete(place / name)
                    if place != self.home:
                        with suppress(OSError):
                            place.rmdir()
                (self.home / _POINTER).unlink(missing_ok=True)
            except OSError as error:
                raise SetupError(
                    f"The engine was not removed completely: {error}.",
                    "End the programs that use it, also this window, and try again.",
                ) from error

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
        names = [self._pointer().get(name, "") for name in ("current", "former")]
        return [InstalledEngine(self.home / name) for name in names if name]

    def _point(self, engine: InstalledEngine, former: InstalledEngine | None) -> None:
        self._write_pointer({"current": self._name(engine), "former": self._name(former)})

    def _pointer(self) -> dict[str, str]:
        try:
            pointer = json.loads((self.home / _POINTER).read_text(encoding="utf-8"))
            return {name: path for name, path in pointer.items() if isinstance(path, str)}
        except (OSError, ValueError, AttributeError):
            return {}

    def _write_pointer(self, pointer: dict[str, str]) -> None:
        make_private(self.home)
        write_atomic(self.home / _POINTER, json.dumps(pointer))

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
        _delete(folder)


def _delete(folder: Path) -> None:
    """Remove a folder with all that can be removed; a link goes, and what it leads to stays.

    Raises:
        OSError: Something in it could not be removed.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    (folder / STAMP).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder)  # the rest again, which says why


def _keys_of(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield the keys of a folder and of those it lies in, however its path is spelled."""
    resolved = folder.resolve()
    for one in (resolved, *resolved.parents):
        with suppress(OSError):
            yield _key_of(one)


def _key_of(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino
