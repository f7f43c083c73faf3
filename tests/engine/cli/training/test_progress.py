"""A run's progress names the figures of preferences, and its bar fits the terminal."""

import io

import pytest
from rich.console import Console

from burnish_engine.cli.training import progress as module
from burnish_engine.cli.training.progress import RunProgress, evaluation_text, preferred_text
from burnish_engine.contract.run.events import DataReady, EvaluationDone, PhaseChanged, PhaseProgress
from burnish_engine.contract.wording.tables import CHECKS


def evaluated(**figures):
    return EvaluationDone(step=4, loss=0.5, tokens=99, seconds=1.0, **figures)


def test_pairs_are_preferred_and_labeled_replies_are_judged_as_labeled():
    pairs = evaluation_text(evaluated(accuracy=0.75, margin=0.5, kl_to_base=0.012))
    assert "of a pair" in pairs
    assert "75% preferred" in pairs
    assert "0.012 nats a token from the base" in pairs
    replies = evaluation_text(evaluated(accuracy=0.75, margin=0.5, kl=0.0))
    assert "of a reply" in replies
    assert "75% as labeled" in replies
    assert "pair" not in replies
    assert "per learned token" in evaluation_text(evaluated())
    assert preferred_text(evaluated()) == ""


@pytest.mark.parametrize(("kl", "margin"), [(None, 0.0), (0.0, 0.0), (None, -3e-6)])
def test_the_reference_prefers_nothing_yet(kl, margin):
    """Without a difference no pair has a positive margin but by rounding, which is no sign of swapped columns."""
    said = evaluation_text(evaluated(accuracy=0.25, margin=margin, kl=kl, kl_to_base=0.0))
    assert "no preference yet" in said
    assert "%" not in said


@pytest.fixture
def shown(monkeypatch):
    """Show events on a terminal of a width: (width, events, stages) -> what is drawn last."""

    def show(width, *events, stages=()):
        terminal = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
        monkeypatch.setattr(module, "out", terminal)
        progress = RunProgress()
        for event in events:
            progress.show(event)
        for what, share in stages:
            progress.stage(what, share)
        with terminal.capture() as capture:
            terminal.print(progress._bar.get_renderable())
        return capture.get()

    return show


def test_one_row_has_the_singular():
    ready = DataReady(
        train_rows=1, validation_rows=0, dropped_rows=0, truncated_rows=0, train_tokens=35, supervised_tokens=16,
        micro_batches_per_epoch=1, fill=0.1,
    )  # fmt: skip
    assert str(module._line(ready)).startswith("1 row to learn from, 0 held out")
    assert str(module._line(ready.model_copy(update={"train_rows": 1200}))).startswith("1,200 rows to learn from")


CHECKING = (PhaseChanged(phase="checking"), PhaseProgress(done=10, total=11, unit="checks", what="leak"))


def test_a_narrow_terminal_counts_checks_and_a_wide_one_names_them(shown):
    narrow = shown(80, *CHECKING)
    assert "11 of 11" in narrow
    assert "…" not in narrow
    assert CHECKS["leak"] in shown(140, *CHECKING)


def test_the_bar_of_a_run_leaves_when_other_stages_begin(shown):
    """A finished bar would stand above the stages of the demo for minutes."""
    bars = shown(80, PhaseChanged(phase="saving"), stages=[("Reply 1 of 40", 0.0)])
    assert "Reply 1 of 40" in bars
    assert "saving" not in bars
