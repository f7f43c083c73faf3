"""Quantize a 16-bit GGUF in a worker process: predicted and checked before, watched while, read back after."""

from __future__ import annotations

import json
import math
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

from burnish_engine.advise.gguf_size import NEED_IMPORTANCE, TensorType, choose_types, file_bytes
from burnish_engine.contract.errors import NoSpaceError, SetupError, StoppedError, UsageError
from burnish_engine.contract.recipe_export import GgufType
from burnish_engine.export.aside import Cancelled, never, publish, require_memory, require_space
from burnish_engine.export.gguf.header import GgufHeader, read_header
from burnish_engine.export.moments import moment_rows, refining_bytes

FILE_TYPES: Final[dict[GgufType, int]] = {
    "F16": 1, "BF16": 32, "Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q5_K_S": 16, "Q5_0": 8, "Q4_K_M": 15, "Q4_K_S": 14,
    "Q4_0": 2, "Q4_1": 3, "IQ4_NL": 25, "IQ4_XS": 30, "Q3_K_M": 12, "Q3_K_S": 11, "IQ3_M": 27, "IQ3_XXS": 23,
    "Q2_K": 10, "IQ2_M": 29,
}  # fmt: skip
"""Our names to `llama_ftype` (llama.h)."""

USE_IMPORTANCE: Final[tuple[GgufType, ...]] = tuple(
    quant for quant in FILE_TYPES if quant not in {"F16", "BF16", "Q8_0"}
)
"""Types whose rounding an importance matrix changes (ggml-quants.c: Q8_0 passes it over)."""

_POLL_S = 0.1
_SMALL_BLOCKS = ("Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "IQ4_NL")
_WORKER_BYTES = 200 * 1024 * 1024  # Python, llama.cpp and the vocabulary


@dataclass(frozen=True)
class Quantized:
    """A quantized file, read back.

    Attributes:
        path: The file.
        quant: The type asked for.
        bytes: Its size.
        tensor_types: GGUF type to number of tensors.
        fallbacks: Tensors that got another type than the file type has for them, in words.
        importance: Whether an importance matrix was used.
    """

    path: Path
    quant: GgufType
    bytes: int
    tensor_types: dict[str, int]
    fallbacks: list[str] = field(default_factory=list)
    importance: bool = False


def quantize(
    source: Path,
    target: Path,
    quant: GgufType,
    *,
    importance: Path | None = None,
    moments: Path | None = None,
    threads: int = 0,
    progress: Callable[[float], None] = lambda _share: None,
    cancelled: Cancelled = never,
) -> Quantized:
    """Quantize a file.

    Args:
        source: F16, BF16 or F32 GGUF.
        target: The file to make; written under another name and renamed when it is whole.
        quant: The type.
        importance: File of the importance matrix, in llama.cpp's format.
        moments: Folder with second moments (`moments.py`), for which codes are chosen anew; used with a matrix only.
        threads: CPU threads; 0 is one per core.
        progress: Told the share of tensors done, 0 to 1.
        cancelled: Polled ten times a second; ends the worker.

    Raises:
        NoSpaceError: It does not fit the disk, found before the start or on the way.
        DoesNotFitError: Too little memory is free.
        UsageError: The model's row lengths do not fit this type, it needs an importance matrix, or the source is no
            GGUF.
        SetupError: The worker failed or died.
        StoppedError: Cancelled.
    """
    header = read_header(source)
    if quant in NEED_IMPORTANCE and importance is None:
        raise UsageError(
            f"{quant} can only be made with an importance matrix, and there is none.",
            "Leave export.importance on and the training files in place, or choose Q2_K or Q3_K_M.",
        )
    moments = moments if importance is not None else None
    needed = predicted_bytes(header, quant, importance=importance is not None)
    require_memory(quantizing_bytes(header, refined=moments is not None), f"Making {quant}")
    require_space(target.parent, needed, f"The {quant} file")
    aside = target.with_name(f".partial-{target.name}")
    try:
        matrix = [str(path) for path in (importance, moments) if path is not None]
        _run_worker([str(source), str(aside), str(FILE_TYPES[quant]), str(threads), *matrix], progress, cancelled)
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
    return read_back(target, quant, header, importance=importance is not None)


def quantizing_bytes(header: GgufHeader, *, refined: bool = False) -> int:
    """Memory the quantizer takes, bytes: its largest tensor as it is, in fp32 and quantized, and its own code.

    Args:
        header: Of the unquantized file.
        refined: Whether codes are chosen anew, which comes after it in the same process.
    """
    largest = max((math.prod(tensor.shape) for tensor in header.tensors), default=0)
    longest = max(moment_rows(header.tensors).values(), default=0) if refined else 0
    return 8 * largest + (refining_bytes(longest) if longest else 0) + _WORKER_BYTES


def predicted_bytes(header: GgufHeader, quant: GgufType, *, importance: bool = False) -> int:
    """Size of the quantized file, bytes.

    Args:
        header: Of the unquantized file.
        quant: The type.
        importance: Whether there is an importance matrix, with which some types spend their bits otherwise.

    Raises:
        UsageError: The model's row lengths do not fit this type.
    """
    return file_bytes(_planned(header, quant, importance), header.data_start)


def read_back(
    path: Path, quant: GgufType, source: GgufHeader | None = None, *, importance: bool | None = None
) -> Quantized:
    """What a file holds, and where its types are not the ones the file type stands for.

    Args:
        path: The file.
        quant: The type it is meant to have.
        source: The unquantized file's header, where known.
        importance: Whether an importance matrix was used; None: not known, so whichever explains its types better.
    """
    header = read_header(path)
    actual = {tensor.name: tensor.type for tensor in header.tensors}
    words: dict[bool, list[str]] = {}
    for used in (False, True) if importance is None else (importance,):
        planned = _planned(source or header, quant, used) if quant not in {"F16", "BF16"} else []
        words[used] = _in_words(planned, actual)
    used = min(words, key=lambda used: len(words[used]))
    return Quantized(path, quant, path.stat().st_size, header.type_counts(), words[used], used)


def _planned(header: GgufHeader, quant: GgufType, importance: bool) -> list[TensorType]:
    return choose_types(
        header.tensors, quant, gqa=header.queries_per_key, experts=header.number("expert_count"), importance=importance
    )


def _in_words(planned: list[TensorType], actual: dict[str, str]) -> list[str]:
    odd = Counter(
        (one.wanted, actual[one.tensor.name], one.tensor.row)
        for one in planned
        if one.tensor.name in actual and actual[one.tensor.name] != one.wanted
    )
    lines = []
    for (wanted, given, row), count in odd.most_common():
        block = 32 if wanted in _SMALL_BLOCKS else 256
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
