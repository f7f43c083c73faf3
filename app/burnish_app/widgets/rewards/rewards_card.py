"""The card of a recipe's rewards: they are edited, and tried on some rows before training."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.page_states.rewards import RewardsState, TriedText
from burnish_app.recipe.rewards import RewardLine, with_another
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.widgets.basic.buttons import quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, caption, heading, set_tone
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.widgets.rewards.reward_row import RewardRow

_SUM_PX = 56


class RewardsCard(Card):
    """Edits rewards and shows what a trial found. It is hidden where none are learned from.

    Attributes:
        edited: signal with the rewards as they were edited, a list of `RewardLine`.
        wanted: signal without arguments that asks for a trial.
        busy: line about the trial that is running.
        shown: state that is shown.
    """

    edited = Signal(object)
    wanted = Signal()

    def __init__(self) -> None:
        super().__init__(tr("Rewards"), tr("What a reply is paid for, times its weight."), icon_name="scale")
        self.setProperty(PLACE_PROPERTY, "reinforcement.md#rewards")
        self.shown = RewardsState()
        self.rows: list[RewardRow] = []
        self._list = fill(QVBoxLayout(), spacing_px=UNIT)
        self.problem = caption("", "error")
        self.add = quiet(tr("Add a reward"), self._add, "add")
        self.try_on = secondary("", self.wanted.emit, "play")
        self.busy = BusyLine(tr("Writing replies ..."), can_cancel=True)
        self.verdict = body("")
        self._replies = fill(QVBoxLayout(), spacing_px=UNIT)
        actions = row(self.add, None, self.try_on)
        fill(self.body, self._list, self.problem, actions, self.busy, self.verdict, self._replies)
        self.hide()

    @property
    def lines(self) -> tuple[RewardLine, ...]:
        """The rewards as they are edited."""
        return tuple(reward.line for reward in self.rows)

    def apply(self, state: RewardsState) -> None:
        """Show a state."""
        self.setVisible(state.is_seen)
        self._show_lines(state)
        self.problem.setText(state.problems.get(-1, ""))
        self.problem.setVisible(-1 in state.problems)
        self.add.setVisible(state.can_add)
        self.try_on.setText(state.button.text)
        self.try_on.setEnabled(state.button.is_enabled)
        self.busy.setVisible(state.is_busy)
        text, tone = state.verdict
        self.verdict.setText(text)
        set_tone(self.verdict, "" if tone == "plain" else tone)
        self.verdict.setVisible(bool(text))
        self._show_tried(state.tried)
        self.shown = state

    def _show_lines(self, state: RewardsState) -> None:
        while len(self.rows) > len(state.lines):
            reward = self.rows.pop()
            self._list.removeWidget(reward)
            reward.hide()
            reward.deleteLater()
        while len(self.rows) < len(state.lines):
            self.rows.append(self._new_row())
        for place, (reward, line) in enumerate(zip(self.rows, state.lines, strict=True)):
            reward.show_line(line, state.problems.get(place, ""), can_remove=state.can_remove)

    def _new_row(self) -> RewardRow:
        reward = RewardRow()
        reward.edited.connect(lambda: self.edited.emit(self.lines))
        reward.removed.connect(lambda: self._remove(reward))
        self._list.addWidget(reward)
        return reward

    def _add(self) -> None:
        self.edited.emit(with_another(self.lines))

    def _remove(self, reward: RewardRow) -> None:
        self.edited.emit(tuple(other.line for other in self.rows if other is not reward))

    def _show_tried(self, tried: Sequence[TriedText]) -> None:
        if tuple(tried) == self.shown.tried:
            return
        clear(self._replies)
        for one in tried:
            self._replies.addWidget(_reply(one))


def _reply(one: TriedText) -> QWidget:
    frame = QFrame()
    frame.setProperty("look", "inset")
    total = heading(one.total)
    total.setFixedWidth(scaled(_SUM_PX))
    set_tone(total, "" if one.tone == "plain" else one.tone)
    texts = fill(
        QVBoxLayout(),
        body(one.reply),
        caption(one.asked),
        caption(one.parts),
        spacing_px=2,
    )
    fill(QHBoxLayout(frame), total, (texts, 1), spacing_px=UNIT, margins_px=(UNIT + 4, UNIT, UNIT + 4, UNIT))
    return frame
