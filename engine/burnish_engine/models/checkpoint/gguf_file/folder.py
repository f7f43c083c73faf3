"""A model folder made of a GGUF: config.json and tokenizer are written to the cache, the weights stay in the file."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from filelock import FileLock

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.files import cannot_write, is_file, make_private, read_plain, replace_with_retry
from burnish_engine.contract.paths import safe_name, user_cache_dir
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.gguf_file.model_config import read_model_config
from burnish_engine.models.checkpoint.gguf_file.tokenizer_files import TOKEN_ARRAYS, tokenizer_files

SUFFIX = ".gguf"
_MAGIC = b"GGUF"
_LAYOUT = 1  # part of the folder's name; raise it when what is written changes
_POINTER = "path-of-gguf"


def is_gguf(path: str) -> bool:
    """Return whether a model is named by its GGUF, which need not exist; Ollama's files have no ending."""
    file = Path(path)
    if path.lower().endswith(SUFFIX):
        return not file.is_dir()
    try:
        if not is_file(file):
            return False
        with file.open("rb") as opened:
            return opened.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def gguf_folder(path: Path) -> Path:
    """Return the model folder of a GGUF; the first call reads the file's header and writes the folder.

    Args:
        path: the file.

    Raises:
        UsageError: There is no such file, it is no GGUF, or no model can be trained from it.
        SetupError: The file is damaged.
        NoSpaceError: The cache cannot be written.
    """
    if not path.is_file():
        raise UsageError(f"The model file {path} does not exist.", "Give the path of a .gguf file.")
    path = path.resolve()
    target = _target(path)
    if (target / _POINTER).is_file():
        return target
    files = _content(path)
    try:
        make_private(target.parent)
        with FileLock(f"{target}.lock"):
            if not (target / _POINTER).is_file():
                _write(files, target)
    except OSError as error:
        raise cannot_write(target, error) from error
    return target


def gguf_of(folder: Path) -> Path | None:
    """Return the GGUF that a model folder was made of; None for other folders.

    Raises:
        SetupError: The file is gone, or is another one by now.
    """
    pointer = folder / _POINTER
    if not pointer.is_file():
        return None
    path = Path(read_plain(pointer))
    if not path.is_file() or _target(path) != folder.resolve():
        raise SetupError(
            f"The model file {path} has {'changed' if path.is_file() else 'gone'} since it was opened.",
            "Open the model again by its path.",
        )
    return path


def _target(path: Path) -> Path:
    stat = path.stat()
    key = hashlib.sha256(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()).hexdigest()[:16]
    return (user_cache_dir() / "models" / f"gguf-v{_LAYOUT}-{safe_name(path.stem, 'model')}-{key}").resolve()


def _content(path: Path) -> dict[str, str]:
    """Return the folder's files by name."""
    header = read_header(path, TOKEN_ARRAYS)
    config = read_model_config(path, header)
    generation = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {
        "config.json": _json(config),
        "generation_config.json": _json(generation),
        **tokenizer_files(path, header),
        _POINTER: str(path),
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _write(files: dict[str, str], target: Path) -> None:
    """Write the folder under a temporary name and rename it when it is complete."""
    aside = target.with_name(f"{target.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir()
        for name, text in files.items():
            (aside / name).write_text(text, encoding="utf-8")
        replace_with_retry(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
