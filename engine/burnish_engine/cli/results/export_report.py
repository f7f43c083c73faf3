"""Print the fidelity report, the forecast and the suggestion of an export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from burnish_engine.cli.terminal import out, print_json, styled
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.facts.task_score import METRIC_NAMES
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.export.verify.verdict import verdict_text

if TYPE_CHECKING:
    from burnish_engine.export.forecast import ExportCost

_PROVENANCE = {
    "proven": "is the file that was proven",
    "changed": "was changed since it was proven",
    "unknown": "is an unknown file: no export of this run has it in its report",
}


def show_forecast(forecast: ExportCost) -> None:
    """Print the forecast of an export."""
    table = Table(box=None, pad_edge=False)
    for title in ("stage", "disk", "memory", "about"):
        table.add_column(title)
    for stage in forecast.stages:
        disk = file_size(stage.disk_bytes) if stage.disk_bytes else ""
        table.add_row(stage.what, disk, memory_size(stage.memory_bytes), f"{max(stage.seconds, 1):.0f} s")
    out.print(table)
    for quant, file_bytes in forecast.sizes.items():
        out.print(f"{quant}: {file_bytes:,} bytes ({file_size(file_bytes)})")
    out.print(
        f"In all {file_size(forecast.disk_bytes)} of disk, {memory_size(forecast.memory_bytes)} of memory, about "
        f"{max(forecast.seconds / 60, 1):.0f} min."
    )


def show_report(report: FidelityReport, folder: Path, *, json: bool) -> None:
    """Print a fidelity report."""
    if json:
        print_json(report.model_dump_json(indent=2))
        return
    same = report.token_strings - report.token_mismatches
    out.print(f"Token ids: {same} of {report.token_strings} comparisons equal the model's own tokenizer.")
    if report.conversion_kl is not None:
        out.print(f"16-bit file against the trained model: mean KL {report.conversion_kl:.1e}.")
    table = Table(box=None, pad_edge=False)
    for title in ("type", "size", "mean KL", "99 %", "top-1", "loss", "gain", "tok/s", "reply", ""):
        table.add_column(title, no_wrap=True)
    for entry in report.files:
        table.add_row(
            entry.quant,
            file_size(entry.bytes),
            f"{entry.mean_kl:.2g}",
            f"{entry.p99_kl:.2g}",
            f"{entry.top1_agreement:.1%}",
            "" if entry.held_out_loss is None else f"{entry.held_out_loss:.3f}",
            "" if entry.gain_kept is None else f"{entry.gain_kept:.1%}",
            "" if entry.tokens_per_s is None else f"{entry.tokens_per_s:.1f}",
            "ends" if entry.reply_stopped else "runs on",
            styled(_state(entry)),
        )
    out.print(table)
    _show_training(report)
    _show_files(report.files)
    for note in report.notes:
        out.dim(f"note: {note}")
    for entry in report.files:
        for note in entry.fallbacks:
            out.dim(f"{entry.quant}: {note}")
    for entry in report.files:
        out.print(str((folder / entry.file).absolute()))


def _show_training(report: FidelityReport) -> None:
    if report.base_loss is not None and report.tuned_loss is not None:
        out.print(f"Held-out loss: base {report.base_loss:.3f}, trained {report.tuned_loss:.3f} nats a learned token.")
    if report.base_kl is not None:
        out.print(f"Training changed the predictions by a mean KL of {report.base_kl:.2g} nats.")


def _show_files(files: Sequence[QuantFidelity]) -> None:
    for entry in files:
        score = f" Score: {METRIC_NAMES[entry.task.metric]} {entry.task.figures}." if entry.task else ""
        out.print(f"{verdict_text(entry)}{score}")
        if entry.provenance:
            out.print(f"{entry.file} {_PROVENANCE[entry.provenance]}.")
        if entry.passed and entry.change_held is not None:
            out.print(f"Of what training changed in the weights, {entry.quant} holds {entry.change_held:.1%}.")


def _state(entry: QuantFidelity) -> str:
    if entry.unproven:
        return "[yellow]not proven[/]"
    return "[green]verified[/]" if entry.passed else "[red]refused[/]"
