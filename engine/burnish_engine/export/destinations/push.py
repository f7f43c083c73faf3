"""Push verified files to a model hub: a separate act, never part of an export.

huggingface_hub refuses every connection in a process that was started offline, as Burnish's processes are, so a worker
process with network access uploads. It sends one commit: either all files are there or none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from burnish_engine.contract.errors import SetupError, StoppedError, UsageError
from burnish_engine.contract.paths import is_hub_name
from burnish_engine.contract.units import file_size
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.staging import Canceled, never
from burnish_engine.export.checks.checksums import CHECKSUMS
from burnish_engine.export.model_card import CARD
from burnish_engine.export.verify.report import REPORT, read_report
from burnish_engine.export.weights.folders import Progress, no_progress
from burnish_engine.hub.endpoint import endpoint
from burnish_engine.hub.failures import read_failure
from burnish_engine.runs.file_hashes import sha256_file

_POLL_S = 0.2


def files_to_push(folder: Path) -> list[Path]:
    """List the files of an export that passed and are unchanged since, with their card, checksums and report.

    Raises:
        UsageError: There is no report, nothing passed, or a file was changed since.
    """
    report = read_report(folder)
    passed = [file for file in report.files if file.passed] if report is not None else []
    if not passed:
        raise UsageError(f"{folder} holds no verified file to push.", "Export the run first.")
    for file in passed:
        path = folder / file.file
        if not path.is_file() or sha256_file(path) != file.sha256:
            raise UsageError(f"{path} is not the file that was verified.", "Export the run again.")
    beside = [folder / name for name in (CARD, CHECKSUMS, REPORT)]
    return [*(folder / file.file for file in passed), *(path for path in beside if path.is_file())]


def push(
    folder: Path,
    repository: str,
    *,
    private: bool = True,
    progress: Progress = no_progress,
    canceled: Canceled = never,
) -> str:
    """Send an export's verified files to a hub in one commit.

    HF_ENDPOINT names another hub; HF_TOKEN or an earlier `hf auth login` supplies the access token.

    Args:
        folder: folder of the export.
        repository: OWNER/NAME; created if missing.
        private: whether a new repository is private.
        progress: callback given the current activity and the share done.
        canceled: callback ; after True nothing is committed.

    Returns:
        URL of the files.

    Raises:
        UsageError: The repository's name or HF_ENDPOINT is invalid, or there is nothing to push.
        SetupError: The hub refused or cannot be reached; nothing was committed.
        StoppedError: Canceled.
    """
    if not is_hub_name(repository):
        raise UsageError(f"{repository!r} is no name of a repository.", "Give OWNER/NAME.")
    endpoint()  # refuses an HF_ENDPOINT that is no web address
    files = files_to_push(folder)
    total = sum(path.stat().st_size for path in files)
    progress(EXPORT_STAGES["push"].format(size=file_size(total), repository=repository), 0.0)
    request = {"repository": repository, "private": private, "files": [str(path) for path in files]}
    environment = {name: value for name, value in os.environ.items() if name != "TRANSFORMERS_OFFLINE"}
    environment |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "burnish_engine.export.destinations.push_worker", json.dumps(request)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env=environment,
    )
    try:
        while True:
            try:
                answer, _ = worker.communicate(timeout=_POLL_S)
                break
            except subprocess.TimeoutExpired:
                if canceled():
                    raise StoppedError("The push was stopped.", "Nothing was committed; push again any time.") from None
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    if worker.returncode:
        raise SetupError(
            f"The files could not be pushed to {repository}: {read_failure(answer).text}.",
            "Check the connection, the name and the access token (HF_TOKEN); nothing was committed.",
        )
    progress(EXPORT_STAGES["done"], 1.0)
    return str(json.loads(answer.splitlines()[-1])["url"])
