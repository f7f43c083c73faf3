"""The room of a run's charts: which stand beside the large one, which below, and how high they are."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QBoxLayout, QLayout, QVBoxLayout, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.tokens import GAP_PX
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.wrapping import ColumnsLayout
from burnish_app.widgets.charts.chart import Chart
from burnish_app.widgets.charts.pinned import PinnedValues

_LARGE_PX, _SMALL_PX = (224, 340), (136, 176)
"""Least and largest height of the large chart's plot, and of a small one's, with 24 for the axis below; pixels."""
_MIN_PX = 296  # least width of a small chart's card; narrower ones go below
_BESIDE = 2  # number of small charts that stand beside the large one
_BESIDE_PX = 880  # least width with which small charts stand beside the large one
_LARGE_LEAST_PX = 520  # least width that the large chart keeps beside pinned values
_HEAD_PX = 36  # height of a chart without its plot
_ABOVE_PX = 380  # height of a page without the drawings: headline, figures, foot, margins
_ENLARGED_PX = 200  # the same where one chart has all of the room


class ChartRoom(QWidget):
    """Arranges a large chart, small ones, and the card of pinned values, which comes and goes.

    The card stands beside the large chart in place of the small ones there, so that nothing above the pointer moves;
    where there is no room beside it, below it.

    Args:
        large: large chart.
        small: small charts, in order.
        pinned: card of pinned values.
    """

    def __init__(self, large: Chart, small: Sequence[Chart], pinned: PinnedValues) -> None:
        super().__init__()
        self._usual = large, tuple(small)
        self._large, self._small, self._pinned = large, tuple(small), pinned
        self._enlarged: Chart | None = None
        self._without: set[Chart] = set()
        self._hidden: set[Chart] = set()
        self._page_px = 0
        self._arranged: tuple[object, ...] = ()
        self._cards = {chart: _in_card(chart) for chart in (large, *small)}
        for card in self._cards.values():
            card.setParent(self)  # shown without one it would be a window
        self._set_widths()
        self._side, self._below = QVBoxLayout(), ColumnsLayout(GAP_PX, GAP_PX, even=True, fill=True)
        self._side.setSpacing(GAP_PX)
        self._top = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._top.setSpacing(GAP_PX)
        self._top.addWidget(self._cards[large], 2)
        self._top.addLayout(self._side, 1)
        fill(QVBoxLayout(self), self._top, self._below, spacing_px=GAP_PX)
        self._arrange()

    def fit_height(self, page_px: int) -> None:
        """Set the heights of the charts for a page of this height, device-independent pixels.

        The charts have their places when this returns, so that each is painted once where it stays. In the events to
        come, layouts would pass the new heights on one by one, and everything would be painted after each.
        """
        self._page_px = page_px
        self._arrange()
        self._lay_out()

    def set_large(self, chart: Chart) -> None:
        """Make another chart the large one; the usual one becomes the last of the small ones. `arrange` follows."""
        if chart is not self._large:
            large, small = self._usual
            self._top.removeWidget(self._cards[self._large])
            self._top.insertWidget(0, self._cards[chart], 2)
            others = tuple(one for one in small if one is not chart)
            self._large, self._small = chart, small if chart is large else (*others, large)
            self._set_widths()
            self._arranged = ()

    def _set_widths(self) -> None:
        for chart, card in self._cards.items():
            card.setMinimumWidth(0 if chart is self._large else _MIN_PX)

    def set_shown(self, chart: Chart, *, shown: bool) -> None:
        """Show or hide a chart, such as one without data. `arrange` follows."""
        (self._without.discard if shown else self._without.add)(chart)

    def arrange(self) -> None:
        """Arrange the cards anew if anything changed."""
        self._arrange()

    def enlarge(self, chart: Chart) -> None:
        """Give a chart all of the room, or give it back."""
        self._enlarged = None if self._enlarged is chart else chart
        self._arrange()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Arrange for the new width."""
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        wide = self.width() >= _BESIDE_PX and self._enlarged is None
        has_room = self.width() >= scaled(_BESIDE_PX)
        pinned = self._pinned.isVisibleTo(self) if self._pinned.parent() is not None else False
        pinned_px = self._pinned.beside_px if pinned else 0
        if pinned and pinned_px + GAP_PX + scaled(_LARGE_LEAST_PX) > self.width():
            has_room = False
        now = wide, has_room, pinned_px, self._enlarged, frozenset(self._without), self._page_px
        if now == self._arranged:
            return
        self._arranged = now
        shown = [chart for chart in self._small if chart not in self._without]
        beside = shown[:_BESIDE] if wide and not pinned else []
        across, down = QBoxLayout.Direction.LeftToRight, QBoxLayout.Direction.TopToBottom
        self._top.setDirection(across if has_room or beside else down)
        self._pinned.set_beside(is_beside=has_room)
        _fill(self._side, [self._pinned, *(self._cards[chart] for chart in beside)])
        _fill(self._below, [self._cards[chart] for chart in self._small if chart not in beside])
        self._top.setStretch(1, 1 if beside else 0)
        hidden = {chart for chart in self._cards if chart in self._without or self._enlarged not in (None, chart)}
        for chart in hidden ^ self._hidden:
            self._cards[chart].setHidden(chart in hidden)
        self._hidden = hidden
        self._set_heights(beside)

    def _lay_out(self) -> None:
        """Have the layouts act on what changed: those of the charts first, that of the scrolled page last."""
        for chart, card in self._cards.items():
            for inner in (chart, card):
                QCoreApplication.sendPostedEvents(inner, QEvent.Type.LayoutRequest)
        outer: QWidget | None = self
        while outer is not None and not isinstance(outer, QAbstractScrollArea):
            QCoreApplication.sendPostedEvents(outer, QEvent.Type.LayoutRequest)
            outer = outer.parentWidget()

    def _set_heights(self, beside: Sequence[Chart]) -> None:
        room = self._page_px - _ABOVE_PX
        around = 2 * GAP_PX + _HEAD_PX
        small = _between((room - GAP_PX) / 2 - around, *_SMALL_PX)
        stacked = _BESIDE * small + (_BESIDE - 1) * (GAP_PX + around)
        large = stacked if self.width() >= _BESIDE_PX else _between(room * 0.6, *_LARGE_PX)
        for chart in self._small:
            chart.set_plot_height(small, grows=chart in beside)  # the large one's legend may take several lines
        self._large.set_plot_height(large)
        if self._enlarged is not None:
            self._enlarged.set_plot_height(max(self._page_px - _ENLARGED_PX, _LARGE_PX[0]))


def _fill(layout: QLayout, widgets: Sequence[QWidget]) -> None:
    """Make a layout hold these widgets and no other; those that leave it are not destroyed."""
    while (item := layout.itemAt(0)) is not None and (widget := item.widget()) is not None:
        layout.removeWidget(widget)  # a left-over item would still take the news of the widget's size
    for widget in widgets:
        layout.addWidget(widget)


def _in_card(chart: Chart) -> Card:
    card = Card()
    card.body.addWidget(chart)
    return card


def _between(value: float, low: int, high: int) -> int:
    return round(min(max(value, low), high))
