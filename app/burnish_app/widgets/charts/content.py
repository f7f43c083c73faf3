"""The content of one chart: lines with their curves, what is smoothed, stacked or hidden, and the values read off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from burnish_app.curves.curve import NO_CURVE, Curve, Numbers
from burnish_app.curves.marks import Mark
from burnish_app.curves.run_axis import XKind
from burnish_app.curves.tables import CurveTable, curve_table
from burnish_app.curves.ticks import TickText, fixed
from burnish_app.look.language import tr
from burnish_app.widgets.charts.lines import ChartLine, VisibleRange
from burnish_app.widgets.charts.link import ChartLink, Reading
from burnish_engine.contract.smoothing import smoothed

_ROOM = 0.12  # share of the values' span left free above and below, for marks
_LOG_ROOM = 0.3  # the same in decades, where all values are equal
_CLIP = 99  # percentile that values are cut at if asked for


@dataclass(frozen=True)
class ChartSpec:
    """The description of a chart.

    Attributes:
        name: heading of the chart, what its vertical axis shows.
        lines: key to appearance of each line, in the order of the legend.
        value_text: function that formats a value.
        unit: unit of the vertical axis, shown behind the heading; empty: none.
        tick_text: function that formats a tick of the vertical axis.
        limit_label: name of a horizontal line in the legend, such as a prediction.
        from_zero: whether the vertical axis begins at zero, unless it is logarithmic.
        smooth: key of the line whose mean is drawn too; empty: none.
        small: whether there is little room, so that the legend has values without names.
        legend: entries of the legend: of lines with values, of all lines, or none.
    """

    name: str
    lines: Mapping[str, ChartLine]
    value_text: Callable[[float], str]
    unit: str = ""
    tick_text: TickText = fixed
    limit_label: str = ""
    from_zero: bool = False
    smooth: str = ""
    small: bool = False
    legend: Literal["values", "all", "none"] = "values"

    @property
    def mean_key(self) -> str:
        """The key of the smoothed line."""
        return tr("{smooth} mean").format(smooth=self.smooth)

    def with_mean(self, label: str) -> dict[str, ChartLine]:
        """Return the lines with the smoothed one behind the line that it is the mean of.

        Args:
            label: name of the smoothed line.
        """
        if not self.smooth:
            return dict(self.lines)
        raw = self.lines[self.smooth]
        pair = {self.smooth: replace(raw, kind="raw"), self.mean_key: replace(raw, kind="mean", label=label)}
        return {**pair, **{key: line for key, line in self.lines.items() if key != self.smooth}}


class ChartContent:
    """The curves and settings of a chart as they are now.

    Args:
        spec: description of the chart.
        link: axis that the chart shares with others.
        mean_label: name of the smoothed line.

    Attributes:
        lines: key to appearance of each line, the smoothed one among them.
        limit: value of the horizontal line; None: none.
        marks: what happened at single steps.
        window: number of steps that the smoothed line is averaged over; 1: it is not drawn.
        log: whether values are drawn by their logarithm.
        clip: whether the highest hundredth of the values may lie outside.
    """

    def __init__(self, spec: ChartSpec, link: ChartLink, mean_label: str) -> None:
        self._spec, self._link = spec, link
        self.lines = spec.with_mean(mean_label)
        self.limit: float | None = None
        self.marks: tuple[Mark, ...] = ()
        self.window, self.log, self.clip = 1, False, False
        self._hidden: set[str] = set()
        self._curves: dict[str, Curve] = {}
        self._positions: dict[tuple[str, XKind], Numbers] = {}
        self._stacked: dict[str, Numbers] = {}

    def show(self, curves: Mapping[str, Curve], limit: float | None, marks: Sequence[Mark]) -> None:
        """Replace the curves, the limit and the marks."""
        self._curves, self.limit, self.marks = dict(curves), limit, tuple(marks)
        self.smooth_over(self.window)

    def smooth_over(self, window: int) -> None:
        """Average the smoothed line over this number of steps; 1: do not draw it."""
        self.window = window
        raw = self._curves.get(self._spec.smooth)
        self._curves.pop(self._spec.mean_key, None)
        if raw is not None and window > 1:
            self._curves[self._spec.mean_key] = Curve(raw.steps, smoothed(raw.values, window))
        self._positions.clear()
        self._stacked.clear()

    def set_hidden(self, key: str, *, hidden: bool) -> None:
        """Hide or show a line; the empty key is the limit's."""
        (self._hidden.add if hidden else self._hidden.discard)(key)
        self._stacked.clear()

    @property
    def is_empty(self) -> bool:
        """Whether there is no curve."""
        return not self._curves

    def has(self, key: str) -> bool:
        """Whether a line has a curve with points."""
        return len(self.curve(key)) > 0

    def shown(self, key: str) -> bool:
        """Whether a line is drawn."""
        return key in self._curves and key not in self._hidden

    def curve(self, key: str) -> Curve:
        """Return a line's curve; an empty one if it has none."""
        return self._curves.get(key, NO_CURVE)

    def label(self, key: str) -> str:
        """Return the name of a line; that of the chart if it is the only one."""
        return self.lines[key].label or self._spec.name

    def table(self, names: Mapping[str, str]) -> CurveTable:
        """Return the values of all lines as a table.

        Args:
            names: key of a line to the name of its column.
        """
        return curve_table(self._link.axis, {names[key]: self._curves[key] for key in self.lines if self.has(key)})

    def readings(self, step: float) -> list[Reading]:
        """Return the value of each line that is drawn at a step."""
        found = []
        for key, line in self.lines.items():
            at = self.curve(key).at(step) if self.shown(key) else None
            if at is not None:
                found.append(Reading(line, self.label(key), at[0], at[1], self._spec.value_text(at[1])))
        return found

    # What is drawn

    def x(self, key: str) -> Numbers:
        """Return the positions of a line's points on the horizontal axis."""
        where = key, self._link.kind
        if where not in self._positions:
            self._positions[where] = self._link.axis.x(self._link.kind, self.curve(key).steps)
        return self._positions[where]

    def values(self, key: str) -> Numbers:
        """Return the values that a line is drawn at: a part of a stack stands on the parts listed before it."""
        if self.lines[key].kind != "area":
            return self.curve(key).values
        if key not in self._stacked:
            parts = [other for other, line in self.lines.items() if line.kind == "area" and self.shown(other)]
            parts = parts[: parts.index(key) + 1]
            self._stacked[key] = np.nansum([self.curve(other).values for other in parts], axis=0)
        return self._stacked[key]

    def scaled(self, value: float) -> float:
        """Return where a value is drawn; not a number if it has no logarithm but needs one."""
        if not self.log:
            return value
        return float(np.log10(value)) if value > 0 else float("nan")

    def drawn_limit(self) -> float | None:
        """Return where the limit is drawn; None: nowhere."""
        drawn = float("nan") if self.limit is None or "" in self._hidden else self.scaled(self.limit)
        return drawn if np.isfinite(drawn) else None

    def fit(self, extents: Sequence[tuple[float, float]], window: VisibleRange) -> tuple[float, float]:
        """Return the range of values that shows all that is drawn, with room so that lines do not touch the frame.

        Args:
            extents: lowest and highest value drawn of each line.
            window: part of the data that is drawn.
        """
        limit = self.drawn_limit()
        ends = [*extents, (limit, limit)] if limit is not None else [*extents]
        if not ends:
            return (0.0, 1.0)
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        if self.clip:
            high = max(min(self._percentile(window), high), low)
        from_zero = self._spec.from_zero and not self.log
        low = min(low, 0.0) if from_zero else low
        room = (high - low) * _ROOM or (_LOG_ROOM if self.log else abs(high) * _ROOM or 1.0)
        return (low if from_zero else low - room), high + room

    def _percentile(self, window: VisibleRange) -> float:
        values = [np.empty(0)]
        for key, line in self.lines.items():
            if self.shown(key) and line.kind != "mean":
                x, y = self.x(key), self.values(key)
                values.append(y[(x >= window.low) & (x <= window.high) & np.isfinite(y)])
        known = np.concatenate(values)
        return self.scaled(float(np.percentile(known, _CLIP))) if len(known) else float("inf")
