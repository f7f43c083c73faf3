"""Measure how fast GGUF files run with llama.cpp on this machine's processor, for `burnish bench gguf`."""

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
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES
from burnish_engine.contract.run.endings import exit_text
from burnish_engine.contract.units import plural
from burnish_engine.hardware.host.cpu import usable_cores
from burnish_engine.models.checkpoint.gguf_file.header import read_header

PROMPT, GENERATE, REPEAT = 512, 64, 3


def gguf_files(paths: Sequence[Path]) -> list[Path]:
    """List the given files, and the GGUF files in the given folders.

    Raises:
        UsageError: There is no file.
    """
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if not found:
        raise UsageError(f"There is no .gguf file in {', '.join(map(str, paths))}.", "Export one first.")
    return found


def usual_threads() -> list[int]:
    """List the numbers of threads to try: 1, 2, 4 ... up to every core."""
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
        path: GGUF file.
        threads: numbers of threads to try.
        prompt: tokens of the prompt.
        generate: tokens to generate.
        repeat: number of repetitions; the result has medians.
        progress: function that receives the share that is done.

    Raises:
        UsageError: The file cannot be read, or is no GGUF.
        SetupError: llama.cpp cannot load the file, or crashes on it.
    """
    header = read_header(path)
    types = {facts.number: quant for quant, facts in GGUF_TYPES.items()}
    command = [sys.executable, "-P", "-m", "burnish_engine.bench.gguf_worker", str(path)]
    command += [str(number) for number in (prompt, generate, repeat, *threads)]
    result, status, errors = _run(command, progress)
    if result is None:
        raise SetupError(
            f"llama.cpp ended over {path} ({exit_text(status, errors)}).",
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
    """Run the worker; return its result, if any, its exit status, and the lines of its standard error."""
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
    """Read the worker's messages up to its result; return None where it ended without one."""
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
    """Describe the processor by name and number of cores."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name}, {plural(usable_cores(), 'core')}"
