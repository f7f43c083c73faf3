"""Charts with a line for each of several runs: the held-out loss first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QTimer

from burnish_app.comparison.overlay import Overlay, overlay
from burnish_app.curves.ticks import TickText
from burnish_app.look.language import tr
from burnish_app.widgets.charts.chart import Chart
from burnish_app.widgets.charts.lines import ChartLine, LineKind
from burnish_app.widgets.runs.linked_charts import LinkedCharts
from burnish_app.widgets.runs.run_charts import learning_rate_text, loss_text, plain_number, short_count
from burnish_app.wording.numbers import count_text
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.units import memory_size

_GIB = 2**30


class OverlayCharts(LinkedCharts):
    """Draws the curves of several runs over each other.

    Args:
        titles: title of each run.
        styles: place of each run's line style; by default one for each run.
        legend: entry of each run in the legend, which hides and shows all runs of its style; empty: it has none. By
            default its title.
    """

    def __init__(
        self, titles: Sequence[str], styles: Sequence[int] | None = None, *, legend: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self._titles = list(titles)
        self._styles = list(range(len(titles)) if styles is None else styles)
        self._states: tuple[RunState, ...] = ()
        self._unit = self.link.kind
        self.curves = Overlay()
        self.held_out = self._lines(tr("Held-out loss"), "points", loss_text, unit=tr("nats per token"))
        self.held_out.head.toggled.connect(self._toggle)
        self._legend = list(titles if legend is None else legend)
        self.loss = self._lines(tr("Training loss"), "mean", loss_text, unit=tr("smoothed"), small=True)
        self.speed = self._lines(
            tr("Speed"), "mean", count_text, unit=tr("tokens/s"), tick_text=short_count, small=True, from_zero=True
        )
        self.rate = self._lines(
            tr("Learning rate"), "line", learning_rate_text, tick_text=learning_rate_text, small=True, from_zero=True
        )
        self.grad_norm = self._lines(
            tr("Gradient norm"), "mean", lambda norm: f"{norm:.3g}", small=True, from_zero=True
        )
        self.memory = self._lines(
            tr("Memory"), "line", lambda gib: memory_size(round(gib * _GIB)), unit="GiB", small=True, from_zero=True
        )
        self.small = (self.loss, self.speed, self.rate, self.grad_norm, self.memory)
        self._arrange(self.held_out, self.small)
        self._redraw = QTimer(self, singleShot=True, interval=0)
        self._redraw.timeout.connect(self._draw)
        self.link.view_changed.connect(self._unit_changed)

    def show_states(self, states: Sequence[RunState]) -> None:
        """Draw the runs, in an event of its own.

        Args:
            states: folded events of each run, in the order of the titles.
        """
        self._states = tuple(states)
        self._redraw.start()

    def _toggle(self, key: str, shown: bool) -> None:
        """Hide or show the runs of a style in all charts, as the legend of the large one says."""
        style = self._styles[int(key.removeprefix("run"))]
        for place, other in enumerate(self._styles):
            if other == style:
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
            self.loss: found.loss,
            self.speed: found.tokens_per_s,
            self.rate: found.learning_rate,
            self.grad_norm: found.grad_norm,
            self.memory: found.memory,
        }
        for chart, curves in shown.items():
            chart.set_curves({f"run{place}": curve for place, curve in enumerate(curves)})
        for place, name in enumerate(self._legend):
            entry = self.held_out.legend(f"run{place}")
            entry.setVisible(bool(name))
            if name != self._titles[place]:  # it stands for several runs, of which none has the value
                entry.set_label(name)
        self.pinned.refresh()

    def _lines(
        self,
        name: str,
        kind: LineKind,
        value_text: Callable[[float], str],
        *,
        unit: str = "",
        tick_text: TickText = plain_number,
        small: bool = False,
        from_zero: bool = False,
    ) -> Chart:
        lines = {
            f"run{place}": ChartLine(title, style, kind)
            for place, (title, style) in enumerate(zip(self._titles, self._styles, strict=True))
        }
        options = {"unit": unit, "tick_text": tick_text, "small": small, "from_zero": from_zero}
        options["legend"] = "none" if small else "all"
        return self._chart(name, lines, value_text, **options)
