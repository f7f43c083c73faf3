"""`burnish models fetch`: a model by name, whole and checked, or nothing that looks like one.

Everything is written aside, under `.partial` in the folder of models. Only when every file has the checksum that the
hub announced does the folder get the name under which recipes find it. What an interrupted attempt left there is used
by the next one.
"""

from __future__ import annotations

import datetime
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from burnish_engine.contract.advice import CatalogModel
from burnish_engine.contract.errors import NoSpaceError, SetupError, UsageError
from burnish_engine.contract.files import cannot_write, make_private, replace_with_retry, sync_folder
from burnish_engine.contract.paths import fetched_model_dir, is_hub_name, models_dir
from burnish_engine.contract.units import file_size
from burnish_engine.hub.client import HubClient, TryAgainError
from burnish_engine.hub.download import Cancelled, FileDownload, Patience, part_path, sha256_if_whole, stop_if
from burnish_engine.hub.files import (
    HubFile,
    Listing,
    ModelAnswer,
    index_file,
    needs_index,
    settings_files,
    weight_files,
)
from burnish_engine.hub.manifest import FetchedFile, Manifest, read_manifest, write_manifest
from burnish_engine.hub.offline import OFFLINE_VARIABLE, is_offline

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the bytes that are there, and all bytes (0: not known yet)."""

_MARGIN_BYTES = 500_000_000  # left free on the disk for the system and the first run's files
_TELL_EVERY_S = 0.1
_FIRST_ATTEMPTS = 4  # about 7 s: whoever has no network learns so soon


def fetch(
    name: str,
    *,
    token: str = "",
    revision: str = "main",
    progress: Progress | None = None,
    cancelled: Cancelled | None = None,
    catalog_entry: CatalogModel | None = None,
    listed: Callable[[Listing], None] | None = None,
) -> Path:
    """Download what training needs of a model, or go on with an interrupted download.

    Args:
        name: Such as "Qwen/Qwen3-0.6B".
        token: Access token, for gated and private models; by default that of HF_TOKEN. Sent to the hub only, never
            stored.
        revision: Branch, tag or commit.
        progress: Told how far it is, about ten times a second.
        cancelled: Asked often; True stops, and what is there stays for the next time.
        catalog_entry: What the catalog knows of the model: its license, where the model's page says nothing.
        listed: Told what will be downloaded, under which license, before it starts. May raise to refuse.

    Returns:
        The model's folder. `models.source.open_model(name)` opens it.

    Raises:
        UsageError: Not a model's name, or the hub has no such model or revision.
        SetupError: No network wanted, the hub not reached, terms not accepted, no trainable model, or wrong bytes.
        NoSpaceError: Not enough disk, or it could not be written.
        StoppedError: It was canceled.
    """
    asked = cancelled or (lambda: False)
    _check_name(name)
    _refuse_offline(name)
    client = HubClient((token or os.environ.get("HF_TOKEN", "")).strip())
    with client, _Turn(name, progress, asked):
        try:
            work = _Fetch(client, name, revision, progress=progress, cancelled=asked, entry=catalog_entry)
            return work.run(listed)
        except OSError as error:
            raise cannot_write(fetched_model_dir(name), error) from error


def _check_name(name: str) -> None:
    if not is_hub_name(name) or "--" in name:
        raise UsageError(
            f"{name!r} is no name of a model on a hub.",
            "It has the form owner/model, such as HuggingFaceTB/SmolLM2-135M-Instruct.",
        )


def _refuse_offline(name: str) -> None:
    if not is_offline():
        return
    folder = fetched_model_dir(name)
    here = f" The model is already on this machine, in {folder}." if read_manifest(folder) else ""
    raise SetupError(
        f"{name} is not downloaded: the environment asks for no network (HF_HUB_OFFLINE or {OFFLINE_VARIABLE}).{here}",
        f"Unset them, or set {OFFLINE_VARIABLE}=0 for Burnish alone.",
    )


class _Turn(AbstractContextManager[None]):
    """One download of a model at a time, over all processes; the second says so and waits.

    Args:
        name: The model.
        progress: Told while it waits.
        cancelled: Asked while it waits.
    """

    def __init__(self, name: str, progress: Progress | None, cancelled: Cancelled) -> None:
        self._name, self._progress, self._cancelled = name, progress, cancelled
        self._lock = FileLock(str(_aside(name)) + ".lock")

    def __enter__(self) -> None:
        try:
            make_private(_aside(self._name).parent)
            while True:
                try:
                    self._lock.acquire(timeout=0.2)
                except Timeout:
                    if self._progress:
                        self._progress(f"waiting for another download of {self._name}", 0, 0)
                    stop_if(self._cancelled)
                else:
                    return
        except OSError as error:
            raise cannot_write(_aside(self._name), error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def _aside(name: str) -> Path:
    return models_dir() / ".partial" / fetched_model_dir(name).name


class _Fetch:
    """One download of one model."""

    def __init__(
        self,
        client: HubClient,
        name: str,
        revision: str,
        *,
        progress: Progress | None,
        cancelled: Cancelled,
        entry: CatalogModel | None,
    ) -> None:
        self._client, self._name, self._revision = client, name, revision
        self._cancelled, self._entry = cancelled, entry
        self._teller = _Teller(progress)
        self._target = fetched_model_dir(name)
        self._aside = _aside(name)
        self._files, self._parts = self._aside / "files", self._aside / "parts"

    def run(self, listed: Callable[[Listing], None] | None) -> Path:
        self._teller.tell(f"asking for {self._name}", 0)
        answer = self._ask()
        manifest = read_manifest(self._target)
        if manifest and manifest.commit == answer.sha and manifest.is_whole(self._target):
            return self._target
        self._refuse_gated(answer)
        for folder in (self._files, self._parts):
            make_private(folder)
        listing = self._list(answer)
        self._check_space(listing)
        if listed:
            listed(listing)
        self._finish(listing, self._download_all(listing))
        return self._target

    def _ask(self) -> ModelAnswer:
        patience = Patience(self._cancelled, attempts=_FIRST_ATTEMPTS)
        while True:
            try:
                return self._client.model(self._name, self._revision)
            except TryAgainError as failure:
                self._teller.tell(f"waiting: {failure.problem.what.rstrip('.')}; trying again", 0, now=True)
                patience.wait(failure)

    def _refuse_gated(self, answer: ModelAnswer) -> None:
        if answer.disabled:
            raise SetupError(f"{self._name} was disabled on the hub.", "Choose another model.")
        if answer.gated and not self._client.has_token:
            raise self._client.gated(self._name)

    def _list(self, answer: ModelAnswer) -> Listing:
        files = settings_files(answer)
        index = None
        if needs_index(answer):
            listed = index_file(answer)
            index = self._files / listed.name
            if not sha256_if_whole(index, listed, self._cancelled):
                self._get(answer.sha, listed, 0)
            files.append(listed)
        files += weight_files(answer, index)
        return Listing(
            name=self._name,
            revision=self._revision,
            commit=answer.sha,
            license=answer.license or (self._entry.license if self._entry else ""),
            license_note=self._entry.license_note if self._entry else "",
            gated=bool(answer.gated),
            files=tuple(files),
            here_bytes=sum(self._bytes_here(file) for file in files),
        )

    def _bytes_here(self, file: HubFile) -> int:
        for path in (self._files / file.name, part_path(self._parts, file)):
            if path.is_file():
                return min(path.stat().st_size, file.bytes)
        return 0

    def _check_space(self, listing: Listing) -> None:
        missing = listing.total_bytes - listing.here_bytes
        free = shutil.disk_usage(self._aside).free
        if free < missing + _MARGIN_BYTES:
            raise NoSpaceError(
                f"{self._name} needs {file_size(missing)} more in {models_dir()}, and {file_size(_MARGIN_BYTES)} "
                f"should stay free; {file_size(free)} are free.",
                "Free some space, or move Burnish's folder with BURNISH_HOME.",
            )

    def _download_all(self, listing: Listing) -> list[FetchedFile]:
        self._drop_strangers(listing)
        self._teller.total = listing.total_bytes
        done: list[FetchedFile] = []
        before = 0
        for file in listing.files:
            path = self._files / file.name
            self._teller.tell(f"checking {file.name}", before)
            sha256 = sha256_if_whole(path, file, self._cancelled) or self._get(listing.commit, file, before)
            done.append(FetchedFile(name=file.name, bytes=file.bytes, sha256=sha256))
            before += file.bytes
        self._teller.tell("done", before, now=True)
        return done

    def _get(self, commit: str, file: HubFile, before: int) -> str:
        download = FileDownload(
            self._client,
            self._name,
            commit,
            file,
            part_path(self._parts, file),
            advanced=lambda what, count: self._teller.tell(what, before + count),
            cancelled=self._cancelled,
        )
        return download.run(self._files / file.name)

    def _drop_strangers(self, listing: Listing) -> None:
        """Remove what an attempt at another revision left."""
        names = {file.name for file in listing.files}
        parts = {part_path(self._parts, file).name for file in listing.files}
        for folder, wanted in ((self._files, names), (self._parts, parts)):
            for path in folder.iterdir():
                if path.name not in wanted:
                    path.unlink()

    def _finish(self, listing: Listing, files: list[FetchedFile]) -> None:
        """Give the folder its name; an older copy steps aside first, and comes back where that fails."""
        manifest = Manifest(
            name=self._name,
            revision=listing.revision,
            commit=listing.commit,
            license=listing.license,
            fetched=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            files=files,
        )
        write_manifest(self._files, manifest)
        old = self._aside / "old"
        shutil.rmtree(old, ignore_errors=True)
        if self._target.exists():
            replace_with_retry(self._target, old)
        try:
            replace_with_retry(self._files, self._target)
        except OSError:
            if old.exists():
                replace_with_retry(old, self._target)
            raise
        sync_folder(self._target.parent)
        shutil.rmtree(self._aside, ignore_errors=True)


class _Teller:
    """Passes progress on, not too often."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._told_s = -_TELL_EVERY_S
        self.total = 0

    def tell(self, what: str, done: int, *, now: bool = False) -> None:
        moment = time.monotonic()
        if self._progress and (now or moment - self._told_s >= _TELL_EVERY_S):
            self._told_s = moment
            self._progress(what, done, self.total)
