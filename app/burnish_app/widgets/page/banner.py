"""Banners (messages within a page, in place of dialogs) and progress bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QHideEvent, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.motion import glide, is_reduced
from burnish_app.look.theme import UNIT, colors_of
from burnish_app.widgets.basic.buttons import Slot, quiet
from burnish_app.widgets.basic.card import IconLabel
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import body, caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.wording.numbers import count_text, percent
from burnish_app.wording.plain_words import plain_words

BannerKind = Literal["info", "warning", "error", "success"]
BannerAction = tuple[str, Slot]
_WANDER_MS = 60
_BAR_PX, _DASH_PX = 6, 12
_WORDS_PX = 240  # at least, to have the actions beside them


class Banner(QFrame):
    """A message within a page: what happened, what to do, and buttons that do it.

    Args:
        kind: kind of message, which decides color and icon.
        what: sentence that says what happened.
        remedy: advice on what to do about it; may be empty.
        actions: (text, slot) of each button.
        close_text: text of the button that closes the banner.

    Attributes:
        closed: signal without arguments, emitted when the banner is closed.
    """

    closed = Signal()

    def __init__(
        self,
        kind: BannerKind,
        what: str,
        remedy: str = "",
        actions: Sequence[BannerAction] = (),
        *,
        close_text: str = tr("Dismiss"),
    ) -> None:
        super().__init__()
        self.kind: BannerKind = kind
        self.what = what
        self.setProperty("look", f"banner-{kind}")
        self.setAccessibleName(f"{kind}: {plain_words(what)} {plain_words(remedy)}".strip())
        words = QWidget()
        words.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        words.setMinimumWidth(_WORDS_PX)
        column = fill(QVBoxLayout(words), heading(plain_words(what)), spacing_px=4)
        if remedy:
            column.addWidget(body(plain_words(remedy)))
        buttons, flow = QWidget(), FlowLayout(UNIT, 0)
        buttons.setLayout(flow)
        for action in (*actions, (close_text, self.close_banner)):
            flow.addWidget(quiet(*action))
        parts = fill(FlowLayout(UNIT + 4, UNIT // 2), words, buttons)
        fill(
            QHBoxLayout(self),
            (IconLabel(kind, 20, kind), 0, Qt.AlignmentFlag.AlignTop),
            (parts, 1),
            spacing_px=UNIT + 4,
            margins_px=(2 * UNIT, UNIT + 4, UNIT, UNIT + 4),
        )

    def close_banner(self) -> None:
        """Close and destroy the banner."""
        self.hide()
        self.closed.emit()
        self.deleteLater()


class ProgressBar(QWidget):
    """A thin progress bar: filled to a share, or with a moving segment while the share is unknown.

    With reduced motion the unknown share is dashes over all of the bar: a segment that stands still would be read as a
    share.
    """

    def __init__(self) -> None:
        super().__init__()
        self._share: float | None = None
        self._drawn = 0.0  # share that is drawn while the bar grows
        self._color = "accent"
        self._phase = 0.3
        self._timer = QTimer(self, interval=_WANDER_MS)
        self._timer.timeout.connect(self._advance)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    @property
    def share(self) -> float | None:
        """The share that is filled, 0 to 1; None: unknown."""
        return self._share

    def set_share(self, share: float | None) -> None:
        """Fill the bar to a share of 0 to 1; None: unknown, a segment moves."""
        before, self._share = self._share, None if share is None else min(max(share, 0.0), 1.0)
        self._run_timer()
        if self._share is not None:
            glide(self, self._drawn if before is not None else self._share, self._share, self._draw_to)
        self.update()

    def _draw_to(self, share: float) -> None:
        self._drawn = share
        self.update()

    def set_color(self, color: str) -> None:
        """Set the color: accent for live work, success for work that is done, muted for work at rest.

        Args:
            color: name of a color of `tokens.Colors`.
        """
        if color != self._color:
            self._color = color
            self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(120, _BAR_PX)

    def showEvent(self, event: QShowEvent) -> None:
        """Start the animation if the share is unknown."""
        super().showEvent(event)
        self._run_timer()

    def hideEvent(self, event: QHideEvent) -> None:
        """Stop the animation while the bar is hidden."""
        super().hideEvent(event)
        self._timer.stop()

    def _run_timer(self) -> None:
        if self._share is None and self.isVisible() and not is_reduced():
            self._timer.start()
        else:
            self._timer.stop()

    def _advance(self) -> None:
        self._phase = (self._phase + 0.02) % 1.3
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the track and the filled part."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colors.line))
        painter.drawRoundedRect(self.rect(), _BAR_PX / 2, _BAR_PX / 2)
        painter.setBrush(QColor(getattr(colors, self._color)))
        for left, right in self._filled():
            painter.drawRoundedRect(QRectF(left, 0, right - left, self.height()), _BAR_PX / 2, _BAR_PX / 2)

    def _filled(self) -> list[tuple[float, float]]:
        """Return the left and right edge of each part that is filled, pixels."""
        width = self.width()
        if self._share is None and is_reduced():
            return [(left, min(left + _DASH_PX, width)) for left in range(0, width, 2 * _DASH_PX)]
        start, share = (0.0, self._drawn) if self._share is not None else (self._phase - 0.3, 0.3)
        left, right = max(start, 0.0) * width, min(start + share, 1.0) * width
        return [(left, right)] if right > left else []


class BusyLine(QWidget):
    """A line about running work: its text, its progress, and optionally a cancel button.

    Args:
        text: text that names the work.
        can_cancel: whether to show the cancel button.

    Attributes:
        cancel: signal without arguments, emitted when the cancel button is pressed.
    """

    cancel = Signal()

    def __init__(self, text: str, *, can_cancel: bool = False) -> None:
        super().__init__()
        self._label = caption(text)
        self._track = ProgressBar()
        column = fill(QVBoxLayout(), self._label, self._track, spacing_px=6)
        line = fill(QHBoxLayout(self), (column, 1))
        if can_cancel:
            line.addWidget(quiet(tr("Cancel"), self.cancel.emit))

    @property
    def text(self) -> str:
        """The text that the line shows."""
        return self._label.text()

    def set_progress(self, what: str, done: int = 0, total: int = 0) -> None:
        """Show the progress of the work.

        Args:
            what: text that names the work.
            done: amount done, in whatever unit the work counts.
            total: whole amount, in the same unit; 0: unknown, the bar's segment moves.
        """
        what = plain_words(what)
        if total > 0:
            self._track.set_share(done / total)
            what = f"{what}  {percent(min(done / total, 1.0))}"
        else:
            self._track.set_share(None)
            what = f"{what}  {count_text(done)}" if done else what
        self._label.setText(what)
