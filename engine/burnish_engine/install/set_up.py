"""Sets an engine up beside those that are there: fetch, unpack, install, try out, switch.

Until the switch, which is one step, the engine in use stays as it is. What was fetched is kept until then, so that a
set-up that was paused, cut or killed continues; what was unpacked is unpacked again.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish_engine.contract.errors import BurnishError, NoSpaceError, SetupError, StoppedError
from burnish_engine.contract.files import cannot_write, make_private
from burnish_engine.install.engine_process import run_program
from burnish_engine.install.engines import Engines, InstalledEngine, downloads, remove_folder
from burnish_engine.install.files.fetch import Fetcher, missing_bytes
from burnish_engine.install.files.meter import FetchReading, Meter
from burnish_engine.install.files.reasons import install_problem
from burnish_engine.install.files.sources import Source
from burnish_engine.install.machine.setup_checks import DiskNeed, SetupProblem, check_space
from burnish_engine.install.release.description import Release, ReleaseFile, Target
from burnish_engine.install.trial import check_up, try_engine

Stage = Literal["fetching", "unpacking", "installing", "trying"]
_TOOLS = "tools"
_SYNC: Callable[[], None] = getattr(os, "sync", lambda: None)


@dataclass(frozen=True)
class Order:
    """The engine that is to be set up, and where it comes from.

    Attributes:
        release: release that it is of.
        target: kind of machine that it is for.
        sources: places that its files come from, the first that has one first.
        place: folder that it goes into.
    """

    release: Release
    target: Target
    sources: Sequence[Source]
    place: Path

    def missing_bytes(self) -> int:
        """Return the bytes that still have to come over the network."""
        folder = downloads(self.place)
        return sum(
            missing_bytes(folder, file)
            for file in self.target.files
            if not any(source.is_local and source.has(file) for source in self.sources)
        )

    def disk_bytes(self) -> int:
        """Return the bytes that the set-up still writes: downloads, and the engine itself."""
        folder = downloads(self.place)
        missing = sum(missing_bytes(folder, file) for file in self.target.files)
        return missing + self.target.installed_bytes


class SetUpProgress:
    """The progress of a set-up, which the window reads while another thread sets up.

    Attributes:
        stage: what is being done.
        stop: event that pauses the set-up.
    """

    def __init__(self) -> None:
        self.stage: Stage = "fetching"
        self.stop = threading.Event()
        self.meter: Meter | None = None

    def fetching(self, total_bytes: int) -> Meter:
        """Return a new counter of bytes, for a fetch that begins."""
        self.stage, self.meter = "fetching", Meter(total_bytes, self.stop)
        return self.meter

    def reading(self) -> FetchReading | None:
        """Return how far the fetch is; None: it has not begun."""
        return None if self.meter is None else self.meter.reading()

    def check(self) -> None:
        """Raise if the set-up is to pause.

        Raises:
            StoppedError: The set-up was paused.
        """
        if self.stop.is_set():
            raise StoppedError("The set-up was paused.", "It continues where it is.")


def set_up(order: Order, engines: Engines, progress: SetUpProgress) -> InstalledEngine:
    """Set an engine up and switch to it. May be called again after any interruption.

    Args:
        order: engine to set up.
        engines: engines of this PC.
        progress: what is told meanwhile, and the way to pause it.

    Returns:
        The engine, which is in use now.

    Raises:
        StoppedError: The set-up was paused.
        NoSpaceError: The disk is full.
        BurnishError: Something failed; the engine in use stays as it is.
    """
    with engines.locked():
        engines.clear(order.place)
        _check_space(order)
        meter = progress.fetching(order.target.download_bytes)
        Fetcher(downloads(order.place), order.sources, meter).fetch_all(order.target.files)
        engine = _build(order, engines, progress)
        engines.use(engine)
        engines.clear(order.place)
        remove_folder(downloads(order.place))
    return engine


def _build(order: Order, engines: Engines, progress: SetUpProgress) -> InstalledEngine:
    """Make an engine of the fetched files, and try it; what does not work is removed."""
    folder: Path | None = None
    try:
        folder = engines.new_folder(order.place, order.release, order.target)
        _install(order, folder, engines.log, progress)
        progress.stage = "trying"
        python = folder / order.target.python
        try_engine(python, progress.check, uses_gpu=order.target.uses_gpu)
        if engines.current is not None:  # a first engine is kept, and the Hardware page says what is wrong
            check_up(python, progress.check)
        _SYNC()
        engine = InstalledEngine(folder)
        engine.finish(order.release, order.target)
    except (OSError, BurnishError) as error:
        if folder is not None:
            remove_folder(folder)
        raise error if isinstance(error, BurnishError) else cannot_write(order.place, error) from error
    return engine


def _check_space(order: Order) -> None:
    folder = downloads(order.place)
    try:
        make_private(folder)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        check_space([DiskNeed("packages", order.place, 0, free, order.disk_bytes())])
    except SetupProblem as problem:
        raise NoSpaceError(str(problem)) from problem


def _install(order: Order, folder: Path, log: Path, progress: SetUpProgress) -> None:
    """Unpack Python and install the packages into it."""
    fetched = downloads(order.place)
    progress.stage = "unpacking"
    archive = order.target.only("python")

    def filtered(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        progress.check()
        return tarfile.data_filter(member, path)

    try:
        with tarfile.open(fetched / archive.name) as packed:
            packed.extractall(folder, filter=filtered)  # noqa: S202 - by `data_filter`
    except (tarfile.TarError, EOFError) as error:
        raise SetupError(f"{archive.name} cannot be unpacked: {error}.", "Take another release.") from error
    uv = _unpack_uv(fetched / order.target.only("uv").name, folder / _TOOLS)
    progress.stage = "installing"
    wheels = [file for file in order.target.files if file.kind == "wheel"]
    requirements = folder / _TOOLS / "requirements.txt"
    requirements.write_text("".join(_requirement(file) for file in wheels), encoding="utf-8")
    command = [str(uv), "pip", "install", "--python", str(folder / order.target.python)]
    command += ["--break-system-packages", "--offline", "--no-config", "--no-index", "--find-links", str(fetched)]
    command += ["--no-deps", "--require-hashes", "--no-build", "--cache-dir", str(folder / _TOOLS / "cache")]
    _run([*command, "-r", str(requirements)], log, progress)
    shutil.rmtree(folder / _TOOLS)


def _requirement(file: ReleaseFile) -> str:
    name, version = file.package
    return f"{name}=={version} --hash=sha256:{file.sha256}\n"


def _unpack_uv(wheel: Path, folder: Path) -> Path:
    """Unpack the program uv from its wheel; returns its path."""
    folder.mkdir()
    try:
        with zipfile.ZipFile(wheel) as packed:
            name = next(one for one in packed.namelist() if one.endswith(("/scripts/uv", "/scripts/uv.exe")))
            path = folder / Path(name).name
            path.write_bytes(packed.read(name))
    except (StopIteration, zipfile.BadZipFile) as error:
        raise SetupError(f"{wheel.name} holds no uv.", "Take another release.") from error
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _run(command: list[str], log: Path, progress: SetUpProgress) -> None:
    """Run uv, with what it says in a log; end it when the set-up is paused."""
    with log.open("wb") as sink:
        code = run_program(command, progress.check, output=sink, errors=sink)
    if code:
        raise install_problem(log.read_text(encoding="utf-8", errors="replace"), log)
