"""The tabs in the head of a page, in place of its name."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import CONTROL_RADIUS_PX, FIGURE_PX, RING_PX, UNIT
from burnish_app.state.step_status import STEP_STATUS_TEXT, StepStatus
from burnish_app.widgets.basic.status_dot import StatusDot
from burnish_app.widgets.basic.wrapping import FlowLayout

_LINE_PX = 3
_MARKED: tuple[StepStatus, ...] = ("busy", "attention")


class PageTab(QAbstractButton):
    """One tab: its name, underlined where it is chosen, and a dot where its page works or needs attention.

    Args:
        key: key of the page that it shows.
        text: name of the page.
        shortcut: keyboard shortcut; may be empty.
    """

    def __init__(self, key: str, text: str, shortcut: str) -> None:
        super().__init__()
        self.key = key
        self.setText(text)
        self.setCheckable(True)
        self.setFont(font(FIGURE_PX, bold=True))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setToolTip(f"{text} ({shortcut})" if shortcut else "")
        self.setAccessibleName(text)
        self._dot = StatusDot()
        self._dot.setParent(self)
        self._dot.hide()

    @property
    def status(self) -> StepStatus:
        """The status of the page."""
        return self._dot.status

    def set_status(self, status: StepStatus) -> None:
        """Show the status of the page; a dot is seen only where it works or needs attention."""
        self._dot.set_status(status)
        self._dot.setVisible(status in _MARKED)
        self.setAccessibleDescription(STEP_STATUS_TEXT[status] if status in _MARKED else "")
        self.updateGeometry()

    def sizeHint(self) -> QSize:
        """Return the size: the text above its line, and room for the dot behind it."""
        metrics = QFontMetrics(self.font())
        dot = 0 if self._dot.isHidden() else UNIT + self._dot.sizeHint().width()
        return QSize(metrics.horizontalAdvance(self.text()) + 2 + dot, metrics.height() + scaled(UNIT) + _LINE_PX)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the dot behind the text."""
        super().resizeEvent(event)
        size = self._dot.sizeHint()
        top = (self.height() - _LINE_PX - size.height()) // 2 + 1
        self._dot.setGeometry(QRect(self.width() - size.width(), top, size.width(), size.height()))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the name, and the line of the chosen one or the ring of the focus."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.font())
        is_dark = self.isChecked() or self.underMouse()
        painter.setPen(QColor(colors.text if is_dark else colors.muted))
        line = QRectF(self.rect()).adjusted(0, 0, 0, -_LINE_PX)
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, self.text())
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self.hasFocus():
            half = RING_PX / 2
            painter.setPen(QPen(QColor(colors.focus), RING_PX))
            ring = QRectF(self.rect()).adjusted(half, half, -half, -half)
            painter.drawRoundedRect(ring, CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
        elif self.isChecked():
            painter.fillRect(QRectF(line.left(), line.bottom(), line.width(), _LINE_PX), QColor(colors.accent))


class PageTabs(QWidget):
    """The tabs of a page, of which its own is chosen.

    Args:
        tabs: (key, name, shortcut) of each tab.
        key: key of the page that has them.

    Attributes:
        chosen: signal with the key of another page that the person wants.
    """

    chosen = Signal(str)

    def __init__(self, tabs: Sequence[tuple[str, str, str]], key: str) -> None:
        super().__init__()
        self._key = key
        self._group = QButtonGroup(self)
        self._tabs = [PageTab(*tab) for tab in tabs]
        self.setAccessibleName(tr("Tabs"))
        line = FlowLayout(3 * UNIT, 0)
        self.setLayout(line)
        for tab in self._tabs:
            self._group.addButton(tab)
            line.addWidget(tab)
            tab.clicked.connect(lambda _checked=False, wanted=tab.key: self._choose(wanted))
        self.tab(key).setChecked(True)

    def tab(self, key: str) -> PageTab:
        """Return the tab of a page."""
        return next(tab for tab in self._tabs if tab.key == key)

    @property
    def has_focus(self) -> bool:
        """Whether the keyboard focus is on a tab."""
        return any(tab.hasFocus() for tab in self._tabs)

    def take_focus(self) -> None:
        """Give the keyboard focus to the chosen tab."""
        self.tab(self._key).setFocus(Qt.FocusReason.TabFocusReason)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Go to the tab beside the chosen one by the arrow keys, around the ends."""
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        step = steps.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
            return
        at = self._tabs.index(self.tab(self._key)) + step
        self._choose(self._tabs[at % len(self._tabs)].key)

    def _choose(self, key: str) -> None:
        """Ask for another page; here its own tab stays chosen."""
        self.tab(self._key).setChecked(True)
        if key != self._key:
            self.chosen.emit(key)
