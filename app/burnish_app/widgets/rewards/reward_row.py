"""One reward to edit: its kind, the setting that the kind needs, its weight, and a button that removes it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.recipe.rewards import KINDS, RewardLine
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import ShorteningBox, caption
from burnish_app.widgets.recipe.fields.field_row import leave_to_page
from burnish_engine.contract.recipe.recipe_reinforce import RewardKind

_KIND_PX, _WEIGHT_PX = 176, 64


class RewardRow(QWidget):
    """Edits a reward.

    Attributes:
        edited: signal without arguments, emitted when the person changed it.
        removed: signal without arguments, emitted when the person removes it.
    """

    edited = Signal()
    removed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._line = RewardLine("task")
        self.kind = ShorteningBox()
        self.kind.setAccessibleName(tr("What is rewarded"))
        self.kind.setFixedWidth(_KIND_PX)
        self.kind.offer([(text.name, kind) for kind, text in KINDS.items()], "task")
        self.kind.activated.connect(lambda _place: self._choose(self.kind.currentData()))
        self.setting = _edit("")
        self.setting.textEdited.connect(lambda _text: self.edited.emit())
        self._pays = caption("")
        self.weight = _edit(tr("Weight"))
        self.weight.setFixedWidth(_WEIGHT_PX)
        self.weight.setToolTip(tr("Factor on it in the sum; below 0 it is a penalty."))
        self.weight.textEdited.connect(lambda _text: self.edited.emit())
        self.remove = quiet("", self.removed.emit, "trash")
        self.remove.setAccessibleName(tr("Remove the reward"))
        self.remove.setToolTip(tr("Remove the reward"))
        for field in (self.kind, self.setting, self.weight):
            field.installEventFilter(self)
        self._problem = caption("", "error")
        self._problem.hide()
        edits = fill(
            QHBoxLayout(), self.kind, (self.setting, 1), (self._pays, 1), self.weight, self.remove, spacing_px=UNIT
        )
        fill(QVBoxLayout(self), edits, self._problem, spacing_px=UNIT // 2)

    @property
    def line(self) -> RewardLine:
        """The reward as it is edited."""
        return RewardLine(self._line.kind, self.setting.text(), self.weight.text(), self._line.rest)

    def show_line(self, line: RewardLine, problem: str, *, can_remove: bool) -> None:
        """Show a reward.

        Args:
            line: reward.
            problem: what is wrong with it; empty: nothing.
            can_remove: whether it may be removed.
        """
        self._line, text = line, KINDS[line.kind]
        self.kind.choose(line.kind)
        self.kind.setToolTip(text.pays)
        self.setting.setVisible(bool(text.setting))
        self._pays.setVisible(not text.setting)
        self._pays.setText(text.pays)
        self.setting.setAccessibleName(f"{text.name}: {text.setting}")
        self.setting.setPlaceholderText(text.example)
        self.setting.setToolTip(text.pays)
        for edit, shown in ((self.setting, line.setting), (self.weight, line.weight)):
            if edit.text() != shown:
                edit.setText(shown)
        self.remove.setEnabled(can_remove)
        self._problem.setText(problem)
        self._problem.setVisible(bool(problem))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Leave undo, redo and the wheel to the page."""
        return leave_to_page(watched, event) or super().eventFilter(watched, event)

    def _choose(self, kind: RewardKind) -> None:
        chosen = self.line.of_kind(kind)
        if chosen.kind != self._line.kind:
            self.show_line(chosen, "", can_remove=self.remove.isEnabled())
            self.edited.emit()


def _edit(name: str) -> QLineEdit:
    edit = QLineEdit()
    edit.setAccessibleName(name)
    return edit
