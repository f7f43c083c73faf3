"""What a run said beside its figures: replies to the fixed prompts, and warnings."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.run_state import RunState
from burnish_app.theme import UNIT
from burnish_app.widgets.card import Card
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import body, caption
from burnish_app.words import plural
from burnish_engine.contract.events import SampleDone, Warned

_MOST_WARNINGS = 20


class RunLog(QWidget):
    """Cards of samples and warnings, each shown only where there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = Card("Replies to the fixed prompts", "The first and the newest reply to each.")
        self.warnings = Card("Worth knowing")
        self._drawn = (-1, -1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2 * UNIT)
        for card in (self.warnings, self.samples):
            card.hide()
            column.addWidget(card)

    def draw(self, state: RunState) -> None:
        """Show what this state holds; cheap where nothing was added."""
        now = (len(state.samples), len(state.warnings))
        if now == self._drawn:
            return
        self._drawn = now
        _refill(self.samples, [_sample_widget(*pair) for pair in first_and_newest(state.samples.items())])
        _refill(self.warnings, [body(text) for text in distinct(state.warnings.items())])


def first_and_newest(samples: list[SampleDone]) -> list[tuple[SampleDone, SampleDone]]:
    """For each prompt its first and its newest reply, in the order the prompts first came."""
    first: dict[str, SampleDone] = {}
    newest: dict[str, SampleDone] = {}
    for sample in samples:
        first.setdefault(sample.prompt, sample)
        newest[sample.prompt] = sample
    return [(first[prompt], newest[prompt]) for prompt in first]


def distinct(warnings: list[Warned]) -> list[str]:
    """The messages, newest first, each once with how often it came."""
    times: dict[str, int] = {}
    for warning in reversed(warnings):
        times[warning.message] = times.get(warning.message, 0) + 1
    texts = [message if n == 1 else f"{message} ({plural(n, 'time')})" for message, n in times.items()]
    return texts[:_MOST_WARNINGS]


def _sample_widget(first: SampleDone, newest: SampleDone) -> QWidget:
    holder = QWidget()
    column = QVBoxLayout(holder)
    column.setContentsMargins(0, UNIT // 2, 0, UNIT // 2)
    column.setSpacing(4)
    column.addWidget(caption(newest.prompt))
    if first.step != newest.step:
        column.addWidget(body(f"Step {first.step:,}: {first.reply.strip()}", "muted"))
    ending = "" if newest.stopped else " …"
    column.addWidget(body(f"Step {newest.step:,}: {newest.reply.strip()}{ending}"))
    return holder


def _refill(card: Card, widgets: list[QWidget]) -> None:
    clear(card.body)
    for widget in widgets:
        card.body.addWidget(widget)
    card.setVisible(bool(widgets))
