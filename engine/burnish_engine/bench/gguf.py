"""`burnish bench gguf`: how fast files run with llama.cpp on this machine's processor."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from burnish_engine.bench.gguf_result import FileBench, Speed
from burnish_engine.contract.endings import how_it_ended
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.export.gguf.header import read_header
from burnish_engine.export.quantize import FILE_TYPES
from burnish_engine.hardware.cpu import usable_cores

PROMPT, GENERATE, REPEAT = 512, 64, 3


def gguf_files(paths: Sequence[Path]) -> list[Path]:
    """The files given, and those in folders given.

    Raises:
        UsageError: There is none.
    """
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if not found:
        raise UsageError(f"There is no .gguf file in {', '.join(map(str, paths))}.", "Export one first.")
    return found


def usual_threads() -> list[int]:
    """Numbers of threads to try: 1, 2, 4 ... up to every core."""
    cores = usable_cores()
    counts = [2**power for power in range(8) if 2**power < cores]
    return [*counts, cores]


def bench_file(
    path: Path,
    threads: Sequence[int],
    *,
    prompt: int = PROMPT,
    generate: int = GENERATE,
    repeat: int = REPEAT,
    progress: Callable[[float], None] = lambda _share: None,
) -> FileBench:
    """Time one file in a process of its own.

    Args:
        path: The file.
        threads: Numbers of threads.
        prompt: Tokens of the prompt.
        generate: Tokens to generate.
        repeat: How often each is timed; medians are told.
        progress: Told the share that is done.

    Raises:
        UsageError: The file cannot be read, or is no GGUF.
        SetupError: llama.cpp cannot load it, or ends over it.
    """
    header = read_header(path)
    types = {number: name for name, number in FILE_TYPES.items()}
    command = [sys.executable, "-P", "-m", "burnish_engine.bench.gguf_worker", str(path)]
    command += [str(number) for number in (prompt, generate, repeat, *threads)]
    result, status, errors = _run(command, progress)
    if result is None:
        raise SetupError(
            f"llama.cpp ended over {path} ({how_it_ended(status, errors)}).",
            "The file may be damaged, or too large for this machine's memory.",
        )
    return FileBench(
        file=path.name,
        device=processor(),
        bytes=path.stat().st_size,
        type=types.get(header.metadata.get("general.file_type", -1), ""),
        load_s=result["load_s"],
        peak_bytes=result["peak_bytes"],
        speeds=[Speed(**speed) for speed in result["speeds"]],
    )


def _run(command: list[str], progress: Callable[[float], None]) -> tuple[dict[str, Any] | None, int, list[str]]:
    """The worker's result, if any, its exit status, and what it said on standard error."""
    with (
        tempfile.TemporaryFile() as errors,  # not a pipe: nobody reads it while the worker runs
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        ) as worker,
    ):
        try:
            result = _listen(worker, progress)
            status = worker.wait()
        except BaseException:
            worker.kill()
            raise
        errors.seek(0)
        return result, status, errors.read().decode("utf-8", "replace").splitlines()


def _listen(worker: subprocess.Popen[str], progress: Callable[[float], None]) -> dict[str, Any] | None:
    """The result; None where the worker ended without one."""
    for line in worker.stdout or ():
        try:
            message = json.loads(line)
        except json.JSONDecodeError:
            continue  # something a library printed
        if not isinstance(message, dict):
            continue
        if "error" in message:
            raise SetupError(str(message["error"]), "The file may be damaged, or made for a newer version.")
        if isinstance(result := message.get("result"), dict):
            return result
        if isinstance(share := message.get("share"), float):
            progress(share)
    return None


def processor() -> str:
    """The processor's name and cores."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name}, {usable_cores()} cores"
