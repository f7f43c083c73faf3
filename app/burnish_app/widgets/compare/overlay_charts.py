"""Charts with a line for each of several runs: the held-out loss first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QTimer

from burnish_app.comparison.overlay import Overlay, overlay
from burnish_app.look.language import tr
from burnish_app.look.tokens import LIGHT
from burnish_app.widgets.charts.chart import Chart
from burnish_app.widgets.charts.lines import ChartLine, LineKind
from burnish_app.widgets.runs.linked_charts import LinkedCharts
from burnish_app.widgets.runs.run_charts import learning_rate_text, loss_text, plain_number, plain_value, short_count
from burnish_app.wording.numbers import count_text
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.units import memory_size

_GIB = 2**30


MOST_RUNS = len(LIGHT.lines)
"""Most runs with a line style each."""


@dataclass(frozen=True)
class OverlaidRun:
    """A run whose curves are drawn over those of others.

    Attributes:
        folder: folder of the run.
        title: title of the run.
        style: index of its line style.
        legend: entry in the legend, which hides and shows all runs of the style; empty: it has none.
    """

    folder: str
    title: str
    style: int
    legend: str


class OverlayCharts(LinkedCharts):
    """Draws the curves of several runs over each other.

    Args:
        runs: runs to draw.
    """

    def __init__(self, runs: Sequence[OverlaidRun]) -> None:
        super().__init__()
        self._runs = runs
        self._states: tuple[RunState, ...] = ()
        self._unit = self.link.kind
        self.curves = Overlay()
        self.held_out = self._overlaid(
            tr("Held-out loss"), "points", loss_text, unit=tr("nats per token"), legend="all"
        )
        self.held_out.head.toggled.connect(self._toggle)
        self.accuracy = self._small(
            tr("Preferred, held out"), "points", lambda share: f"{share:.0f} %", unit="%", from_zero=False
        )
        self.margin = self._small(tr("Margin, held out"), "points", plain_value, from_zero=False)
        self._preferences = (self.accuracy, self.margin)
        self.loss = self._small(tr("Training loss"), "mean", loss_text, unit=tr("smoothed"), from_zero=False)
        self.speed = self._small(tr("Speed"), "mean", count_text, unit=tr("tokens/s"), tick_text=short_count)
        self.rate = self._small(tr("Learning rate"), "line", learning_rate_text, tick_text=learning_rate_text)
        self.grad_norm = self._small(tr("Gradient norm"), "mean", lambda norm: f"{norm:.3g}")
        self.memory = self._small(tr("Memory"), "line", lambda gib: memory_size(round(gib * _GIB)), unit="GiB")
        self.small = (*self._preferences, self.loss, self.speed, self.rate, self.grad_norm, self.memory)
        self._arrange(self.held_out, self.small)
        self._redraw = QTimer(self, singleShot=True, interval=0)
        self._redraw.timeout.connect(self._draw)
        self.link.view_changed.connect(self._unit_changed)

    def show_states(self, states: Sequence[RunState]) -> None:
        """Draw the runs, in an event of its own.

        Args:
            states: folded events of each run, in their order.
        """
        self._states = tuple(states)
        self._redraw.start()

    def _toggle(self, key: str, shown: bool) -> None:
        """Hide or show the runs of a style in all charts, as the legend of the large one says."""
        style = self._runs[int(key.removeprefix("run"))].style
        for place, run in enumerate(self._runs):
            if run.style == style:
                for chart in (self.held_out, *self.small):
                    chart.set_line_hidden(f"run{place}", hidden=not shown)

    def _unit_changed(self) -> None:
        if self.link.kind != self._unit:
            self._unit = self.link.kind
            self._redraw.start()

    def _draw(self) -> None:
        other = self.curves.axis.unit != self._unit
        found = self.curves = overlay(self._states, self._unit)
        self.link.set_axis(found.axis)
        if other:
            self.link.show_latest(0)
        shown = {
            self.held_out: found.held_out,
            self.accuracy: found.accuracy,
            self.margin: found.margin,
            self.loss: found.loss,
            self.speed: found.tokens_per_s,
            self.rate: found.learning_rate,
            self.grad_norm: found.grad_norm,
            self.memory: found.memory,
        }
        for chart, curves in shown.items():
            chart.set_curves({f"run{place}": curve for place, curve in enumerate(curves)})
        for chart in self._preferences:
            self.room.set_shown(chart, shown=any(map(len, shown[chart])))
        self.room.arrange()
        for place, run in enumerate(self._runs):
            entry = self.held_out.legend(f"run{place}")
            entry.setVisible(bool(run.legend))
            if run.legend != run.title:  # it stands for several runs, of which none has the value
                entry.set_label(run.legend)
        self.pinned.refresh()

    def _small(self, name: str, kind: LineKind, value_text: Callable[[float], str], **options: Any) -> Chart:
        defaults = {"tick_text": plain_number, "from_zero": True, "small": True, "legend": "none"}
        return self._overlaid(name, kind, value_text, **{**defaults, **options})

    def _overlaid(self, name: str, kind: LineKind, value_text: Callable[[float], str], **options: Any) -> Chart:
        lines = {f"run{place}": ChartLine(run.title, run.style, kind) for place, run in enumerate(self._runs)}
        return self._chart(name, lines, value_text, **options)
