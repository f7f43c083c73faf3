"""The log of a run: its replies to the fixed prompts, and its warnings."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import body, caption
from burnish_app.wording.numbers import plural
from burnish_engine.contract.run.events import SampleDone, Warned
from burnish_engine.contract.run.fold import RunState

_MAX_WARNINGS = 20


class RunLog(QWidget):
    """Shows a card of sample replies and a card of warnings, each only if there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = Card(tr("Replies to the fixed prompts"), tr("The first and the newest reply to each."))
        self.warnings = Card(tr("Worth knowing"))
        self._drawn = (-1, -1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2 * UNIT)
        for card in (self.warnings, self.samples):
            card.hide()
            column.addWidget(card)

    def draw(self, state: RunState) -> None:
        """Show the samples and warnings of a state; cheap if nothing was added."""
        now = (len(state.samples), len(state.warnings))
        if now == self._drawn:
            return
        self._drawn = now
        _refill(self.samples, [_sample_widget(*pair) for pair in first_and_newest(state.samples.items())])
        _refill(self.warnings, [body(text) for text in distinct(state.warnings.items())])


def first_and_newest(samples: list[SampleDone]) -> list[tuple[SampleDone, SampleDone]]:
    """Pair the first and the newest reply to each prompt, in the order of the prompts' first replies."""
    first: dict[str, SampleDone] = {}
    newest: dict[str, SampleDone] = {}
    for sample in samples:
        first.setdefault(sample.prompt, sample)
        newest[sample.prompt] = sample
    return [(first[prompt], newest[prompt]) for prompt in first]


def distinct(warnings: list[Warned]) -> list[str]:
    """Return the distinct messages, newest first, each with its count."""
    times: dict[str, int] = {}
    for warning in reversed(warnings):
        times[warning.message] = times.get(warning.message, 0) + 1
    texts = [message if n == 1 else f"{message} ({plural(n, 'time')})" for message, n in times.items()]
    return texts[:_MAX_WARNINGS]


def _sample_widget(first: SampleDone, newest: SampleDone) -> QWidget:
    holder = QWidget()
    column = QVBoxLayout(holder)
    column.setContentsMargins(0, UNIT // 2, 0, UNIT // 2)
    column.setSpacing(4)
    column.addWidget(caption(newest.prompt))
    if first.step != newest.step:
        column.addWidget(body(tr("Step {step:,}: {strip}").format(step=first.step, strip=first.reply.strip()), "muted"))
    ending = "" if newest.stopped else " …"
    column.addWidget(
        body(tr("Step {step:,}: {strip}{ending}").format(step=newest.step, strip=newest.reply.strip(), ending=ending))
    )
    return holder


def _refill(card: Card, widgets: list[QWidget]) -> None:
    clear(card.body)
    for widget in widgets:
        card.body.addWidget(widget)
    card.setVisible(bool(widgets))
