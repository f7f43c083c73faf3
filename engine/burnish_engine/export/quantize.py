"""Quantize a 16-bit GGUF in a worker process: predicted and checked before, watched while, read back after."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from burnish_engine.advise.gguf_size import TensorType, choose_types, file_bytes
from burnish_engine.contract.errors import NoSpaceError, SetupError, StoppedError
from burnish_engine.contract.recipe import GgufType
from burnish_engine.export.aside import Cancelled, never, publish, require_space
from burnish_engine.export.gguf.header import GgufHeader, read_header

FILE_TYPES: Final[dict[GgufType, int]] = {
    "F16": 1, "BF16": 32, "Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q5_K_S": 16, "Q5_0": 8, "Q4_K_M": 15, "Q4_K_S": 14,
    "Q4_0": 2, "Q4_1": 3, "IQ4_NL": 25, "IQ4_XS": 30,
}  # fmt: skip
"""Our names to `llama_ftype` (llama.h)."""

_POLL_S = 0.1
_BLOCK = {"Q4_K": 256, "Q5_K": 256, "Q6_K": 256, "IQ4_XS": 256}


@dataclass(frozen=True)
class Quantized:
    """A quantized file, read back.

    Attributes:
        path: The file.
        quant: The type asked for.
        bytes: Its size.
        tensor_types: GGUF type to number of tensors.
        fallbacks: Tensors that got another type than the file type has for them, in words.
    """

    path: Path
    quant: GgufType
    bytes: int
    tensor_types: dict[str, int]
    fallbacks: list[str] = field(default_factory=list)


def quantize(
    source: Path,
    target: Path,
    quant: GgufType,
    *,
    threads: int = 0,
    progress: Callable[[float], None] = lambda _share: None,
    cancelled: Cancelled = never,
) -> Quantized:
    """Quantize a file.

    Args:
        source: F16, BF16 or F32 GGUF.
        target: The file to make; written under another name and renamed when it is whole.
        quant: The type.
        threads: CPU threads; 0 is one per core.
        progress: Told the share of tensors done, 0 to 1.
        cancelled: Polled ten times a second; ends the worker.

    Raises:
        NoSpaceError: It does not fit the disk, found before the start or on the way.
        UsageError: The model's row lengths do not fit this type, or the source is no GGUF.
        SetupError: The worker failed or died.
        StoppedError: Cancelled.
    """
    header = read_header(source)
    needed = predicted_bytes(header, quant)
    require_space(target.parent, needed, f"The {quant} file")
    aside = target.with_name(f".partial-{target.name}")
    try:
        _run_worker([str(source), str(aside), str(FILE_TYPES[quant]), str(threads)], progress, cancelled)
        publish(aside, target)
    except SetupError as error:
        missing = needed - (aside.stat().st_size if aside.exists() else 0)
        free = shutil.disk_usage(target.parent).free
        if free < missing:
            raise NoSpaceError(
                f"The disk became full while the {quant} file was written: {missing} bytes were still needed and "
                f"{free} are free.",
                "Free some space and export again.",
            ) from error
        raise
    finally:
        aside.unlink(missing_ok=True)
    return read_back(target, quant, header)


def predicted_bytes(header: GgufHeader, quant: GgufType) -> int:
    """Size of the quantized file, bytes.

    Raises:
        UsageError: The model's row lengths do not fit this type.
    """
    return file_bytes(_planned(header, quant), header.data_start)


def read_back(path: Path, quant: GgufType, source: GgufHeader | None = None) -> Quantized:
    """What a file holds, and where its types are not the ones the file type stands for.

    Args:
        path: The file.
        quant: The type it is meant to have.
        source: The unquantized file's header, where known.
    """
    header = read_header(path)
    actual = {tensor.name: tensor.type for tensor in header.tensors}
    planned = _planned(source or header, quant) if quant not in {"F16", "BF16"} else []
    return Quantized(path, quant, path.stat().st_size, header.type_counts(), _in_words(planned, actual))


def _planned(header: GgufHeader, quant: GgufType) -> list[TensorType]:
    heads, keys = header.number("attention.head_count", 1), header.number("attention.head_count_kv", 1)
    return choose_types(header.tensors, quant, gqa=heads // max(keys, 1), experts=header.number("expert_count"))


def _in_words(planned: list[TensorType], actual: dict[str, str]) -> list[str]:
    odd = Counter(
        (one.wanted, actual[one.tensor.name], one.tensor.row)
        for one in planned
        if one.tensor.name in actual and actual[one.tensor.name] != one.wanted
    )
    lines = []
    for (wanted, given, row), count in odd.most_common():
        block = _BLOCK.get(wanted, 32)
        why = f" because rows of {row} are not divisible by {block}" if row % block else ""
        tensors = "1 tensor" if count == 1 else f"{count} tensors"
        lines.append(f"{tensors} became {given} instead of {wanted}{why}")
    return lines


def worker_command(arguments: list[str]) -> list[str]:
    """The worker's command line. A seam for tests."""
    return [sys.executable, "-P", "-m", "burnish_engine.export.quantize_worker", *arguments]


def _run_worker(arguments: list[str], progress: Callable[[float], None], cancelled: Cancelled) -> None:
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    with tempfile.TemporaryFile() as errors:
        worker = subprocess.Popen(
            worker_command(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            creationflags=flags,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            _watch(worker, progress, cancelled)
        finally:
            _end(worker)
        errors.seek(0)
        _check(worker.returncode, errors.read().decode("utf-8", "replace"))


def _watch(worker: subprocess.Popen[str], progress: Callable[[float], None], cancelled: Cancelled) -> None:
    lines: queue.Queue[str | None] = queue.Queue()
    assert worker.stdout is not None
    threading.Thread(target=_read_lines, args=(worker.stdout, lines), daemon=True).start()
    while True:
        if cancelled():
            raise StoppedError("The quantization was stopped.", "Nothing was written under its final name.")
        try:
            line = lines.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        if line is None:
            worker.wait()
            return
        message = _message(line)
        if "error" in message:
            raise SetupError(f"llama.cpp could not quantize the file: {message['error']}.", "Try another type.")
        if isinstance(tensor := message.get("tensor"), int) and isinstance(total := message.get("of"), int) and total:
            progress(tensor / total)


def _read_lines(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _message(line: str) -> dict[str, object]:
    try:
        message = json.loads(line)
    except json.JSONDecodeError:
        return {}  # something a library printed
    return message if isinstance(message, dict) else {}


def _end(worker: subprocess.Popen[str]) -> None:
    if worker.poll() is None:
        worker.kill()
        worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            stream.close()


def _check(status: int, errors: str) -> None:
    if status == 0:
        return
    last = "; ".join(line.strip() for line in errors.strip().splitlines()[-3:]) or "it said nothing"
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    raise SetupError(
        f"The process that quantizes {how}: {last}.",
        "It may have run out of memory; close other programs and try again.",
    )
