"""Asks the `datasets` library which files of a folder hold which split, in a process that ends with the answer.

Other code never imports `datasets`: it would take a second and 100 MB. The process is `python -m` this module: its
argument is the folder, and its output a JSON object with either `splits` (name to paths within the folder) or `error`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.files.problems import shorten

_SAVED = ("state.json", "dataset_dict.json")  # files that `save_to_disk` writes
_CARD = "README.md"
_LONGEST_S = 300


def splits_of(folder: Path) -> dict[str, list[str]] | None:
    """Return the files of each split of a dataset that `datasets` saved, or whose card lists its files.

    Args:
        folder: folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote, or a copy of a hub dataset.

    Returns:
        Name of each split to its files, as paths within the folder with slashes; None where the folder is neither, or
        its card does not say which of several configurations is meant.

    Raises:
        DataError: The folder is a damaged saved dataset, or lists files outside of itself.
    """
    saved = any((folder / name).is_file() for name in _SAVED)
    if not saved and not _lists_files(folder / _CARD):
        return None
    stamps = tuple(_stamp(folder / name) for name in (*_SAVED, _CARD))
    answer = _ask(str(folder.absolute()), stamps)
    if "error" in answer:
        if not saved:
            return None
        raise DataError(
            f"{folder} is not a whole dataset as `datasets` saves it: {shorten(answer['error'], 160)}.",
            "Save or copy it again, or give its files themselves.",
        )
    splits: dict[str, list[str]] = answer["splits"]
    for name in [name for names in splits.values() for name in names]:
        path = Path(name)
        if path.is_absolute() or ".." in path.parts or not (folder / path).is_file():
            raise DataError(f"{folder} lists the file {shorten(name)}, which is not in it.", "Save or copy it again.")
    return splits


def _lists_files(card: Path) -> bool:
    """Whether a dataset card names the files of its configurations."""
    try:
        with card.open(encoding="utf-8", errors="replace") as stream:
            head = stream.read(2**16)
    except OSError:
        return False
    return head.startswith("---") and "data_files" in head.split("\n---", 1)[0]


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=64)
def _ask(folder: str, _stamps: tuple[int, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": cache}
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "burnish_engine.data.files.dataset_folders", folder],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                check=False, timeout=_LONGEST_S,
            )  # fmt: skip
            answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
            return {"error": "`datasets` gave no answer"}
    return answer


def _saved_splits(folder: Path) -> dict[str, list[str]]:
    from datasets import DatasetDict, load_from_disk

    found = load_from_disk(str(folder), keep_in_memory=False)
    splits = found if isinstance(found, DatasetDict) else {str(found.split or ""): found}
    return {str(name): [file["filename"] for file in split.cache_files] for name, split in splits.items()}


def _listed_splits(folder: Path) -> dict[str, list[str]]:
    from datasets import load_dataset_builder

    files = load_dataset_builder(str(folder)).config.data_files
    return {str(split): [str(name) for name in names] for split, names in files.items()}


def main(name: str) -> int:
    """Print the answer for a folder; return the process's exit status."""
    folder = Path(name)
    find = _saved_splits if any((folder / name).is_file() for name in _SAVED) else _listed_splits
    try:
        splits = {
            split: [os.path.relpath(file, folder).replace(os.sep, "/") for file in files]
            for split, files in find(folder).items()
        }
        answer: dict[str, Any] = {"splits": splits}
    except Exception as error:  # noqa: BLE001  whatever it is, the other process says it in words
        answer = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
