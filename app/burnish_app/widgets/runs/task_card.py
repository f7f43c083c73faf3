"""The card of the task's score: a bar before training and after, whether they differ, and replies that are wrong."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT, colors_of
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.widgets.basic.buttons import FoldedContent
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, caption, heading, set_tone
from burnish_app.wording.fidelity_text import score_text
from burnish_app.wording.numbers import percent, plural
from burnish_engine.contract.facts.task_score import TaskChange, TaskReply, TaskScore
from burnish_engine.contract.recipe.recipe_task import TaskMetric
from burnish_engine.contract.run.fold import RunState

METRICS: dict[TaskMetric, str] = {
    "exact_match": tr("the row's own reply, word for word"),
    "regex": tr("the pattern is found"),
    "json": tr("valid JSON"),
    "choice": tr("the row's choice"),
    "number": tr("the row's number"),
}
"""Reply that counts as right, by metric."""
_LEAST_ODDS, _FEW = 0.001, 0.1  # odds below which only the bound is said, and below which they have a decimal
_BAR_PX, _NARROWEST_PX = 12, 120


class TaskCard(Card):
    """Shows how many held-out rows a run answers rightly. Hidden while nothing is scored."""

    def __init__(self) -> None:
        super().__init__(
            tr("Score of the task"),
            tr("Held-out rows answered rightly, by the most likely reply. Thin line: 95\N{NO-BREAK SPACE}% interval."),
            icon_name="scale",
        )
        self.setProperty(PLACE_PROPERTY, "your-data.md#the-score-of-your-task")
        self._drawn: tuple[object, ...] = ()
        self._bars = QGridLayout()
        self._bars.setHorizontalSpacing(2 * UNIT)
        self._bars.setVerticalSpacing(UNIT)
        self._bars.setColumnStretch(1, 1)
        self.verdict = heading("")
        self.note = caption("")
        self.wrong = FoldedContent()
        self.wrong.set_title(tr("Replies that are wrong"))
        fill(self.body, self._bars, self.verdict, self.note, self.wrong)
        self.hide()

    def draw(self, state: RunState) -> None:
        """Show the scores of a state; cheap if nothing changed.

        Args:
            state: state folded from the run's events so far.
        """
        change = state.task
        scores = [one.score for one in state.task_scores]
        if change is not None:
            scores = [change.before, change.after]
        now = (scores, change is not None)
        if now == self._drawn:
            return
        self._drawn = now
        self.setVisible(bool(scores))
        clear(self._bars)
        if not scores:
            return
        self.set_heading(tr("Score of the task: {metric}").format(metric=METRICS.get(scores[0].metric, "")))
        shown = [(tr("Before training"), scores[0]), *((tr("After"), score) for score in scores[1:][-1:])]
        for line, (name, score) in enumerate(shown):
            self._add_bar(line, name, score)
        text, tone = change_text(change) if change is not None else ("", "")
        self.verdict.setText(text)
        set_tone(self.verdict, tone)
        self.verdict.setVisible(bool(text))
        self._show_wrong(shown[-1][1])

    def _add_bar(self, line: int, name: str, score: TaskScore) -> None:
        bar = ScoreBar(score, name)
        figures = body(score_text(score))
        figures.setWordWrap(False)
        self._bars.addWidget(body(name, "muted"), line, 0)
        self._bars.addWidget(bar, line, 1)
        self._bars.addWidget(figures, line, 2)

    def _show_wrong(self, score: TaskScore) -> None:
        cut = tr("{replies} cut at the longest length: task.max_tokens allows longer ones.")
        self.note.setText(cut.format(replies=plural(score.cut, "reply was", "replies were")) if score.cut else "")
        self.note.setVisible(bool(score.cut))
        clear(self.wrong.lines)
        for failure in score.failures:
            self.wrong.lines.addWidget(_failure(failure))
        self.wrong.setVisible(bool(score.failures))


class ScoreBar(QWidget):
    """A bar filled by a score's share, with a line for its interval.

    Args:
        score: score to draw.
        name: name for screen readers.
    """

    def __init__(self, score: TaskScore, name: str) -> None:
        super().__init__()
        self._score = score
        self.setAccessibleName(name)
        self.setAccessibleDescription(score_text(score))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(2 * _NARROWEST_PX, scaled(2 * _BAR_PX))

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size."""
        return QSize(_NARROWEST_PX, scaled(2 * _BAR_PX))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw track, bar and interval."""
        painter, colors = QPainter(self), colors_of(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        thick, middle = scaled(_BAR_PX), self.height() / 2
        left, width = 1.0, self.width() - 2.0
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colors.raised))
        painter.drawRoundedRect(QRectF(left, middle - thick / 2, width, thick), thick / 2, thick / 2)
        if self._score.right:
            painter.setBrush(QColor(colors.accent))
            filled = max(width * self._score.share, thick)
            painter.drawRoundedRect(QRectF(left, middle - thick / 2, filled, thick), thick / 2, thick / 2)
        low, high = (left + width * end for end in self._score.interval)
        painter.setPen(QPen(QColor(colors.text), 1.6))
        painter.drawLine(QPointF(low, middle), QPointF(high, middle))
        for end in (low, high):
            painter.drawLine(QPointF(end, middle - thick / 3), QPointF(end, middle + thick / 3))


def change_text(change: TaskChange) -> tuple[str, str]:
    """Say whether the second score is better beyond chance, as (sentence, look)."""
    if change.verdict == "equal":
        return tr("The same rows are right before and after."), "muted"
    counts = tr("{gained} gained, {lost} lost, {odds}").format(
        gained=change.gained, lost=change.lost, odds=_odds_text(change.p_value)
    )
    if change.verdict == "not distinguishable":
        return tr("The difference may be chance: {counts}. More rows tell more.").format(counts=counts), "muted"
    if change.verdict == "better":
        return tr("Better beyond chance: {counts}.").format(counts=counts), "success"
    return tr("Worse beyond chance: {counts}.").format(counts=counts), "warning"


def _odds_text(p_value: float) -> str:
    """Say how often chance alone would make such a difference."""
    if p_value < _LEAST_ODDS:
        return tr("by chance less than once in {times:,}").format(times=round(1 / _LEAST_ODDS))
    return tr("by chance in {share} of such cases").format(share=percent(p_value, 1 if p_value < _FEW else 0))


def _failure(failure: TaskReply) -> QWidget:
    widget = QWidget()
    column = fill(
        QVBoxLayout(widget),
        caption(tr("Row {row}: {why}").format(row=failure.row, why=failure.why), "warning"),
        spacing_px=2,
        margins_px=(2 * UNIT, 0, 0, 0),
    )
    for name, text in ((tr("Asked"), failure.asked), (tr("Wanted"), failure.wanted), (tr("Reply"), failure.reply)):
        column.addWidget(caption(f"{name}:  {text.strip() or '–'}"))
    return widget
