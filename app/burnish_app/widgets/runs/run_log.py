"""The log of a run: its replies to the fixed prompts, browsed by step, and its warnings."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QSlider, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, caption
from burnish_app.wording.numbers import plural
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.run.events import SampleDone, Warned
from burnish_engine.contract.run.fold import RunState

_MAX_WARNINGS = 20


class RunLog(QWidget):
    """Shows a card of sample replies and a card of warnings, each only if there are any.

    Attributes:
        slider: step at which the replies are read; at its end it follows the newest.
    """

    def __init__(self) -> None:
        super().__init__()
        hint = tr("The first reply to each, and the one at the step that you choose.")
        self.samples = Card(tr("Replies to the fixed prompts"), hint, icon_name="chat")
        self.warnings = Card(tr("Worth knowing"))
        self._drawn = (-1, -1)
        self._samples: list[SampleDone] = []
        self._steps: list[int] = []
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(tr("Step of the replies"))
        self.slider.setPageStep(1)
        self.slider.setMinimumHeight(3 * UNIT)  # the style sheet's handle is higher than its groove
        self.slider.valueChanged.connect(self._show_replies)
        self._at = caption("")
        self._at.setWordWrap(False)
        self._chooser = QWidget()
        fill(QHBoxLayout(self._chooser), (self.slider, 1), self._at, spacing_px=2 * UNIT)
        self._replies = QVBoxLayout()
        fill(self.samples.body, self._chooser, self._replies)
        column = fill(QVBoxLayout(self), spacing_px=2 * UNIT)
        for card in (self.warnings, self.samples):
            card.hide()
            column.addWidget(card)

    def draw(self, state: RunState) -> None:
        """Show the samples and warnings of a state; cheap if nothing was added."""
        now = (len(state.samples), len(state.warnings))
        if now == self._drawn:
            return
        self._drawn = now
        self._show_samples(state.samples.items())
        clear(self.warnings.body)
        texts = distinct(state.warnings.items())
        for text in texts:
            self.warnings.body.addWidget(body(plain_words(text)))
        self.warnings.setVisible(bool(texts))

    def _show_samples(self, samples: list[SampleDone]) -> None:
        """Show samples; a step that the person chose stays, and the newest one is followed."""
        steps = sorted({sample.step for sample in samples})
        at = self.slider.value()
        chosen = self._steps[at] if at < len(self._steps) - 1 and self._steps[at] in steps else None
        self._samples, self._steps = samples, steps
        blocked = self.slider.blockSignals(True)
        self.slider.setRange(0, max(len(steps) - 1, 0))
        self.slider.setValue(steps.index(chosen) if chosen is not None else len(steps) - 1)
        self.slider.blockSignals(blocked)
        self._chooser.setVisible(len(steps) > 1)
        self.samples.setVisible(bool(samples))
        self._show_replies()

    def _show_replies(self) -> None:
        clear(self._replies)
        if not self._steps:
            return
        step = self._steps[self.slider.value()]
        newest = step == self._steps[-1]
        text = tr("step {step}, the newest") if newest else tr("step {step}")
        self._at.setText(text.format(step=f"{step:,}"))
        for first, then in first_and_at(self._samples, step):
            self._replies.addWidget(_sample_widget(first, then))


def first_and_at(samples: Sequence[SampleDone], step: int) -> list[tuple[SampleDone, SampleDone]]:
    """Pair the first reply to each prompt with the last one up to a step, in the order of the prompts' first replies.

    Args:
        samples: replies in order.
        step: number of the step; prompts that were asked only later are left out.
    """
    first: dict[str, SampleDone] = {}
    latest: dict[str, SampleDone] = {}
    for sample in samples:
        if sample.step <= step:
            first.setdefault(sample.prompt, sample)
            latest[sample.prompt] = sample
    return [(first[prompt], latest[prompt]) for prompt in first]


def distinct(warnings: list[Warned]) -> list[str]:
    """Return the distinct messages, newest first, each with its count."""
    times: dict[str, int] = {}
    for warning in reversed(warnings):
        times[warning.message] = times.get(warning.message, 0) + 1
    texts = [message if n == 1 else f"{message} ({plural(n, 'time')})" for message, n in times.items()]
    return texts[:_MAX_WARNINGS]


def _sample_widget(first: SampleDone, then: SampleDone) -> QWidget:
    holder = QWidget()
    column = fill(QVBoxLayout(holder), caption(then.prompt), spacing_px=4, margins_px=(0, UNIT // 2, 0, UNIT // 2))
    if first.step != then.step:
        column.addWidget(body(tr("Step {step:,}: {strip}").format(step=first.step, strip=first.reply.strip()), "muted"))
    ending = "" if then.stopped else " …"
    column.addWidget(
        body(tr("Step {step:,}: {strip}{ending}").format(step=then.step, strip=then.reply.strip(), ending=ending))
    )
    return holder
