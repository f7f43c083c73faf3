"""The card with replies that a run wrote to learn from: the best and the worst group of each step."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSlider, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.page_states.judged_replies import GroupText, JudgedRepliesState, judged_replies_state
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, caption, heading
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_engine.contract.run.fold import RunState

_SUM_PX, _STEP_PX, _GROUP_PX = 48, 96, 260


class JudgedRepliesCard(Card):
    """Shows the replies of the newest step, or of one that the person chose. Hidden in runs that write none."""

    def __init__(self) -> None:
        super().__init__(tr("Replies that were rewarded"), icon_name="chat")
        self.setProperty(PLACE_PROPERTY, "reinforcement.md")
        self._run = RunState()
        self._wanted: int | None = None
        self._shown = JudgedRepliesState()
        self.step = caption("")
        self.step.setMinimumWidth(_STEP_PX)
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(tr("Step of the replies"))
        self.slider.valueChanged.connect(self._choose)
        self._groups = columns_layout((), 2 * UNIT, line_px=UNIT + 4, even=True, fill=True)
        fill(self.body, fill(QHBoxLayout(), self.step, (self.slider, 1), spacing_px=UNIT), self._groups)
        self.hide()

    def draw(self, state: RunState) -> None:
        """Show the rounds of a run; cheap if nothing changed.

        Args:
            state: state folded from the run's events so far.
        """
        if state.starts[:1] != self._run.starts[:1]:
            self._wanted = None
        self._run = state
        self._apply(judged_replies_state(state.rewards.items(), self._wanted))

    def _choose(self, place: int) -> None:
        self._wanted = None if place == self.slider.maximum() else place  # at the end it follows the run
        self._apply(judged_replies_state(self._run.rewards.items(), self._wanted))

    def _apply(self, state: JudgedRepliesState) -> None:
        if state == self._shown:
            return
        self._shown = state
        self.setVisible(state.is_seen)
        self.slider.blockSignals(True)
        self.slider.setRange(0, max(state.rounds - 1, 0))
        self.slider.setValue(state.place)
        self.slider.blockSignals(False)
        self.slider.setVisible(state.rounds > 1)
        self.step.setText(state.step)
        clear(self._groups)
        for group in state.groups:
            self._groups.addWidget(_group(group))


def _group(group: GroupText) -> QWidget:
    frame = QFrame()
    frame.setProperty("look", "inset")
    frame.setMinimumWidth(_GROUP_PX)
    column = fill(
        QVBoxLayout(frame),
        heading(group.title),
        caption(group.prompt),
        spacing_px=UNIT // 2,
        margins_px=(UNIT + 4, UNIT, UNIT + 4, UNIT + 2),
    )
    for reward, reply in group.replies:
        figure = body(reward, "accent")
        figure.setFixedWidth(_SUM_PX)
        column.addLayout(fill(QHBoxLayout(), (figure, 0, Qt.AlignmentFlag.AlignTop), (body(reply), 1), spacing_px=UNIT))
    column.addStretch(1)
    return frame
