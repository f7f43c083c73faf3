"""Downloads a model by name for `burnish models fetch`, whole and checked.

The files are written to a staging folder, under `.partial` in the folder of models. The folder gets the name under
which recipes find it only when every file has the checksum that the hub announced. An interrupted download is resumed
by the next attempt.
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

from burnish_engine.contract.errors import NoSpaceError, SetupError, UsageError
from burnish_engine.contract.facts.advice import CatalogModel
from burnish_engine.contract.files import cannot_write, make_private, replace_with_retry, sync_folder
from burnish_engine.contract.paths import fetched_model_dir, is_hub_name, models_dir
from burnish_engine.contract.units import file_size
from burnish_engine.contract.wording.tables import DOWNLOAD_STAGES
from burnish_engine.hub.client import Canceled, HubClient, TransientError, raise_if_canceled
from burnish_engine.hub.download import FileDownload, RetryPolicy, part_path, sha256_if_whole
from burnish_engine.hub.files import (
    HubFile,
    ModelAnswer,
    ModelListing,
    index_file,
    needs_index,
    settings_files,
    weight_files,
)
from burnish_engine.hub.integrity import check_files
from burnish_engine.hub.manifest import FetchedFile, Manifest, read_manifest, write_manifest
from burnish_engine.hub.offline import OFFLINE_VARIABLE, is_offline

Progress = Callable[[str, int, int], None]
"""Callback that is given the current activity, the downloaded bytes, and all bytes (0: not known yet)."""

_MARGIN_BYTES = 500_000_000  # left free on the disk for the system and the first run's files
_REPORT_EVERY_S = 0.1
_FIRST_ATTEMPTS = 4  # attempts within about 7 s, so that a missing network is reported soon


def fetch(
    name: str,
    *,
    token: str = "",
    revision: str = "main",
    progress: Progress | None = None,
    canceled: Canceled | None = None,
    catalog_entry: CatalogModel | None = None,
    listed: Callable[[ModelListing], None] | None = None,
) -> Path:
    """Download the files of a model that training needs, or resume an interrupted download.

    Args:
        name: name of the model, such as "Qwen/Qwen3-0.6B".
        token: access token for gated and private models; empty takes HF_TOKEN. It is sent to the hub only, and never
            stored.
        revision: branch, tag or commit.
        progress: callback for progress, called about ten times a second.
        canceled: function that is asked often; True stops the download, which the next call resumes.
        catalog_entry: catalog's entry of the model; its license counts where the model's page names none.
        listed: callback that is given the list of files and the license before the download; it may raise to refuse.

    Returns:
        Folder of the model, which `models.checkpoint.source.open_model(name)` opens.

    Raises:
        UsageError: The name is no model's name, or the hub has no such model or revision.
        SetupError: The environment asks for no network, the hub was not reached, the terms were not accepted, the model
            cannot be trained, or the bytes are wrong.
        NoSpaceError: The disk has too little space, or a file could not be written.
        StoppedError: The download was canceled.
    """
    asked = canceled or (lambda: False)
    check_name(name)
    _refuse_offline(name)
    client = HubClient((token or os.environ.get("HF_TOKEN", "")).strip(), asked)
    with client, _DownloadLock(name, progress, asked):
        try:
            work = _ModelDownload(client, name, revision, progress=progress, canceled=asked, entry=catalog_entry)
            return work.run(listed)
        except OSError as error:
            raise cannot_write(fetched_model_dir(name), error) from error


def discard(name: str, wait_s: float = 30.0) -> None:
    """Delete what an unfinished download left, once no process is at it.

    Args:
        name: name of the model.
        wait_s: longest time to wait for a process that is at it, seconds; one that was told to end takes less.

    Raises:
        NoSpaceError: The folder of models cannot be written.
        StoppedError: Another process continues with the download, so nothing was deleted.
    """
    last = time.monotonic() + wait_s
    with _DownloadLock(name, None, lambda: time.monotonic() > last):
        shutil.rmtree(_staging_folder(name), ignore_errors=True)


def check_name(name: str) -> None:
    """Check that a name can be a model's on a hub, and so become a folder's.

    Raises:
        UsageError: The name cannot.
    """
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


class _DownloadLock(AbstractContextManager[None]):
    """Locks a model's download over all processes; a second download of it reports that and waits.

    Args:
        name: name of the model.
        progress: callback that is called while it waits.
        canceled: function that is asked while it waits; True stops the download.
    """

    def __init__(self, name: str, progress: Progress | None, canceled: Canceled) -> None:
        self._name, self._progress, self._canceled = name, progress, canceled
        self._lock = FileLock(str(_staging_folder(name)) + ".lock")

    def __enter__(self) -> None:
        try:
            make_private(_staging_folder(self._name).parent)
            while True:
                try:
                    self._lock.acquire(timeout=0.2)
                except Timeout:
                    if self._progress:
                        self._progress(DOWNLOAD_STAGES["wait"].format(name=self._name), 0, 0)
                    raise_if_canceled(self._canceled)
                else:
                    return
        except OSError as error:
            raise cannot_write(_staging_folder(self._name), error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def _staging_folder(name: str) -> Path:
    return models_dir() / ".partial" / fetched_model_dir(name).name


class _ModelDownload:
    """One download of one model, into the staging folder and from there to its place."""

    def __init__(
        self,
        client: HubClient,
        name: str,
        revision: str,
        *,
        progress: Progress | None,
        canceled: Canceled,
        entry: CatalogModel | None,
    ) -> None:
        self._client, self._name, self._revision = client, name, revision
        self._canceled, self._entry = canceled, entry
        self._reporter = _ProgressReporter(progress)
        self._target = fetched_model_dir(name)
        self._staging_folder = _staging_folder(name)
        self._files, self._parts = self._staging_folder / "files", self._staging_folder / "parts"

    def run(self, listed: Callable[[ModelListing], None] | None) -> Path:
        self._reporter.report(DOWNLOAD_STAGES["ask"].format(name=self._name), 0)
        answer = self._ask()
        manifest = read_manifest(self._target)
        if manifest and manifest.commit == answer.sha and self._is_intact(manifest):
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

    def _is_intact(self, manifest: Manifest) -> bool:
        """Whether the model that is here is as it was published; files that did not change are read once only."""

        def progress(name: str, done: int, total: int) -> None:
            raise_if_canceled(self._canceled)
            self._reporter.total = total
            self._reporter.report(DOWNLOAD_STAGES["check"].format(name=name), done)

        try:
            return manifest.is_whole(self._target) and bool(check_files(self._target, progress))
        except SetupError:
            return False

    def _ask(self) -> ModelAnswer:
        retries = RetryPolicy(self._canceled, attempts=_FIRST_ATTEMPTS)
        while True:
            try:
                return self._client.model(self._name, self._revision)
            except TransientError as failure:
                self._reporter.report(
                    DOWNLOAD_STAGES["retry"].format(problem=failure.problem.what.rstrip(".")), 0, now=True
                )
                retries.wait(failure)

    def _refuse_gated(self, answer: ModelAnswer) -> None:
        if answer.disabled:
            raise SetupError(f"{self._name} was disabled on the hub.", "Choose another model.")
        if answer.gated and not self._client.has_token:
            raise self._client.gated(self._name)

    def _list(self, answer: ModelAnswer) -> ModelListing:
        files = settings_files(answer)
        index = None
        if needs_index(answer):
            listed = index_file(answer)
            index = self._files / listed.name
            if not sha256_if_whole(index, listed, self._canceled):
                self._get(answer.sha, listed, 0)
            files.append(listed)
        files += weight_files(answer, index)
        return ModelListing(
            name=self._name,
            revision=self._revision,
            commit=answer.sha,
            license=answer.license or (self._entry.license if self._entry else ""),
            license_note=self._entry.license_note if self._entry else "",
            gated=bool(answer.gated),
            files=tuple(files),
            downloaded_bytes=sum(self._downloaded_bytes(file) for file in files),
        )

    def _downloaded_bytes(self, file: HubFile) -> int:
        for path in (self._files / file.name, part_path(self._parts, file)):
            if path.is_file():
                return min(path.stat().st_size, file.bytes)
        return 0

    def _check_space(self, listing: ModelListing) -> None:
        missing = listing.total_bytes - listing.downloaded_bytes
        free = shutil.disk_usage(self._staging_folder).free
        if free < missing + _MARGIN_BYTES:
            raise NoSpaceError(
                f"{self._name} needs {file_size(missing)} more in {models_dir()}, and {file_size(_MARGIN_BYTES)} "
                f"should stay free; {file_size(free)} are free.",
                "Free some space, or move Burnish's folder with BURNISH_HOME.",
            )

    def _download_all(self, listing: ModelListing) -> list[FetchedFile]:
        self._remove_other_files(listing)
        self._reporter.total = listing.total_bytes
        done: list[FetchedFile] = []
        before = 0
        for file in listing.files:
            path = self._files / file.name
            self._reporter.report(DOWNLOAD_STAGES["check"].format(name=file.name), before)
            sha256 = sha256_if_whole(path, file, self._canceled) or self._get(listing.commit, file, before)
            done.append(FetchedFile(name=file.name, bytes=file.bytes, sha256=sha256))
            before += file.bytes
        self._reporter.report(DOWNLOAD_STAGES["done"], before, now=True)
        return done

    def _get(self, commit: str, file: HubFile, before: int) -> str:
        download = FileDownload(
            self._client,
            self._name,
            commit,
            file,
            part_path(self._parts, file),
            on_advance=lambda what, count: self._reporter.report(what, before + count),
            canceled=self._canceled,
        )
        return download.run(self._files / file.name)

    def _remove_other_files(self, listing: ModelListing) -> None:
        """Remove the files that an attempt at another revision left."""
        names = {file.name for file in listing.files}
        parts = {part_path(self._parts, file).name for file in listing.files}
        for folder, wanted in ((self._files, names), (self._parts, parts)):
            for path in folder.iterdir():
                if path.name not in wanted:
                    path.unlink()

    def _finish(self, listing: ModelListing, files: list[FetchedFile]) -> None:
        """Move the staged files to the model's folder; an older copy moves away first, and back if that fails."""
        manifest = Manifest(
            name=self._name,
            revision=listing.revision,
            commit=listing.commit,
            license=listing.license,
            fetched=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            files=files,
        )
        write_manifest(self._files, manifest)
        old = self._staging_folder / "old"
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
        shutil.rmtree(self._staging_folder, ignore_errors=True)


class _ProgressReporter:
    """Passes progress on, at most ten times a second unless told to report now."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._reported_s = -_REPORT_EVERY_S
        self.total = 0

    def report(self, what: str, done: int, *, now: bool = False) -> None:
        moment = time.monotonic()
        if self._progress and (now or moment - self._reported_s >= _REPORT_EVERY_S):
            self._reported_s = moment
            self._progress(what, done, self.total)
