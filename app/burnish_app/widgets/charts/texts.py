"""The texts of a chart: names of its lines, values at a step, and what happened there."""

from __future__ import annotations

from burnish_app.curves.run_axis import XKind
from burnish_app.curves.ticks import time_text
from burnish_app.look.language import tr
from burnish_app.widgets.charts.content import ChartContent, ChartSpec
from burnish_app.widgets.charts.link import ChartLink, Reading


class ChartTexts:
    """Says what a chart shows.

    Args:
        spec: description of the chart.
        content: what the chart shows.
        link: axis that the chart shares with others.
    """

    def __init__(self, spec: ChartSpec, content: ChartContent, link: ChartLink) -> None:
        self._spec, self._content, self._link = spec, content, link

    def label(self, key: str) -> str:
        """Return the name of a line; a smoothed one says over how many steps."""
        if self._spec.smooth and key == self._spec.mean_key:
            return tr("mean of {steps} steps").format(steps=f"{self._content.window:,}")
        return self._content.label(key)

    def without_unit(self, value: float) -> str:
        """Return a value without the unit that the heading has."""
        return self._spec.value_text(value).removesuffix(self._spec.unit or " ").strip()

    def position(self, step: float) -> str:
        """Return a position on the axis, such as "Step 1,200"."""
        return position_text(self._link.axis.unit, step)

    def cursor(self, step: float, x: float) -> str:
        """Return the position of the cursor, also in the axis' own unit where it is another.

        Args:
            step: step at the cursor.
            x: position of the cursor, in the axis' unit.
        """
        if self._link.kind == "step" or self._link.axis.shared:
            return self.position(step)
        return f"{self.position(step)}  ·  {position_text(self._link.kind, x)}"

    def reading(self, reading: Reading, step: float) -> str:
        """Return a value that is shown at a step; one of an earlier step says which."""
        if step - reading.step < 1 or self._link.axis.unit != "step":
            return reading.text
        earlier = tr("step {step}").format(step=f"{reading.step:,.0f}")
        return f"{reading.text} ({earlier})"

    def marks(self, step: float) -> list[str]:
        """Return what happened at a step."""
        texts = {
            "checkpoint": tr("checkpoint saved"),
            "best": tr("best held-out loss"),
            "spike": tr("spike: far above the steps before"),
            "bad": tr("bad step: its numbers could not be used"),
            "rollback": tr("the run went back to here"),
        }
        return [texts[mark.kind] for mark in self._content.marks if mark.step == step]

    def values(self, step: float) -> str:
        """Return all values at a step as a sentence, for screen readers."""
        read = [f"{reading.label} {self.reading(reading, step)}" for reading in self._content.readings(step)]
        return f"{self.position(step)}: {', '.join([*read, *self.marks(step)])}"


def position_text(unit: XKind, position: float) -> str:
    """Format a position on a run's axis, such as "Step 1,200".

    Args:
        unit: unit of the position.
        position: position, in the unit.
    """
    if unit == "time":
        return time_text(position)
    if unit == "tokens":
        return tr("{tokens} tokens").format(tokens=f"{position:,.0f}")
    return tr("Step {step}").format(step=f"{position:,.0f}")
