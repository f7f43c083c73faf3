"""Log tracebacks to one bounded file for the server, its workers and their windows."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import make_private, write_atomic
from burnish_engine.contract.paths import user_data_dir

_MOST_BYTES = 1_000_000
_KEPT_BYTES = 250_000


def log_file() -> Path:
    """Path of the log."""
    return user_data_dir() / "serve.log"


def log(text: str) -> None:
    """Append a dated entry; the oldest ones go when the file grows too long. Never raises."""
    path = log_file()
    entry = f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} process {os.getpid()}\n{text.rstrip()}\n"
    with suppress(OSError, NoSpaceError):
        make_private(path.parent)
        if path.exists() and path.stat().st_size > _MOST_BYTES:
            write_atomic(path, path.read_bytes()[-_KEPT_BYTES:], durable=False)
        with path.open("ab") as file:
            file.write(entry.encode("utf-8", "replace"))
