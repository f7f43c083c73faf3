"""Renders the page beside exported files: what each keeps of the training, how to run them, and their checksums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.facts.task_score import METRIC_NAMES
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.units import file_size, percent
from burnish_engine.export.verify.verdict import verdict_text
from burnish_engine.html_page.fidelity import fidelity_section
from burnish_engine.html_page.page import (
    Figure,
    code_cell,
    commands,
    figures,
    heading,
    page,
    paragraph,
    replies,
    section,
    table,
)

PAGE = "report.html"


def write_page(folder: Path, report: FidelityReport, *, run: str, data: Sequence[str]) -> Path:
    """Write the page of an export.

    Args:
        folder: folder of the files.
        report: report on the files, including results of earlier exports of the same model.
        run: name of the run.
        data: names of the run's data files, without folders.

    Returns:
        Path of the page.

    Raises:
        NoSpaceError: The page cannot be written.
    """
    path = folder / PAGE
    write_atomic(path, render(report, run=run, data=data))
    return path


def render(report: FidelityReport, *, run: str, data: Sequence[str]) -> str:
    """Render the page of an export; see `write_page` for the arguments."""
    passed = [file for file in report.files if file.passed]
    about = f"{report.model}, fine-tuned in the run {run}" + (f" on {', '.join(data)}" if data else "") + "."
    sums = [[code_cell(file.file), code_cell(file.sha256)] for file in passed]
    return page(
        f"Export of {run}",
        "Export report",
        [
            heading(f"Files of {run}", _headline(report), about),
            figures(_figures(passed)),
            fidelity_section(report),
            section("In words", *(paragraph(line) for line in _sentences(report))),
            section("Use them", commands(_commands(passed), _USE)),
            section("A reply", *_replies(passed)),
            section("Files", table(["file", "SHA-256"], sums)),
        ],
    )


_USE = (
    "To be typed in the folder of this page. LM Studio, Ollama, PocketPal and other programs on llama.cpp open the "
    "files as they are; the chat template is inside."
)


def _headline(report: FidelityReport) -> str:
    if not report.files:
        return "Nothing was exported."
    return "Every file is the model that was trained." if report.passed else "Not every file passed."


def _figures(passed: Sequence[QuantFidelity]) -> list[Figure]:
    if not passed:
        return []
    best = min(passed, key=lambda file: file.mean_kl)
    found = [Figure(file_size(best.bytes), f"the {best.quant} file")]
    if best.gain_kept is not None:
        found.append(Figure(percent(best.gain_kept, 1), "of what training gained is kept", live=True))
    found.append(Figure(percent(best.top1_agreement, 1), "of the next tokens are the same", live=True))
    if best.tokens_per_s is not None:
        found.append(Figure(f"{best.tokens_per_s:,.0f}", "tokens a second on this processor"))
    return found


def _sentences(report: FidelityReport) -> list[str]:
    lines = [verdict_text(file) for file in report.files if not file.passed]
    lines += [
        f"{file.quant}: {METRIC_NAMES[file.task.metric]} {file.task.figures}." for file in report.files if file.task
    ]
    lines += [problem for file in report.files for problem in file.problems]
    if report.base_loss is not None and report.tuned_loss is not None:
        losses = f"base {report.base_loss:.3f}, trained {report.tuned_loss:.3f}"
        lines.append(f"Held-out loss in nats a learned token: {losses}. The gain is the difference.")
    return lines


def _commands(passed: Sequence[QuantFidelity]) -> list[str]:
    return [f"{program} {typed(file.file)}" for file in passed[:1] for program in ("burnish chat", "llama-cli -m")]


def _replies(passed: Sequence[QuantFidelity]) -> list[str]:
    """Render what the first file said to the first prompt of its check."""
    return [replies("", [(file.file, file.reply)]) for file in passed[:1] if file.reply]
