"""The steps at the left of the window, how each stands, and quiet notes at the foot."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.icons import pixmap
from burnish_app.theme import BODY_PX, UNIT, colors_of, font
from burnish_app.widgets.card import IconLabel
from burnish_app.widgets.status_dot import STATUS_WORDS, Status, StatusDot
from burnish_app.widgets.text import caption, heading

_WIDTH_PX = 200
_ROW_PX = 40


class StepButton(QAbstractButton):
    """One step: icon, name, and how it stands.

    Args:
        key: The page's key; also the icon's name.
        text: The page's name.
        shortcut: Key that goes there, shown on hover; may be empty.
    """

    def __init__(self, key: str, text: str, shortcut: str = "") -> None:
        super().__init__()
        self.key = key
        self._by_keyboard = False
        self._dot = StatusDot()
        self._dot.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setText(text)
        self.setCheckable(True)
        self.setFont(font(BODY_PX))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setToolTip(f"{text} ({shortcut})" if shortcut else text)
        self.setAccessibleName(text)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, UNIT + 4, 0)
        line.addStretch()
        line.addWidget(self._dot)

    @property
    def status(self) -> Status:
        """How the step stands."""
        return self._dot.status

    def set_status(self, status: Status) -> None:
        """Show how the step stands."""
        self._dot.set_status(status)
        self.setAccessibleDescription(STATUS_WORDS[status])

    def hide_status(self) -> None:
        """This entry is no step: it has nothing to be done."""
        self._dot.hide()

    def sizeHint(self) -> QSize:
        """A row of the grid."""
        return QSize(_WIDTH_PX - 2 * UNIT, _ROW_PX)

    def event(self, event: QEvent) -> bool:
        """Repaint when the pointer comes and goes."""
        if event.type() in (QEvent.Type.Enter, QEvent.Type.Leave):
            self.update()
        return super().event(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the focus only to those who go by keyboard."""
        self._by_keyboard = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        super().focusInEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The chosen step on a lighter ground with an accent edge."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        if self.isChecked() or self.underMouse():
            painter.setBrush(QColor(colors.surface if self.isChecked() else colors.window))
            painter.drawRoundedRect(self.rect(), 6, 6)
        if self.hasFocus() and self._by_keyboard:
            painter.setPen(QPen(QColor(colors.accent), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
            painter.setPen(Qt.PenStyle.NoPen)
        if self.isChecked():
            painter.setBrush(QColor(colors.accent))
            painter.drawRoundedRect(QRectF(0, 10, 3, self.height() - 20), 1.5, 1.5)
        ink = colors.text if self.isChecked() else colors.muted
        drawn = pixmap(self.key, ink, 20, pixel_ratio=self.devicePixelRatioF())
        painter.drawPixmap(UNIT + 4, (self.height() - 20) // 2, drawn)
        painter.setPen(QColor(colors.text if self.isEnabled() else colors.faint))
        painter.setFont(self.font())
        left = 5 * UNIT + 2
        painter.drawText(
            QRectF(left, 0, self.width() - left - 3 * UNIT, self.height()),
            Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft,
            self.text(),
        )


class Sidebar(QWidget):
    """All steps, in their order.

    Args:
        steps: (key, name) of each step.
        foot: (key, name) of the small entry at the foot.

    Attributes:
        chosen: Emits the key of the step that was pressed.
    """

    chosen = Signal(str)

    def __init__(self, steps: list[tuple[str, str]], foot: tuple[str, str]) -> None:
        super().__init__()
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(_WIDTH_PX)
        self.setAccessibleName("Steps")
        self._group = QButtonGroup(self)
        self._buttons: dict[str, StepButton] = {}
        self._run_note, self._engine_note = caption(""), caption("", "warning")
        column = QVBoxLayout(self)
        column.setContentsMargins(UNIT, 2 * UNIT, UNIT, UNIT)
        column.setSpacing(2)
        column.addWidget(self._mark())
        column.addSpacing(2 * UNIT)
        for number, (key, name) in enumerate(steps, 1):
            column.addWidget(self._add(key, name, f"Ctrl+{number}"))
        column.addStretch()
        for note in (self._run_note, self._engine_note):
            note.setContentsMargins(UNIT, 0, UNIT, UNIT)
            note.hide()
            column.addWidget(note)
        last = self._add(*foot)
        last.hide_status()
        column.addWidget(last)

    def button(self, key: str) -> StepButton:
        """The entry of a page."""
        return self._buttons[key]

    def show_chosen(self, key: str) -> None:
        """Mark an entry as the one shown."""
        self._buttons[key].setChecked(True)

    def set_run_note(self, text: str) -> None:
        """A quiet note about runs; empty: none."""
        self._run_note.setText(text)
        self._run_note.setVisible(bool(text))

    def set_engine_note(self, text: str) -> None:
        """A note about the engine; empty: all is well."""
        self._engine_note.setText(text)
        self._engine_note.setVisible(bool(text))

    @staticmethod
    def _mark() -> QWidget:
        holder = QWidget()
        line = QHBoxLayout(holder)
        line.setContentsMargins(UNIT + 4, 0, 0, 0)
        line.setSpacing(UNIT + 2)
        line.addWidget(IconLabel("burnish", 22, "accent"))
        line.addWidget(heading("Burnish"), 1)
        return holder

    def _add(self, key: str, name: str, shortcut: str = "") -> StepButton:
        button = StepButton(key, name, shortcut)
        button.clicked.connect(lambda _checked=False: self.chosen.emit(key))
        self._group.addButton(button)
        self._buttons[key] = button
        return button
