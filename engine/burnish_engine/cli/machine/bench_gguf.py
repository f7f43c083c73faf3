"""Print measurements of GGUF files: a table of this machine, one of phones, and what a phone measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from burnish_engine.bench.gguf_phone import RAMS_GIB, on_phones, type_text
from burnish_engine.bench.gguf_result import FileBench
from burnish_engine.cli.terminal import out
from burnish_engine.contract.units import file_size, memory_size, plural
from burnish_engine.models.checkpoint.gguf_file.header import read_header


def show_benches(paths: Sequence[Path], results: Sequence[FileBench], measured: Sequence[FileBench]) -> None:
    """Print the measurements of this machine, predictions for phones of usual memory, and measurements of a phone."""
    out.print(f"{results[0].device}; tokens a second")
    out.print(_speeds(results))
    for bench in results:
        best = bench.fastest
        if best and best.generated_tokens_per_s:
            threads = plural(best.threads, "thread")
            out.print(f"{bench.file}: fastest with {threads}, {best.generated_tokens_per_s:.1f} tokens/s.")
    out.print()
    out.print("On a phone (predicted from its memory, not measured):")
    table = Table(box=None, pad_edge=False)
    for title in ("file", *(f"{ram} GiB" for ram in RAMS_GIB), "at most"):
        table.add_column(title)
    for path, bench in zip(paths, results, strict=True):
        phones = on_phones(read_header(path), bench.bytes)
        contexts = [f"context {one.context:,}" if one.context else "too big" for one in phones]
        table.add_row(bench.file, *contexts, f"{phones[0].tokens_per_s:.0f} tok/s")
    out.print(table)
    for kind in dict.fromkeys(bench.type for bench in results):
        out.dim(f"{type_text(kind)}.")
    if measured:
        out.print()
        out.print("Measured with llama-bench:")
        out.print(_speeds(measured, device=True))


def _speeds(results: Sequence[FileBench], *, device: bool = False) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in (
        "file",
        *(["device"] if device else []),
        "size",
        "threads",
        "prompt",
        "reply",
        "first",
        "load",
        "peak",
    ):
        table.add_column(title)
    for bench in results:
        for place, speed in enumerate(bench.speeds):
            head = [bench.file, *([bench.device] if device else []), file_size(bench.bytes) if bench.bytes else ""]
            head = head if place == 0 else [""] * len(head)
            once = place == 0
            table.add_row(
                *head,
                str(speed.threads),
                _rate(speed.prompt_tokens_per_s),
                _rate(speed.generated_tokens_per_s),
                f"{speed.first_token_ms:.0f} ms" if speed.first_token_ms else "",
                f"{bench.load_s:.2f} s" if once and bench.load_s is not None else "",
                memory_size(bench.peak_bytes) if once and bench.peak_bytes else "",
            )
    return table


def _rate(tokens_per_s: float | None) -> str:
    return f"{tokens_per_s:.1f}" if tokens_per_s else ""
