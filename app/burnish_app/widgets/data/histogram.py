"""The histogram of row lengths, with a line to drag at the length where longer rows are cut."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFocusEvent, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, colors_of, font
from burnish_app.look.tokens import RING_PX
from burnish_app.state.length_bins import LengthBins, Steps
from burnish_app.wording.data_text import RowFate, cut_text
from burnish_app.wording.numbers import plural

_AXIS_PX = 20
_TOP_PX = 20
_GRIP_PX = 8  # from the line on either side
_MOST_BARS = 32
_PATIENCE_MS = 700  # after the last key; whoever holds one down is not done


class LengthHistogram(QWidget):
    """Draws even bars of lengths, and a line where rows are cut. Mouse and arrow keys move the line.

    Attributes:
        moved: signal with the length under the line while it is moved, tokens.
        cut_chosen: signal with the new maximum length, tokens, once the line was let go.
    """

    moved = Signal(int)
    cut_chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bins = LengthBins([], _MOST_BARS)
        self._cut_tokens = self._chosen_tokens = 0
        self._drags = False
        self._fate: RowFate = "cut"
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMouseTracking(True)
        self.setAccessibleName(tr("Lengths of the rows, and where longer ones are cut"))
        self._let_go = QTimer(self, singleShot=True, interval=_PATIENCE_MS)
        self._let_go.timeout.connect(self._choose)

    @property
    def cut_tokens(self) -> int:
        """The length at the line, tokens."""
        return self._cut_tokens

    def show_lengths(self, steps: Steps, cut_tokens: int, fate: RowFate = "cut") -> None:
        """Replace the lengths shown.

        Args:
            steps: `length_steps` of the dataset's report; empty shows nothing.
            cut_tokens: maximum length of the recipe, tokens.
            fate: what happens to longer rows.
        """
        self._fate = fate
        self._bins = LengthBins(steps, _MOST_BARS)
        self._chosen_tokens = cut_tokens
        self._set_cut(cut_tokens)

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(360, 150)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size."""
        return QSize(200, 120)

    def cut_position(self) -> float:
        """Return the line's place, pixels from the left."""
        return min(self._bins.share_of(self._cut_tokens) * self.width(), self.width() - 1.0)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the line, or bring it here."""
        if event.button() == Qt.MouseButton.LeftButton and self._bins.bars:
            self._drags = True
            if abs(event.position().x() - self.cut_position()) > _GRIP_PX:
                self._drag_to(event.position().x())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Move the line, or show that it can be moved."""
        if self._drags:
            self._drag_to(event.position().x())
        near = abs(event.position().x() - self.cut_position()) <= _GRIP_PX
        self.setCursor(Qt.CursorShape.SplitHCursor if near or self._drags else Qt.CursorShape.ArrowCursor)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Let go of the line: rows are cut there from now on."""
        if self._drags:
            self._drags = False
            self._choose()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the line by a step, or to either end; Escape puts it back."""
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_PageDown: -8, Qt.Key.Key_PageUp: 8}
        key = Qt.Key(event.key())
        if key in steps:
            self._move(self._bins.step_from(self._cut_tokens, steps[key]))
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            self._move(self._bins.step_from(self._cut_tokens, -1000 if key == Qt.Key.Key_Home else 1000))
        elif key == Qt.Key.Key_Escape and self._cut_tokens != self._chosen_tokens:
            self._move(self._chosen_tokens)
            self._let_go.stop()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._let_go.isActive():
            self._choose()
        else:
            super().keyPressEvent(event)
            return
        if self._cut_tokens != self._chosen_tokens:
            self._let_go.start()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Let go of the line that keys moved."""
        super().focusOutEvent(event)
        if self._let_go.isActive():
            self._choose()
        self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the focus."""
        super().focusInEvent(event)
        self.update()

    def event(self, event: QEvent) -> bool:
        """Show a tooltip with the range under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip and self._bins.bars:
            bar = self._bins.bar_at(event.pos().x() / max(self.width(), 1))
            words = tr("{lower:,} to {upper:,} tokens: {rows}").format(
                lower=bar.lower + 1, upper=bar.upper, rows=plural(bar.rows, "row")
            )
            QToolTip.showText(event.globalPos(), words, self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the bars, the line and the axis."""
        if not self._bins.bars:
            return
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font(SMALL_PX))
        painter.setPen(Qt.PenStyle.NoPen)
        base = self.height() - _AXIS_PX
        most = max(bar.rows for bar in self._bins.bars) or 1
        for bar in self._bins.bars:
            left, right = bar.left * self.width() + 1, bar.right * self.width() - 1
            height = max(bar.rows / most * (base - _TOP_PX), 2.0 if bar.rows else 0.0)
            painter.setBrush(QColor(colors.warning if bar.upper > self._cut_tokens else colors.series[1].color))
            painter.drawRoundedRect(QRectF(left, base - height, max(right - left, 1.0), height), 2, 2)
        painter.setPen(QPen(QColor(colors.line), 1))
        painter.drawLine(QPointF(0, base + 0.5), QPointF(self.width(), base + 0.5))
        painter.setPen(QColor(colors.muted))
        self._paint_axis(painter, base)
        self._paint_cut(painter, self.cut_position(), base)

    def _drag_to(self, x: float) -> None:
        self._move(self._bins.step_at(x / max(self.width(), 1)))

    def _move(self, tokens: int) -> None:
        if tokens != self._cut_tokens:
            self._set_cut(tokens)
            self.moved.emit(tokens)

    def _set_cut(self, tokens: int) -> None:
        self._cut_tokens = tokens
        if self._bins.bars:
            self.setAccessibleDescription(cut_text(self._bins.steps, tokens, self._fate))
        self.update()

    def _choose(self) -> None:
        self._let_go.stop()
        if self._cut_tokens != self._chosen_tokens:
            self._chosen_tokens = self._cut_tokens
            self.cut_chosen.emit(self._cut_tokens)

    def _paint_axis(self, painter: QPainter, base: float) -> None:
        for tokens in self._bins.ticks(max(self.width() // 80, 2)):
            x = self._bins.share_of(tokens) * self.width()
            place = QRectF(min(max(x - 40, 0), self.width() - 80), base + 3, 80, _AXIS_PX - 3)
            side = Qt.AlignmentFlag.AlignHCenter
            if x < 40:
                side = Qt.AlignmentFlag.AlignLeft
            elif x > self.width() - 40:
                side = Qt.AlignmentFlag.AlignRight
            painter.drawText(place, side | Qt.AlignmentFlag.AlignVCenter, f"{tokens:,}")

    def _paint_cut(self, painter: QPainter, x: float, base: float) -> None:
        colors = colors_of(self)
        color = QColor(colors.focus if self.hasFocus() else colors.text)
        is_beyond = self._cut_tokens > self._bins.bars[-1].upper
        painter.setPen(QPen(color, RING_PX, Qt.PenStyle.DotLine if is_beyond else Qt.PenStyle.SolidLine))
        painter.drawLine(QPointF(x, _TOP_PX - 6), QPointF(x, base))
        painter.setBrush(color)
        painter.drawEllipse(QPointF(x, _TOP_PX - 4), 4.5, 4.5)
        words = (
            tr("longest row {longest:,}; cut at {cut_tokens:,} \N{RIGHTWARDS ARROW}")
            if is_beyond
            else tr("cut at {cut_tokens:,}")
        )
        text = words.format(cut_tokens=self._cut_tokens, longest=self._bins.bars[-1].upper)
        width = painter.fontMetrics().horizontalAdvance(text)
        left = x + 10 if x + 10 + width < self.width() else x - 10 - width
        painter.setPen(color)
        painter.drawText(QRectF(left, 0, width + 2, _TOP_PX), Qt.AlignmentFlag.AlignVCenter, text)
