"""Quantize a 16-bit GGUF in a worker process: size predicted before, progress watched, result read back."""

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
from typing import IO

from burnish_engine.advise.facts.gguf_size import (
    STORED_MXFP4,
    TensorType,
    block_size,
    choose_types,
    file_bytes,
)
from burnish_engine.contract.errors import NoSpaceError, SetupError, StoppedError, UsageError
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES, NEED_IMPORTANCE, GgufType
from burnish_engine.export.base.staging import Canceled, never, publish, require_memory, require_space
from burnish_engine.export.quantize.hessian import hessian_sizes, refining_bytes
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader, read_header

_POLL_S = 0.1
_WORKER_BYTES = 200 * 1024 * 1024  # Python, llama.cpp and the vocabulary


@dataclass(frozen=True)
class Quantized:
    """A quantized file, read back."""

    path: Path  # path of the file
    quant: str  # type of the file: the requested one, or as `file_type` names it
    bytes: int  # size of the file
    tensor_types: dict[str, int]  # number of tensors of each GGUF type
    fallbacks: list[str] = field(default_factory=list)  # sentences on tensors whose type differs from the file type's
    importance: bool = False  # whether an importance matrix was used


def quantize(
    source: Path,
    target: Path,
    quant: GgufType,
    *,
    importance: Path | None = None,
    hessians: Path | None = None,
    threads: int = 0,
    progress: Callable[[float], None] = lambda _share: None,
    canceled: Canceled = never,
) -> Quantized:
    """Quantize a file.

    Args:
        source: F16, BF16 or F32 GGUF.
        target: file to make; written under a temporary name and renamed when complete.
        quant: type of the file: the requested one, or as `file_type` names it.
        importance: file of the importance matrix, in llama.cpp's format.
        hessians: folder with Hessians (`hessian.py`), with which GPTQ chooses new codes; used together with a matrix
            only.
        threads: number of CPU threads; 0 means one per core.
        progress: callback given the share of tensors done, 0 to 1.
        canceled: callback polled ten times a second; True ends the worker.

    Raises:
        NoSpaceError: The file does not fit the disk, found before the start or while writing.
        DoesNotFitError: Too little memory is free.
        UsageError: The model's row lengths do not fit this type, the type needs an importance matrix, or the source is
            no GGUF.
        SetupError: The worker failed or died.
        StoppedError: Canceled.
    """
    header = read_header(source)
    if quant in NEED_IMPORTANCE and importance is None:
        raise UsageError(
            f"{quant} can only be made with an importance matrix, and there is none.",
            "Leave export.importance on and the training files in place, or choose Q2_K or Q3_K_M.",
        )
    hessians = hessians if importance is not None else None
    needed = predicted_bytes(header, quant, importance=importance is not None)
    require_memory(quantizing_bytes(header, refined=hessians is not None), f"Making {quant}")
    require_space(target.parent, needed, f"The {quant} file")
    staging = target.with_name(f".partial-{target.name}")
    try:
        matrix = [path for path in (importance, hessians) if path is not None]
        arguments = (source, staging, GGUF_TYPES[quant].number, threads, *matrix)
        _run_worker([str(argument) for argument in arguments], progress, canceled)
        publish(staging, target)
    except SetupError as error:
        missing = needed - (staging.stat().st_size if staging.exists() else 0)
        free = shutil.disk_usage(target.parent).free
        if free < missing:
            raise NoSpaceError(
                f"The disk became full while the {quant} file was written: {missing} bytes were still needed and "
                f"{free} are free.",
                "Free some space and export again.",
            ) from error
        raise
    finally:
        staging.unlink(missing_ok=True)
    return read_back(target, quant, header, importance=importance is not None)


def quantizing_bytes(header: GgufHeader, *, refined: bool = False) -> int:
    """Memory that the quantizer takes, bytes: its largest tensor unquantized, in fp32 and quantized, and its code.

    Args:
        header: header of the unquantized file.
        refined: whether GPTQ runs afterwards in the same process.
    """
    largest = max((math.prod(tensor.shape) for tensor in header.tensors if tensor.type != STORED_MXFP4), default=0)
    longest = max(hessian_sizes(header.tensors).values(), default=0) if refined else 0
    return 8 * largest + (refining_bytes(longest) if longest else 0) + _WORKER_BYTES


def predicted_bytes(header: GgufHeader, quant: GgufType, *, importance: bool = False) -> int:
    """Predict the size of the quantized file, bytes.

    Args:
        header: header of the unquantized file.
        quant: GGUF type.
        importance: whether there is an importance matrix, with which llama.cpp gives some tensors other types.

    Raises:
        UsageError: The model's row lengths do not fit this type.
    """
    return file_bytes(_planned(header, quant, importance), header.data_start)


def file_type(header: GgufHeader) -> str:
    """Name a file's type as llama.cpp does, also one that no export makes; else the type of most of its numbers."""
    from gguf import LlamaFileType

    number = header.metadata.get("general.file_type")
    if known := next((quant for quant, facts in GGUF_TYPES.items() if facts.number == number), ""):
        return known
    if number in set(LlamaFileType) - {LlamaFileType.GUESSED}:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    numbers = Counter[str]()
    for tensor in header.tensors:
        numbers[tensor.type] += math.prod(tensor.shape)
    return max(numbers, key=lambda kind: numbers[kind], default="unknown")


def read_back(path: Path, quant: str, source: GgufHeader | None = None, *, importance: bool | None = None) -> Quantized:
    """Read back a file's content, and where its tensor types differ from those that the file type prescribes.

    Args:
        path: The file.
        quant: type that the file shall have; which tensors get which is known for `GGUF_TYPES` alone.
        source: header of the unquantized file, where known.
        importance: whether an importance matrix was used; None: unknown, so the assumption that explains the types
            better.
    """
    header = read_header(path)
    actual = {tensor.name: tensor.type for tensor in header.tensors}
    known = next((name for name in GGUF_TYPES if name == quant), None)
    texts: dict[bool, list[str]] = {}
    for used in (False, True) if importance is None else (importance,):
        planned = _planned(source or header, known, used) if known not in {None, "F16", "BF16"} else []
        texts[used] = _fallback_texts(planned, actual)
    used = min(texts, key=lambda used: len(texts[used]))
    return Quantized(path, quant, path.stat().st_size, header.type_counts(), texts[used], used)


def _planned(header: GgufHeader, quant: GgufType, importance: bool) -> list[TensorType]:
    return choose_types(
        header.tensors, quant, gqa=header.queries_per_key, experts=header.number("expert_count"), importance=importance
    )


def _fallback_texts(planned: list[TensorType], actual: dict[str, str]) -> list[str]:
    odd = Counter(
        (one.wanted, given, 0 if given == STORED_MXFP4 else one.tensor.row)
        for one in planned
        if (given := actual.get(one.tensor.name, one.wanted)) != one.wanted
    )
    lines = []
    for (wanted, given, row), count in odd.most_common():
        tensors = "1 tensor" if count == 1 else f"{count} tensors"
        if given == STORED_MXFP4:
            lines.append(f"{tensors} stayed {given}, exactly as the model stores them, instead of {wanted}")
            continue
        block = block_size(wanted)[0]
        why = f" because rows of {row} are not divisible by {block}" if row % block else ""
        lines.append(f"{tensors} became {given} instead of {wanted}{why}")
    return lines


def worker_command(arguments: list[str]) -> list[str]:
    """Build the worker's command line; tests replace it."""
    return [sys.executable, "-P", "-m", "burnish_engine.export.quantize.quantize_worker", *arguments]


def _run_worker(arguments: list[str], progress: Callable[[float], None], canceled: Canceled) -> None:
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
            _watch(worker, progress, canceled)
        finally:
            _end(worker)
        errors.seek(0)
        _check(worker.returncode, errors.read().decode("utf-8", "replace"))


def _watch(worker: subprocess.Popen[str], progress: Callable[[float], None], canceled: Canceled) -> None:
    lines: queue.Queue[str | None] = queue.Queue()
    assert worker.stdout is not None
    threading.Thread(target=_read_lines, args=(worker.stdout, lines), daemon=True).start()
    while True:
        if canceled():
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
        return {}  # output of a library
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
