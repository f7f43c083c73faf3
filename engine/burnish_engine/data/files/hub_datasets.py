"""Locates datasets of the hub in the cache of huggingface_hub and `datasets`, and downloads missing ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, NoSpaceError, SetupError, UsageError
from burnish_engine.contract.paths import is_hub_name
from burnish_engine.hub.endpoint import endpoint
from burnish_engine.hub.failures import HubFailure, read_failure
from burnish_engine.hub.offline import OFFLINE_VARIABLE, is_offline

HUB_PREFIX = "hf://datasets/"
"""Prefix of a hub dataset in a recipe: `hf://datasets/OWNER/NAME@REVISION`, huggingface_hub's form."""

_DATA = [
    f"**/*.{ending}{packing}"
    for ending in ("parquet", "arrow", "jsonl", "json", "csv", "tsv", "txt", "md")
    for packing in ("", ".gz", ".zst")
] + ["**/*.zip"]


def dataset_name(address: str) -> tuple[str, str]:
    """Take the name and the revision out of the address of a dataset; the revision is empty where none is named.

    Args:
        address: `hf://datasets/OWNER/NAME`, optionally with `@REVISION`: a branch, a tag or a commit.

    Raises:
        UsageError: The address has another form.
    """
    name, _, revision = address.removeprefix(HUB_PREFIX).partition("@")
    if not address.startswith(HUB_PREFIX) or not is_hub_name(name):
        raise UsageError(
            f"{address!r} is no address of a dataset. Of addresses, only those of datasets on the hub are read, of the "
            f"form {HUB_PREFIX}OWNER/NAME@REVISION.",
            f"Give such a one, as in {HUB_PREFIX}tatsu-lab/alpaca@main, or download the files and give their path.",
        )
    return name, revision


def hub_folder(address: str) -> Path:
    """Return the folder with a dataset's files, after downloading them if they are not on this machine.

    Args:
        address: address as in `dataset_name`. A branch or tag means the commit that it named at the first download.

    Raises:
        UsageError: The address has another form, or the hub has no such dataset.
        SetupError: The dataset is not on this machine, and the environment asks for no network, the hub was not
            reached or it refused.
        NoSpaceError: The disk is full.
    """
    name, revision = dataset_name(address)
    endpoint()  # refuses an HF_ENDPOINT that is no web address
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

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
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "burnish_engine.data.files.hub_worker", name, revision, *_DATA],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
        text=True, encoding="utf-8",
    )  # fmt: skip
    if done.returncode:
        raise _problem(name, revision, read_failure(done.stdout))
    return Path(json.loads(done.stdout.splitlines()[-1])["folder"])


def _problem(name: str, revision: str, failure: HubFailure) -> BurnishError:
    """Return the error for a failed download, with what the person can do about it."""
    what = f"The dataset {name} could not be downloaded: {failure.text}."
    match failure.kind:
        case "missing":
            return UsageError(
                f"The hub has no dataset {name} of revision {revision or 'main'} that this account may see "
                f"({failure.text}).",
                "Check the spelling, capitals included; a private one needs an access token in HF_TOKEN.",
            )
        case "gated":
            return SetupError(what, f"Accept its terms on the page of {name}, and give an access token in HF_TOKEN.")
        case "unreached":
            return SetupError(what, "Check the network, then start it again; or give files that are on this machine.")
        case "disk":
            return NoSpaceError(what, "Free some space, or move the hub's cache with HF_HOME.")
        case _:
            return SetupError(what, "Start it again later, or give files that are on this machine.")
