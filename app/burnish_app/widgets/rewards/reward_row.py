"""One reward to edit: its kind, the setting that the kind needs, its weight, and a button that removes it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLineEdit, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.recipe.rewards import KINDS, RewardLine
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import ShorteningBox, caption
from burnish_app.widgets.recipe.fields.field_row import leave_to_page
from burnish_engine.contract.recipe.recipe_reinforce import RewardKind

_KIND_PX, _WEIGHT_PX = 176, 64
_BESIDE_PX = 460  # room from which the setting stands beside the kind


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
        self.kind.setMinimumWidth(_KIND_PX)
        self.kind.setMaximumWidth(scaled(_KIND_PX))
        self.kind.offer([(text.name, kind) for kind, text in KINDS.items()], "task")
        self.kind.activated.connect(lambda _place: self._choose(self.kind.currentData()))
        self.setting = _edit("")
        self.setting.textEdited.connect(lambda _text: self.edited.emit())
        self._pays = caption("")
        self.weight = _edit(tr("Weight"))
        self.weight.setFixedWidth(scaled(_WEIGHT_PX))
        self.weight.setToolTip(tr("Factor on it in the sum; below 0 it is a penalty."))
        self.weight.textEdited.connect(lambda _text: self.edited.emit())
        self.remove = quiet("", self.removed.emit, "trash")
        self.remove.setAccessibleName(tr("Remove the reward"))
        self.remove.setToolTip(tr("Remove the reward"))
        for field in (self.kind, self.setting, self.weight):
            field.installEventFilter(self)
        self._problem = caption("", "error")
        self._problem.hide()
        self._detail = QWidget()
        fill(QHBoxLayout(self._detail), (self.setting, 1), (self._pays, 1))
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(UNIT)
        self._grid.setVerticalSpacing(UNIT // 2)
        self._grid.setColumnStretch(1, 1)
        for column, widget in ((2, self.weight), (3, self.remove)):
            self._grid.addWidget(widget, 0, column)
        self._grid.addWidget(self._problem, 2, 0, 1, 4)
        self._is_narrow: bool | None = None
        self._place(is_narrow=False)

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

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the setting below the kind where there is little room beside it."""
        super().resizeEvent(event)
        self._place(is_narrow=self.width() < scaled(_BESIDE_PX))

    def _place(self, *, is_narrow: bool) -> None:
        if is_narrow != self._is_narrow:
            self._is_narrow = is_narrow
            self._grid.addWidget(self.kind, 0, 0, 1, 2 if is_narrow else 1)
            self._grid.addWidget(self._detail, *((1, 0, 1, 4) if is_narrow else (0, 1)))

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
