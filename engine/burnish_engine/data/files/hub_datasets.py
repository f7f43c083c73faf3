"""Locates datasets of the hub in the cache of huggingface_hub and `datasets`, and downloads missing ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.paths import is_hub_name
from burnish_engine.hub.offline import OFFLINE_VARIABLE, is_offline

HUB_PREFIX = "hf://datasets/"
"""Prefix of a hub dataset in a recipe: `hf://datasets/OWNER/NAME@REVISION`, huggingface_hub's form."""

_NO_SUCH = re.compile(r"\b(Repository|Revision)NotFoundError\b")
"""Errors of huggingface_hub for a missing dataset or revision; it raises LocalEntryNotFoundError where the hub is not
reached."""
_DATA = [
    f"**/*.{ending}{packing}"
    for ending in ("parquet", "arrow", "jsonl", "json", "csv", "tsv", "txt", "md")
    for packing in ("", ".gz", ".zst")
] + ["**/*.zip"]


def hub_folder(address: str) -> Path:
    """Return the folder with a dataset's files, after downloading them if they are not on this machine.

    Args:
        address: `hf://datasets/OWNER/NAME`, optionally with `@REVISION`: a branch, a tag or a commit. A branch or tag
            means the commit that it named at the first download.

    Raises:
        UsageError: The address has another form, or the hub has no such dataset.
        SetupError: The dataset is not on this machine, and the environment asks for no network or the hub was not
            reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    name, _, revision = address.removeprefix(HUB_PREFIX).partition("@")
    if not is_hub_name(name):
        raise UsageError(
            f"{address!r} is no address of a dataset.",
            f"It has the form {HUB_PREFIX}OWNER/NAME@REVISION, such as {HUB_PREFIX}tatsu-lab/alpaca@main.",
        )
    try:
        return Path(
            snapshot_download(
                name, repo_type="dataset", revision=revision or None, allow_patterns=_DATA, local_files_only=True
            )
        )
    except (LocalEntryNotFoundError, OSError, ValueError):
        pass
    if is_offline():
        raise SetupError(
            f"The dataset {name} is not on this machine, and no network is wanted (HF_HUB_OFFLINE or "
            f"{OFFLINE_VARIABLE} is set).",
            f"Unset them, or set {OFFLINE_VARIABLE}=0 for Burnish alone, or give the files themselves.",
        )
    return _download(name, revision)


def _download(name: str, revision: str) -> Path:
    """Download in another process, since huggingface_hub reads HF_HUB_OFFLINE once and Burnish sets it in this one."""
    import subprocess
    import sys

    code = (
        "import sys; from huggingface_hub import snapshot_download as get; "
        "print(get(sys.argv[1], repo_type='dataset', revision=sys.argv[2] or None, allow_patterns=sys.argv[3:]))"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, name, revision, *_DATA],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
        if _NO_SUCH.search(done.stderr):
            raise UsageError(f"The hub has no dataset {name} of revision {revision or 'main'}: {said}", "Check both.")
        raise SetupError(f"The dataset {name} could not be downloaded: {said}", "Check the network and try again.")
    return Path(done.stdout.strip().splitlines()[-1])
