"""The sidebar of the window: the steps with their status, other pages, and what is running at the foot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, QUrl, Signal
from PySide6.QtGui import QColor, QDesktopServices, QFocusEvent, QLinearGradient, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.look.icons import pixmap
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import BODY_PX, CONTROL_RADIUS_PX, RING_PX, UNIT
from burnish_app.state.step_status import STEP_STATUS_TEXT, StepStatus
from burnish_app.widgets.activity.button import ActivityButton
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.status_dot import StatusDot
from burnish_app.widgets.basic.text import caption, headline

if TYPE_CHECKING:  # the window is shown before it, and pydantic with it, is loaded
    from burnish_app.widgets.hardware.strip import HardwareStrip

_WIDTH_PX = 208
_ROW_PX, _LEAST_ROW_PX, _MARK_PX = 40, 28, 32
_ICON_PX, _LINE_PX = 20, 1.2
_LEFT = Qt.AlignmentFlag.AlignLeft


class StepButton(QAbstractButton):
    """The sidebar button of one step: icon, name and status.

    Args:
        key: key of the page, which is also the name of its icon.
        text: name of the page.
        shortcut: keyboard shortcut, shown in the tooltip; may be empty.
    """

    def __init__(self, key: str, text: str, shortcut: str = "") -> None:
        super().__init__()
        self.key = key
        self._by_keyboard = False
        self._is_joined = False, False
        self._dot = StatusDot()
        self._dot.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setText(text)
        self.setCheckable(True)
        self.setFont(font(BODY_PX))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.setToolTip(f"{text} ({shortcut})" if shortcut else text)
        self.setAccessibleName(text)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, UNIT + 4, 0)
        line.addStretch()
        line.addWidget(self._dot)

    @property
    def status(self) -> StepStatus:
        """The status of the step."""
        return self._dot.status

    @property
    def has_status(self) -> bool:
        """Whether the entry is a step, which has a status."""
        return not self._dot.isHidden()

    def set_status(self, status: StepStatus) -> None:
        """Show the status of the step."""
        self._dot.set_status(status)
        self.setAccessibleDescription(STEP_STATUS_TEXT[status])

    def join(self, *, above: bool, below: bool) -> None:
        """Draw a line from the icon to the step above, to that below, or to both."""
        self._is_joined = above, below

    def hide_status(self) -> None:
        """Hide the status, for an entry that is not a step."""
        self._dot.hide()

    def sizeHint(self) -> QSize:
        """Return the preferred size of a sidebar row."""
        return QSize(_WIDTH_PX - 2 * UNIT, _ROW_PX)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: lower, where what stands at the foot of the sidebar needs the room."""
        return QSize(_WIDTH_PX - 2 * UNIT, _LEAST_ROW_PX)

    def event(self, event: QEvent) -> bool:
        """Repaint when the pointer enters or leaves."""
        if event.type() in (QEvent.Type.Enter, QEvent.Type.Leave):
            self.update()
        return super().event(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Remember whether the focus came by keyboard: only then it is drawn."""
        self._by_keyboard = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        super().focusInEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the step; the chosen one has a lighter background and an accent edge."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        if self.isChecked() or self.underMouse():
            painter.setBrush(QColor(colors.surface if self.isChecked() else colors.window))
            painter.drawRoundedRect(self.rect(), CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
        if self.isChecked():
            painter.setBrush(QColor(colors.accent))
            painter.drawRoundedRect(QRectF(0, 10, 3, self.height() - 20), 1.5, 1.5)
        if self.hasFocus() and self._by_keyboard:
            _draw_ring(painter, self)
        ink = colors.text if self.isChecked() else colors.muted
        drawn = pixmap(self.key, ink, _ICON_PX, pixel_ratio=self.devicePixelRatioF())
        painter.drawPixmap(UNIT + 4, (self.height() - _ICON_PX) // 2, drawn)
        self._draw_joints(painter)
        painter.setPen(QColor(colors.text if self.isEnabled() else colors.faint))
        painter.setFont(self.font())
        left = 5 * UNIT + 2
        painter.drawText(
            QRectF(left, 0, self.width() - left - 3 * UNIT, self.height()),
            Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft,
            self.text(),
        )

    def _draw_joints(self, painter: QPainter) -> None:
        painter.setPen(QPen(QColor(colors_of(self).edge), _LINE_PX))
        x, middle, reach = UNIT + 4 + _ICON_PX / 2, self.height() / 2, _ICON_PX / 2 + 2
        above, below = self._is_joined
        if above:
            painter.drawLine(QPointF(x, 0), QPointF(x, middle - reach))
        if below:
            painter.drawLine(QPointF(x, middle + reach), QPointF(x, self.height()))


def _draw_ring(painter: QPainter, widget: QWidget) -> None:
    """Draw the ring of the keyboard focus along a widget's edge."""
    painter.setPen(QPen(QColor(colors_of(widget).focus), RING_PX))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    half = RING_PX / 2
    ring = QRectF(widget.rect()).adjusted(half, half, -half, -half)
    painter.drawRoundedRect(ring, CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
    painter.setPen(Qt.PenStyle.NoPen)


class _BrandTile(QWidget):
    """Draws the mark of Burnish: its tool on a tile of heated metal."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedSize(_MARK_PX, _MARK_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the mark."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        metal = QLinearGradient(0, 0, self.width(), self.height())
        metal.setColorAt(0, QColor(colors.accent_hover))
        metal.setColorAt(1, QColor(colors.accent))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(metal)
        painter.drawRoundedRect(self.rect(), CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
        drawn = pixmap("burnish", colors.on_accent, 22, pixel_ratio=self.devicePixelRatioF())
        painter.drawPixmap((self.width() - 22) // 2, (self.height() - 22) // 2, drawn)


class Sidebar(QWidget):
    """Shows all steps in their order, joined by a line, below them other pages, and what is running.

    Args:
        steps: (key, name, shortcut) of each step.
        others: (key, name, shortcut) of each page that is no step.

    Attributes:
        chosen: signal with the key of the pressed step.
        remedy: signal without arguments, emitted when the person asks to remedy the alarm.
        activity: button of what is running.
        hardware: strip with the newest samples of the hardware.
    """

    chosen = Signal(str)
    hardware: HardwareStrip
    remedy = Signal()

    def __init__(self, steps: Sequence[tuple[str, str, str]], others: Sequence[tuple[str, str, str]]) -> None:
        super().__init__()
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(_WIDTH_PX)
        self.setAccessibleName(tr("Steps"))
        self._group = QButtonGroup(self)
        self._buttons: dict[str, StepButton] = {}
        self.run_note, self.engine_note = caption(""), caption("", "warning")
        self._log_file = ""
        self.log_button = quiet(tr("Open its log"), self._open_log)
        column = QVBoxLayout(self)
        column.setContentsMargins(UNIT, 2 * UNIT, UNIT, UNIT)
        column.setSpacing(2)
        column.addWidget(self._mark())
        column.addSpacing(2 * UNIT)
        column.addLayout(self._join([self._add(*step) for step in steps]))
        column.addSpacing(2 * UNIT)
        for other in others:
            button = self._add(*other)
            button.hide_status()
            column.addWidget(button)
        column.addStretch()
        self.activity = ActivityButton()
        column.addWidget(self.activity)
        self._hardware_place = QVBoxLayout()
        self.alarm, self._remedy = caption("", "warning"), quiet("", self.remedy.emit)
        for note in (self.run_note, self.engine_note):
            note.setContentsMargins(UNIT + 4, 0, UNIT, UNIT)  # below the names of what is running
            note.hide()
            column.addWidget(note)
        self.log_button.hide()
        column.addWidget(self.log_button, alignment=_LEFT)
        self.alarm.setContentsMargins(UNIT, 0, UNIT, 0)
        for widget in (self.alarm, self._remedy):
            widget.hide()
            column.addWidget(widget, alignment=Qt.AlignmentFlag(0) if widget is self.alarm else _LEFT)
        column.addLayout(self._hardware_place)

    def add_hardware(self) -> None:
        """Add the strip of the hardware, for which the window does not wait before it is shown."""
        from burnish_app.widgets.hardware.strip import HardwareStrip

        self.hardware = HardwareStrip()
        self._hardware_place.addWidget(self.hardware)

    def button(self, key: str) -> StepButton:
        """Return the button of a page."""
        return self._buttons[key]

    def show_chosen(self, key: str) -> None:
        """Mark the button of the page that is shown."""
        self._buttons[key].setChecked(True)

    def set_run_note(self, text: str) -> None:
        """Set the note about runs; empty: none."""
        self.run_note.setText(text)
        self.run_note.setVisible(bool(text))

    def set_alarm(self, text: str, remedy: str = "") -> None:
        """Set the alarm about the hardware.

        Args:
            text: sentence; empty: all is well.
            remedy: text of the button that remedies it; empty: none.
        """
        self.alarm.setText(text)
        self.alarm.setVisible(bool(text))
        self._remedy.setText(remedy)
        self._remedy.setAccessibleName(remedy)
        self._remedy.setVisible(bool(remedy))

    @property
    def remedy_button(self) -> QPushButton:
        """The button that remedies the alarm."""
        return self._remedy

    def set_engine_note(self, text: str, log_file: str = "") -> None:
        """Set the note about the engine.

        Args:
            text: sentence; empty: all is well.
            log_file: path of the log that a button opens; empty: no button.
        """
        self.engine_note.setText(text)
        self.engine_note.setVisible(bool(text))
        self._log_file = log_file
        self.log_button.setVisible(bool(log_file))

    def _open_log(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(self._log_file))

    @staticmethod
    def _mark() -> QWidget:
        holder = QWidget()
        line = QHBoxLayout(holder)
        line.setContentsMargins(UNIT, 0, 0, 0)
        line.setSpacing(UNIT + 2)
        line.addWidget(_BrandTile())
        line.addWidget(headline("Burnish"), 1)
        return holder

    @staticmethod
    def _join(buttons: Sequence[StepButton]) -> QVBoxLayout:
        """Put the buttons of the steps below each other, so that a line joins their icons."""
        column = QVBoxLayout()
        column.setSpacing(0)
        for button in buttons:
            button.join(above=button is not buttons[0], below=button is not buttons[-1])
            column.addWidget(button)
        return column

    def _add(self, key: str, name: str, shortcut: str = "") -> StepButton:
        button = StepButton(key, name, shortcut)
        button.clicked.connect(lambda _checked=False: self.chosen.emit(key))
        self._group.addButton(button)
        self._buttons[key] = button
        return button
