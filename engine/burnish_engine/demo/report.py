"""Render the demo's one-page report: replies before and after, files, fidelity, time."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.contract.units import file_size, memory_size, percent
from burnish_engine.html_page.fidelity import fidelity_section
from burnish_engine.html_page.page import (
    Figure,
    card,
    cell,
    commands,
    figures,
    heading,
    number,
    page,
    paragraph,
    replies,
    section,
    table,
)
from burnish_engine.html_page.plots import LevelLine, loss_plot


class ReplyScores(BaseModel):
    """Numbers of held-out replies that show the taught behavior."""

    model_config = ConfigDict(frozen=True)

    prompts: int
    base: int
    tuned: int
    gguf: dict[str, int]


class DemoReport(BaseModel):
    """Content of `report.json`."""

    model_config = ConfigDict(frozen=True)

    v: int = 1
    model: str
    note: str
    dataset: str
    title: str
    train_rows: int
    held_out_rows: int
    device: str
    precision: str
    steps: int
    trained_tokens: int
    tokens_per_s: float
    peak_memory_bytes: int
    losses: list[tuple[int, float]]
    held_out_loss_base: float
    held_out_loss_tuned: float
    held_out_improvement: float
    preferred: float | None = None
    forgetting: Forgetting | None = None
    scores: ReplyScores
    behavior: str
    fidelity: FidelityReport
    files: dict[str, int]
    examples: list[dict[str, str]]
    gguf_chat: dict[str, str]
    seconds: dict[str, float]
    versions: dict[str, str]


def render(report: DemoReport) -> str:
    """Render the report as one self-contained HTML page."""
    examples = [replies(one["prompt"], [("base", one["base"]), ("tuned", one["tuned"])]) for one in report.examples]
    levels = [
        LevelLine(report.held_out_loss_base, f"held out, base {report.held_out_loss_base:.3f}", 1),
        LevelLine(report.held_out_loss_tuned, f"held out, tuned {report.held_out_loss_tuned:.3f}", 2),
    ]
    chat = report.gguf_chat
    files = [[cell(name), number(file_size(size))] for name, size in report.files.items()]
    times = [[cell(stage), number(f"{seconds:,.1f} s")] for stage, seconds in report.seconds.items()]
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return page(
        "Burnish demo report",
        "Demo report",
        [
            heading(f"{report.model}, tuned to {report.title}", about=report.behavior),
            figures(_figures(report)),
            section(
                "What was trained",
                paragraph(_trained(report)),
                paragraph(report.note, "muted small"),
                card("Training loss", loss_plot(report.losses, levels), "wide"),
            ),
            section("Before and after", *examples[:1]),
            section("More of them", *examples[1:], printed=False),
            fidelity_section(report.fidelity),
            section("Talk to it", commands(_commands(report), "To be typed in the folder of this page.")),
            section("A chat with the file", replies(chat["prompt"], [(chat["file"], chat["reply"])]), printed=False),
            section("Files", table(["", ""], files), printed=False),
            section("Time", table(["", ""], times), paragraph(versions, "muted small"), printed=False),
        ],
    )


def _figures(report: DemoReport) -> list[Figure]:
    scores = report.scores
    quant, shown = next(iter(scores.gguf.items()))
    gain = Figure(percent(report.held_out_improvement), "lower held-out loss than the base model", live=True)
    if report.preferred is not None:
        gain = Figure(percent(report.preferred), "of held-out pairs: the chosen reply is preferred", live=True)
    return [
        gain,
        Figure(
            f"{scores.tuned} of {scores.prompts}", f"held-out replies show the behavior (base: {scores.base})", True
        ),
        Figure(f"{shown} of {scores.prompts}", f"of the {quant} file's replies show it", live=True),
        Figure(f"{sum(report.seconds.values()) / 60:.1f} min", f"for the whole job on {report.device}"),
    ]


def _trained(report: DemoReport) -> str:
    rows, unit = ("conversations", "learned token") if report.preferred is None else ("pairs of replies", "pair")
    forgetting = f"; {report.forgetting.text}" if report.forgetting else ""
    return (
        f"A LoRA adapter on {report.model}, {report.steps} optimizer steps over {report.trained_tokens:,} tokens, taken "
        f"from {report.train_rows} {rows}, in {report.precision} on {report.device} at {report.tokens_per_s:,.0f} "
        f"tokens/s, with a peak of {memory_size(report.peak_memory_bytes)} of memory. Held-out loss fell from "
        f"{report.held_out_loss_base:.3f} to {report.held_out_loss_tuned:.3f} nats per {unit} on "
        f"{report.held_out_rows} {rows} that it was not trained on, with which the settings were chosen{forgetting}."
    )


def _commands(report: DemoReport) -> list[str]:
    best = next((typed(f"gguf/{one.file}") for one in report.fidelity.files if one.passed), "")
    return [f"burnish chat {best}", f"llama-cli -m {best}"] if best else []
