"""`burnish demo`: does the whole job with the embedded model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from burnish_engine.cli.results.export_report import show_report
from burnish_engine.cli.terminal import duration, out, styled
from burnish_engine.cli.training.progress import RunProgress
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.plain_text import typed


def demo(
    out_dir: Annotated[Path, typer.Option("--out", help="New folder for everything the demo makes.")] = Path(
        "burnish-demo"
    ),
    tokens: Annotated[
        int,
        typer.Option(
            metavar="N", help="Most tokens to train on, 2000 or more; with few the behavior is not learned.", min=2000
        ),
    ] = 60_000,
    preferences: Annotated[
        bool, typer.Option("--preferences", help="Teach from pairs of a chosen and a rejected reply, by DPO.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Use the device even if another run holds it.")] = False,
) -> int:
    """Do the whole job once, with the embedded model.

    Trains it on a sample dataset, talks to it, exports and verifies files, and writes a report.
    """
    from burnish_engine.demo.job import run_demo
    from burnish_engine.demo.tasks import BENCH_NOTES, ONE_SENTENCE

    began = time.perf_counter()
    folder = out_dir.absolute()
    with RunProgress() as bar:
        stages = _StagePrinter(bar)
        report = run_demo(
            folder,
            ONE_SENTENCE if preferences else BENCH_NOTES,
            tokens=tokens,
            say=stages.say,
            listener=bar.show,
            progress=stages.progress,
            stopping=bar.stopping,
            force=force,
        )
    scores = report.scores
    for example in report.examples:
        out.print(styled("\n[bold]{}[/]", example["prompt"]))
        out.print("base:", style="dim")
        out.print(example["base"])
        out.print("tuned:", style="dim")
        out.print(example["tuned"])
    out.print()
    show_report(report.fidelity, folder / "gguf", json=False)
    gguf = ", ".join(f"{quant} file {count}" for quant, count in scores.gguf.items())
    preferred = "" if report.preferred is None else f", {report.preferred:.0%} of held-out pairs preferred"
    forgetting = f" Forgetting: {report.forgetting.text}." if report.forgetting else ""
    out.print(
        f"\nHeld-out loss {report.held_out_loss_base:.3f} -> {report.held_out_loss_tuned:.3f} "
        f"({report.held_out_improvement:.0%} lower){preferred}.{forgetting} "
        f"Taught behavior in {scores.prompts} held-out replies: "
        f"base {scores.base}, tuned {scores.tuned}, {gguf}."
    )
    out.print(f"All done in {duration(time.perf_counter() - began)}. The report: {folder / 'report.html'}")
    out.print(f"Talk to it: burnish chat {typed(folder / 'gguf' / report.gguf_chat['file'])}")
    return ExitCode.DONE


class _StagePrinter:
    """Show the demo's stages: a sentence each, and a bar for those that report their share."""

    def __init__(self, bar: RunProgress) -> None:
        self._bar = bar

    def say(self, sentence: str) -> None:
        self._bar.note(styled("[bold]{}[/]", sentence))

    def progress(self, what: str, share: float) -> None:
        self._bar.stage(what, share)
