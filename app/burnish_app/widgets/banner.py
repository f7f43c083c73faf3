"""What a page has to say: a message in place, never a dialog; and a thin line for work that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QHideEvent, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.theme import UNIT, colors_of
from burnish_app.widgets.buttons import Slot, quiet, row
from burnish_app.widgets.card import IconLabel
from burnish_app.widgets.text import body, caption, heading
from burnish_app.widgets.wrapping import Flow
from burnish_app.words import count_in_words, percent

Kind = Literal["info", "warning", "error", "success"]
Action = tuple[str, Slot]
_WANDER_MS = 60
_WORDS_PX = 240  # at least, to have the actions beside them


class Banner(QFrame):
    """A message: what happened, what to do, and the actions that do it.

    Args:
        kind: Its color and icon.
        what: What happened, a sentence.
        remedy: What to do about it.
        actions: (text, slot) of each button.
        close_text: What the button that puts it away says.
    """

    closed = Signal()

    def __init__(
        self,
        kind: Kind,
        what: str,
        remedy: str = "",
        actions: Sequence[Action] = (),
        *,
        close_text: str = "Dismiss",
    ) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.what = what
        self.setProperty("look", f"banner-{kind}")
        self.setAccessibleName(f"{kind}: {what} {remedy}".strip())
        line = QHBoxLayout(self)
        line.setContentsMargins(2 * UNIT, UNIT + 4, UNIT, UNIT + 4)
        line.setSpacing(UNIT + 4)
        line.addWidget(IconLabel(kind, 20, kind), alignment=Qt.AlignmentFlag.AlignTop)
        words = QWidget()
        words.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        words.setMinimumWidth(_WORDS_PX)
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(heading(what))
        if remedy:
            column.addWidget(body(remedy))
        parts = Flow(UNIT + 4, UNIT // 2)
        parts.addWidget(words)
        parts.addWidget(row(*(quiet(*action) for action in (*actions, (close_text, self.close_banner)))))
        line.addLayout(parts, 1)

    def close_banner(self) -> None:
        """Put the message away."""
        self.hide()
        self.closed.emit()
        self.deleteLater()


class ProgressBar(QWidget):
    """A thin bar: filled to a share, or a segment that wanders where the share is not known."""

    def __init__(self) -> None:
        super().__init__()
        self._share: float | None = None
        self._live = True
        self._phase = 0.3
        self._timer = QTimer(self, interval=_WANDER_MS)
        self._timer.timeout.connect(self._advance)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    @property
    def share(self) -> float | None:
        """How far it is filled, 0 to 1; None: not known."""
        return self._share

    def set_share(self, share: float | None) -> None:
        """Fill it to this share; None: not known."""
        self._share = None if share is None else min(max(share, 0.0), 1.0)
        self._run_timer()
        self.update()

    def set_live(self, live: bool) -> None:
        """Whether it moves on. What stands still is not drawn in the accent, which is kept for live values."""
        if live != self._live:
            self._live = live
            self.update()

    def sizeHint(self) -> QSize:
        """As wide as it may be, four pixels high."""
        return QSize(120, 4)

    def showEvent(self, event: QShowEvent) -> None:
        """Begin to wander, where the share is not known."""
        super().showEvent(event)
        self._run_timer()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nothing moves that nobody sees."""
        super().hideEvent(event)
        self._timer.stop()

    def _run_timer(self) -> None:
        if self._share is None and self.isVisible():
            self._timer.start()
        else:
            self._timer.stop()

    def _advance(self) -> None:
        self._phase = (self._phase + 0.02) % 1.3
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw track and filling."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colors.line))
        painter.drawRoundedRect(self.rect(), 2, 2)
        start, share = (0.0, self._share) if self._share is not None else (self._phase - 0.3, 0.3)
        left, right = max(start, 0.0) * self.width(), min(start + share, 1.0) * self.width()
        if right > left:
            painter.setBrush(QColor(colors.accent if self._live else colors.muted))
            painter.drawRoundedRect(QRectF(left, 0, right - left, self.height()), 2, 2)


class BusyLine(QWidget):
    """Work that goes on: what it is, how far it is, and a way to stop it.

    Args:
        text: What goes on.
        can_cancel: Whether to offer the button; it emits `cancel`.
    """

    cancel = Signal()

    def __init__(self, text: str, *, can_cancel: bool = False) -> None:
        super().__init__()
        self._words = caption(text)
        self._track = ProgressBar()
        column = QVBoxLayout()
        column.setSpacing(6)
        column.addWidget(self._words)
        column.addWidget(self._track)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.addLayout(column, 1)
        if can_cancel:
            line.addWidget(quiet("Cancel", self.cancel.emit))

    @property
    def text(self) -> str:
        """What it says."""
        return self._words.text()

    def set_progress(self, what: str, done: int = 0, total: int = 0) -> None:
        """Show how far it is.

        Args:
            what: What goes on.
            done: In whatever the work counts.
            total: 0: not known, the bar wanders.
        """
        if total > 0:
            self._track.set_share(done / total)
            what = f"{what}  {percent(min(done / total, 1.0))}"
        else:
            self._track.set_share(None)
            what = f"{what}  {count_in_words(done)}" if done else what
        self._words.setText(what)
