"""Worker process that times one GGUF file.

`python -m burnish_engine.bench.gguf_worker FILE PROMPT GENERATE REPEAT THREADS...`

The process is separate so that load time and peak memory belong to this file, and a file that crashes llama.cpp takes
down nothing else. Standard output carries JSON lines: {"share": 0.5}, at the end {"result": {...}} or {"error": "..."}.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from burnish_engine.contract.errors import BurnishError
from burnish_engine.hardware.host.peak_memory import held_bytes, peak_bytes
from burnish_engine.models.gguf.gguf_speed import FedModel


def main(arguments: list[str]) -> int:
    """Measure the file that the arguments name; return the process's exit status."""
    file, prompt, generate, repeat, *threads = arguments
    try:
        result = measure(Path(file), int(prompt), int(generate), int(repeat), [int(one) for one in threads])
    except BurnishError as error:
        _say({"error": error.what})
        return 1
    _say({"result": result})
    return 0


def measure(file: Path, prompt: int, generate: int, repeat: int, threads: list[int]) -> dict[str, Any]:
    """Time a file with each number of threads.

    Args:
        file: GGUF file.
        prompt: tokens of the prompt.
        generate: tokens to generate after it.
        repeat: number of repetitions; the result has medians.
        threads: numbers of threads to try.
    """
    load_s = None
    speeds = []
    for done, count in enumerate(threads):
        begun = time.perf_counter()
        model = FedModel(file, context=prompt + generate + 8, threads=count)
        load_s = time.perf_counter() - begun if load_s is None else load_s
        speeds.append(_speed(model, prompt, generate, repeat) | {"threads": count})
        model.close()
        _say({"share": (done + 1) / len(threads)})
    return {"load_s": load_s, "peak_bytes": peak_bytes() or held_bytes(), "speeds": speeds}


def _speed(model: FedModel, prompt: int, generate: int, repeat: int) -> dict[str, Any]:
    ids = np.random.default_rng(0).integers(0, model.vocab_size, min(prompt, model.context - generate - 1)).tolist()
    model.feed(ids[:16])  # the first pass maps the file's pages and starts the threads
    first, reading, writing = [], [], []
    for _ in range(repeat):
        model.restart()
        token, took = _timed(lambda: model.feed(ids))
        first.append(took)
        reading.append(len(ids) / took)
        begun = time.perf_counter()
        for _ in range(generate):
            token = model.feed([token])
        writing.append(generate / (time.perf_counter() - begun))
    return {
        "prompt_tokens": len(ids),
        "prompt_tokens_per_s": statistics.median(reading),
        "first_token_ms": 1e3 * statistics.median(first),
        "generated_tokens": generate,
        "generated_tokens_per_s": statistics.median(writing),
    }


def _timed(work: Callable[[], int]) -> tuple[int, float]:
    begun = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begun


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
