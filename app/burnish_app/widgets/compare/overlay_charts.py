"""Charts with a line for each of several runs, the held-out loss first, which are followed while the runs continue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.comparison.overlay import Overlay, overlay
from burnish_app.curves.curve import Curve
from burnish_app.engine.runs_follower import RunsFollower
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, LIGHT
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.charts.chart import Chart
from burnish_app.widgets.charts.lines import ChartLine, LineKind
from burnish_app.widgets.runs.linked_charts import LinkedCharts
from burnish_app.widgets.runs.run_charts import learning_rate_text, loss_text, plain_number, plain_value, short_count
from burnish_app.wording.numbers import count_text
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.units import memory_size

_GIB = 2**30
_PREFERENCES = ("accuracy", "margin")  # curves of runs that learn from preferences alone

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
        objective: objective that it learns by; empty: unknown, or that of the other runs.
    """

    folder: str
    title: str
    style: int
    legend: str
    objective: str = ""


class OverlayCharts(LinkedCharts):
    """Draws the curves of several runs over each other.

    Losses and margins of different objectives have nothing in common. Of such runs the large chart shows how many
    held-out pairs they prefer rightly, and there is no chart of a loss.

    Args:
        runs: runs to draw.

    Attributes:
        curves: curves that are drawn.
        large: chart that has the legend.
        small: other charts, in order.
    """

    def __init__(self, runs: Sequence[OverlaidRun]) -> None:
        super().__init__()
        self._runs = runs
        self._states: tuple[RunState, ...] = ()
        self._unit = self.link.kind
        self.curves = Overlay()
        self._charts = self._make_charts(one_objective=len({run.objective for run in runs}) < 2)
        self.large, *self.small = self._charts.values()
        self.large.head.toggled.connect(self._toggle)
        self._arrange(self.large, self.small)
        self._redraw = QTimer(self, singleShot=True, interval=0)
        self._redraw.timeout.connect(self._draw)
        self.link.view_changed.connect(self._unit_changed)

    def _make_charts(self, *, one_objective: bool) -> dict[str, Chart]:
        """Make the charts by the name of the curves that each shows, the large one first."""
        preferred = self._small if one_objective else self._large
        accuracy = preferred(
            tr("Preferred, held out"), "points", lambda share: f"{share:.0f} %", unit="%", from_zero=False
        )
        charts = {"accuracy": accuracy}
        if one_objective:
            charts = {
                "held_out": self._large(tr("Held-out loss"), "points", loss_text, unit=tr("nats per token")),
                **charts,
                "margin": self._small(tr("Margin, held out"), "points", plain_value, from_zero=False),
                "loss": self._small(tr("Training loss"), "mean", loss_text, unit=tr("smoothed"), from_zero=False),
            }
        return {
            **charts,
            "tokens_per_s": self._small(tr("Speed"), "mean", count_text, unit=tr("tokens/s"), tick_text=short_count),
            "learning_rate": self._small(tr("Learning rate"), "line", learning_rate_text, tick_text=learning_rate_text),
            "grad_norm": self._small(tr("Gradient norm"), "mean", lambda norm: f"{norm:.3g}"),
            "memory": self._small(tr("Memory"), "line", lambda gib: memory_size(round(gib * _GIB)), unit="GiB"),
        }

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
                for chart in self._charts.values():
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
        for name, chart in self._charts.items():
            curves: tuple[Curve, ...] = getattr(found, name)
            chart.set_curves({f"run{place}": curve for place, curve in enumerate(curves)})
            if name in _PREFERENCES and chart is not self.large:
                self.room.set_shown(chart, shown=any(map(len, curves)))
        if "held_out" in self._charts and any(map(len, found.margin)):
            self._charts["held_out"].head.set_unit(tr("nats per pair"))
        self.room.arrange()
        for place, run in enumerate(self._runs):
            entry = self.large.legend(f"run{place}")
            entry.setVisible(bool(run.legend))
            if run.legend != run.title:  # it stands for several runs, of which none has the value
                entry.set_label(run.legend)
        self.pinned.refresh()

    def _large(self, name: str, kind: LineKind, value_text: Callable[[float], str], **options: Any) -> Chart:
        return self._overlaid(name, kind, value_text, legend="all", **options)

    def _small(self, name: str, kind: LineKind, value_text: Callable[[float], str], **options: Any) -> Chart:
        defaults = {"tick_text": plain_number, "from_zero": True, "small": True, "legend": "none"}
        return self._overlaid(name, kind, value_text, **{**defaults, **options})

    def _overlaid(self, name: str, kind: LineKind, value_text: Callable[[float], str], **options: Any) -> Chart:
        lines = {f"run{place}": ChartLine(run.title, run.style, kind) for place, run in enumerate(self._runs)}
        return self._chart(name, lines, value_text, **options)


class FollowedCharts(QWidget):
    """Reads the events of runs and draws their curves over each other. Another set of runs has charts of its own.

    Attributes:
        advanced: signal with the list of `RunState` of the runs, in their order, when there are new events.
        drawing_failed: signal with a sentence that says why a picture could not be written.
        charts: charts of the runs; None before the first ones are followed.
    """

    advanced = Signal(object)
    drawing_failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._runs: tuple[OverlaidRun, ...] = ()
        self._page_px = 0
        self._follower = RunsFollower(self)
        self._follower.advanced.connect(self._advanced)
        self.charts: OverlayCharts | None = None
        self._column = fill(QVBoxLayout(self), spacing_px=GAP_PX)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the runs that are followed."""
        return tuple(run.folder for run in self._runs)

    def follow(self, runs: Sequence[OverlaidRun]) -> bool:
        """Follow runs; it keeps the charts of the same ones.

        Args:
            runs: runs to draw; empty: none.

        Returns:
            Whether they are others than before.
        """
        if tuple(runs) == self._runs:
            return False
        self._runs = tuple(runs)
        before = self.charts
        self.charts = OverlayCharts(self._runs)
        self.charts.failed.connect(self.drawing_failed)
        self.charts.fit_height(self._page_px)
        if before is not None:
            self._column.removeWidget(before)
            before.hide()
            before.deleteLater()
        self._column.insertWidget(0, self.charts)
        self._follower.follow(self.folders)
        return True

    def stop(self) -> None:
        """Stop following; `follow` begins anew."""
        self._follower.stop()
        self._runs = ()

    def fit_height(self, page_px: int) -> None:
        """Set the heights of the charts for a page of this height, device-independent pixels."""
        self._page_px = page_px
        if self.charts is not None:
            self.charts.fit_height(page_px)

    def _advanced(self, states: dict[str, RunState]) -> None:
        # The follower may have read other runs until a moment ago.
        if self.charts is not None and tuple(states) == self.folders:
            self.charts.show_states(list(states.values()))
            self.advanced.emit(list(states.values()))
