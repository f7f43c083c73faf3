"""Results of measuring a GGUF file: here, or on a phone with llama.cpp's own llama-bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_limited

_MOST_BYTES = 16_000_000  # largest output of llama-bench that is read; a row takes about a kilobyte


class _MeasuredRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Speed(_MeasuredRecord):
    """Speed with one number of threads."""

    threads: int
    prompt_tokens: int = Field(description="Tokens of the prompt that was read.")
    prompt_tokens_per_s: float | None = None
    first_token_ms: float | None = Field(
        default=None, description="From handing over the prompt to the first token of the reply."
    )
    generated_tokens: int = 0
    generated_tokens_per_s: float | None = None


class FileBench(_MeasuredRecord):
    """Measurements of one file on one device."""

    file: str
    device: str
    bytes: int = 0
    type: str = Field(default="", description="File type, such as Q4_K_M.")
    load_s: float | None = Field(default=None, description="Opening the file to ready, with what the disk cache holds.")
    peak_bytes: int | None = Field(default=None, description="Most memory the process held, the mapped file included.")
    speeds: list[Speed] = []

    @property
    def fastest(self) -> Speed | None:
        """Speed with the number of threads that generates fastest."""
        timed = [speed for speed in self.speeds if speed.generated_tokens_per_s]
        return max(timed, key=lambda speed: speed.generated_tokens_per_s or 0.0, default=None)


def read_llama_bench(path: Path) -> list[FileBench]:
    """Read the output of `llama-bench -o json` (or jsonl) from this or another device.

    Args:
        path: file with the output.

    Raises:
        UsageError: The file cannot be read, or is no such output.
    """
    try:
        text = read_limited(path, _MOST_BYTES).decode("utf-8-sig").strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "Check the path.") from error
    try:
        rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines() if line]
        return _grouped([_row(row) for row in rows])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path} is no result of llama-bench: {error!r}.", "Make it with `llama-bench -m FILE.gguf -o json > FILE`."
        ) from error


def _row(row: dict[str, Any]) -> tuple[tuple[str, str, int, str], int, int, int, float]:
    depth = int(row.get("n_depth") or 0)
    prompt, generated, speed = int(row["n_prompt"]), int(row["n_gen"]), float(row["avg_ts"])
    if not speed > 0 or depth < 0:
        raise ValueError(f"avg_ts is {speed}")
    device = " ".join(str(row.get(key) or "") for key in ("cpu_info", "gpu_info")).strip() or "unknown device"
    name = str(row["model_filename"]).replace("\\", "/").rsplit("/", 1)[-1]
    key = (name, device, int(row.get("model_size") or 0), str(row.get("model_type") or ""))
    return key, int(row["n_threads"]), prompt, generated, speed


def _grouped(rows: list[tuple[tuple[str, str, int, str], int, int, int, float]]) -> list[FileBench]:
    if not rows:
        raise ValueError("it holds no test")
    files: dict[tuple[str, str, int, str], dict[int, dict[str, Any]]] = {}
    for key, threads, prompt, generated, speed in rows:
        found = files.setdefault(key, {}).setdefault(threads, {"threads": threads, "prompt_tokens": 0})
        if prompt and not generated:
            found |= {"prompt_tokens": prompt, "prompt_tokens_per_s": speed}
        elif generated and not prompt:
            found |= {"generated_tokens": generated, "generated_tokens_per_s": speed}
    return [
        FileBench(file=name, device=device, bytes=size, type=kind, speeds=[Speed(**one) for one in speeds.values()])
        for (name, device, size, kind), speeds in files.items()
    ]
