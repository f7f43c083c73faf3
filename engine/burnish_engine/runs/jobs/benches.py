"""Say which benchmarks are running: each process writes a small file of its own, which counts as long as it lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.contract.files import make_private, read_with_retry, write_atomic
from burnish_engine.contract.paths import benches_dir
from burnish_engine.contract.serve.replies import Bench, BenchKind
from burnish_engine.runs.process import end_tree, is_alive, own_identity

_WRITE_S = 0.5
_MOST = 100  # files that are looked at


@contextmanager
def announced(kind: BenchKind, about: str) -> Iterator[Callable[[float], None]]:
    """Announce a benchmark of this process until the context is left.

    Where the file cannot be written the benchmark continues unannounced.

    Args:
        kind: command that measures.
        about: what is measured, in a few words.

    Yields:
        Function that receives the share that is done, 0 to 1.
    """
    pid, created = own_identity()
    bench = Bench(kind=kind, about=about, started=time.time(), pid=pid, process_created=created)
    file, written = _file(pid), float("-inf")

    def progress(share: float | None) -> None:
        nonlocal written
        if time.monotonic() - written >= _WRITE_S:
            written = time.monotonic()
            with suppress(BurnishError):
                write_atomic(file, bench.model_copy(update={"share": share}).model_dump_json(), durable=False)

    with suppress(OSError):
        make_private(file.parent)
    progress(None)
    try:
        yield progress
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def list_benches() -> list[Bench]:
    """List the benchmarks that are running, oldest first; files of processes that are gone are removed."""
    found = []
    with suppress(OSError):
        for file in sorted(benches_dir().glob("*.json"))[:_MOST]:
            bench = _read(file)
            if bench is not None:
                found.append(bench)
    return sorted(found, key=lambda bench: bench.started)


def stop_bench(pid: int) -> None:
    """End the process of a benchmark and those that it started.

    Args:
        pid: process of a benchmark that is listed.

    Raises:
        UsageError: No benchmark of this process is running.
    """
    if pid not in [bench.pid for bench in list_benches()]:
        raise UsageError("This benchmark has ended.")
    end_tree(pid)


def _read(file: Path) -> Bench | None:
    """Read what a process announces; None where it is gone, or the file is no announcement of the one it names."""
    try:
        bench = Bench.model_validate_json(read_with_retry(file))
        if file == _file(bench.pid) and is_alive(bench.pid, bench.process_created):
            return bench
    except FileNotFoundError:  # it ended this moment
        return None
    except (OSError, ValidationError, UnicodeDecodeError):
        pass
    with suppress(OSError):
        file.unlink(missing_ok=True)
    return None


def _file(pid: int) -> Path:
    return benches_dir() / f"{pid}.json"
