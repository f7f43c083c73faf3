"""Draws the content of a chart: lines, ranges, ticks, marks, pins and cursor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtGui import QColor

from burnish_app.curves.marks import Mark, MarkKind
from burnish_app.curves.run_axis import XKind
from burnish_app.curves.ticks import linear_ticks, log_ticks, x_ticks
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import Colors
from burnish_app.widgets.charts.content import ChartContent, ChartSpec
from burnish_app.widgets.charts.hover_card import CardRow, HoverCard
from burnish_app.widgets.charts.lines import VisibleRange
from burnish_app.widgets.charts.link import PIN_NAMES, ChartLink, Reading
from burnish_app.widgets.charts.plot import Plot
from burnish_app.widgets.charts.texts import ChartTexts

_TICK_PX, _LABEL_PX = 36, 60  # distance of ticks, upright and along
_MARK_GAP_PX = 10
_FLOOR, _CEILING = 0.05, 0.96  # share of the height at which marks without a value stand, and above which none does

Dot = tuple[float, float, QColor]
"""A dot at the cursor: its position, its value as drawn, and its color."""


class ChartDrawing:
    """Draws a chart's content into its plot.

    Args:
        plot: drawing area.
        spec: description of the chart.
        content: what the chart shows.
        link: axis, range, cursor and pins.
        texts: texts of the chart.

    Attributes:
        low: lower end of the vertical axis.
        high: upper end of the vertical axis.
        card: card beside the cursor.
    """

    def __init__(self, plot: Plot, spec: ChartSpec, content: ChartContent, link: ChartLink, texts: ChartTexts) -> None:
        self.plot, self._spec, self._content, self._link, self._texts = plot, spec, content, link, texts
        self.card = HoverCard(plot.view)
        self.low, self.high = 0.0, 1.0

    def draw(self, values: tuple[float, float] | None, pixel_ratio: float) -> None:
        """Draw all but the cursor.

        Args:
            values: range of the vertical axis; None: as much as the lines need.
            pixel_ratio: device pixels per device-independent pixel.
        """
        content, plot = self._content, self.plot
        low, high = self._link.range()
        width_px, height_px = plot.size_px()
        window = VisibleRange(low, high, (high - low) / (width_px * pixel_ratio), content.log)
        extents = []
        for key in content.lines:
            plot.show_line(key, content.shown(key))
            if content.shown(key):
                extents.append(plot.draw_line(key, content.x(key), content.values(key), window))
        plot.set_limit(content.drawn_limit())
        self.low, self.high = values or content.fit([extent for extent in extents if extent], window)
        plot.set_ranges((low, high), (self.low, self.high))
        self._draw_marks(window, width_px)
        names: dict[XKind, str] = {"step": tr("step"), "tokens": tr("tokens"), "time": tr("time")}
        ticks = log_ticks if content.log else linear_ticks
        plot.set_ticks(
            x_ticks(self._link.kind, low, high, max(int(width_px / scaled(_LABEL_PX)), 2)),
            ticks(self.low, self.high, max(int(height_px / _TICK_PX), 2), self._spec.tick_text),
            names[self._link.kind],
        )
        self.draw_pins()

    def draw_pins(self) -> None:
        """Draw the pins."""
        pins = self._link.pins
        self.plot.draw_pins(self._link.axis.x(self._link.kind, pins).tolist() if pins else [], PIN_NAMES)

    def draw_cursor(self, colors: Colors) -> None:
        """Draw the cursor with dots at the values of its step, and show the card that names them."""
        step, x = self._link.cursor, self._cursor_x()
        if x is None or step is None:
            self.plot.set_cursor(None)
            self.card.hide()
            return
        readings = self._content.readings(step)
        dots = self._dots(readings, colors)
        self.plot.set_cursor(x, dots)
        rows: list[CardRow] = [(one.line, one.label, self._texts.reading(one, step)) for one in readings]
        rows += [(None, text, "") for text in self._texts.marks(step)]
        title = self._texts.cursor(step, x)
        self.card.show_at(self.plot.scene_px(x), title, rows, at_bottom=self._is_high(dots))

    def _cursor_x(self) -> float | None:
        """Return where the cursor is drawn; None: nowhere."""
        step = self._link.cursor
        if step is None or self._content.is_empty:
            return None
        low, high = self._link.range()
        x = self._x(step)
        return x if low <= x <= high else None

    def _dots(self, readings: Sequence[Reading], colors: Colors) -> list[Dot]:
        """Return the dots that mark the values of lines at the cursor."""
        left = self._link.range()[0]
        found = []
        for reading in readings:
            x, value = self._x(reading.step), self._content.scaled(reading.value)
            if reading.line.kind != "area" and self.low <= value <= self.high and x >= left:
                found.append((x, value, reading.line.color(colors)))
        return found

    def _is_high(self, dots: Sequence[Dot]) -> bool:
        """Whether most dots lie in the upper half."""
        middle = (self.low + self.high) / 2
        return 2 * sum(value > middle for _, value, _ in dots) > len(dots)

    def _x(self, step: float) -> float:
        return float(self._link.axis.x(self._link.kind, [step])[0])

    def _draw_marks(self, window: VisibleRange, width_px: float) -> None:
        kinds: dict[MarkKind, list[Mark]] = {"checkpoint": [], "best": [], "spike": [], "bad": [], "rollback": []}
        for mark in self._content.marks:
            kinds[mark.kind].append(mark)
        floor, ceiling = (self.low + share * (self.high - self.low) for share in (_FLOOR, _CEILING))
        least = (window.high - window.low) / width_px * _MARK_GAP_PX
        for kind, marks in kinds.items():
            x = self._link.axis.x(self._link.kind, [mark.step for mark in marks])
            y = np.array([floor if mark.value is None else self._content.scaled(mark.value) for mark in marks])
            within = (x >= window.low) & (x <= window.high)
            x, y = x[within], np.clip(y[within], floor, ceiling)
            if len(x) > 1 and kind in ("checkpoint", "bad"):  # as many as can be told from each other
                _, kept = np.unique(np.floor(x / least), return_index=True)
                x, y = x[kept], y[kept]
            self.plot.draw_marks(kind, x, y)
