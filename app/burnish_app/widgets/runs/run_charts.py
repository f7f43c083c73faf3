"""The charts of a run: a large one for the loss, and small ones for all else below it."""

from __future__ import annotations

import math
from collections.abc import Callable

from PySide6.QtCore import QTimer

from burnish_app.curves.hardware_curves import HardwareCurves, hardware_curves
from burnish_app.curves.preference_curves import PreferenceCurves, preference_curves
from burnish_app.curves.reward_curves import RewardCurves, reward_curves
from burnish_app.curves.run_curves import RunCurves, run_curves
from burnish_app.curves.ticks import TickText
from burnish_app.look.language import tr
from burnish_app.widgets.charts.chart import Chart
from burnish_app.widgets.charts.lines import ChartLine
from burnish_app.widgets.runs.linked_charts import LinkedCharts
from burnish_app.widgets.runs.reward_charts import RewardCharts
from burnish_app.wording.numbers import count_text, decimal_text
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.run.hardware_log import HardwareHistory
from burnish_engine.contract.smoothing import default_window
from burnish_engine.contract.units import memory_size

_GIB = 2**30
_NO_SAMPLES = HardwareHistory()
_AT_ONCE = 20_000  # steps whose curves are all drawn in one event


def loss_text(loss: float) -> str:
    """Format a loss for figures and legends."""
    return f"{loss:.3f}" if math.isfinite(loss) else tr("not a number")


def learning_rate_text(rate: float, _decimals: int = 0) -> str:
    """Format a learning rate with three digits, such as 0.000185, as the recipe writes it."""
    return decimal_text(float(f"{rate:.3g}")) if math.isfinite(rate) else "0"


def plain_number(value: float, _decimals: int = 0) -> str:
    """Format a tick with as few digits as it needs."""
    return f"{value:.6g}"


def plain_value(value: float) -> str:
    """Format a figure with three digits, such as 0.0125, 1.4 or -31.6."""
    return f"{value:.3g}" if math.isfinite(value) else tr("not a number")


def short_count(value: float, _decimals: int = 0) -> str:
    """Format a tick such as 500 or 18.5 k."""
    return f"{value / 1000:.6g} k" if abs(value) >= 1000 else f"{value:.6g}"


class RunCharts(LinkedCharts):
    """Draws the charts of a `RunState`. The page calls `draw` at most five times per second."""

    def __init__(self) -> None:
        super().__init__()
        self._run: object = None
        self.curves = RunCurves()
        self.loss = self._chart(
            tr("Loss"),
            {"loss": ChartLine(tr("each step")), "held_out": ChartLine(tr("held out"), 1, "points")},
            loss_text,
            unit=tr("nats per token"),
            smooth="loss",
        )
        step, held_out = ChartLine(tr("each step")), ChartLine(tr("held out"), 1, "points")
        self.margin = self._chart(
            tr("Margin"), {"margin": step, "held_out": held_out}, plain_value, smooth="margin", small=True
        )
        self.accuracy = self._chart(
            tr("Preferred"),
            {"accuracy": step, "held_out": held_out},
            lambda share: f"{share:.0f} %",
            unit="%",
            smooth="accuracy",
            small=True,
        )
        self.log_prob = self._chart(
            tr("Log-probability"),
            {"chosen": ChartLine(tr("chosen"), 2), "rejected": ChartLine(tr("rejected"), 3)},
            plain_value,
            unit=tr("nats"),
            small=True,
        )
        self.kl = self._chart(
            tr("Divergence"),
            {
                "kl": ChartLine(tr("from the reference, per reply")),
                "kl_to_base": ChartLine(tr("from the base, per token"), 1, "points"),
            },
            plain_value,
            unit=tr("nats"),
            from_zero=True,
            small=True,
        )
        self.rewards = RewardCharts(self._chart, plain_value, plain_number)
        self._preferences = (self.margin, self.accuracy, self.log_prob, self.kl)
        self.rate = self._small("rate", tr("Learning rate"), 3, learning_rate_text, tick_text=learning_rate_text)
        self.grad_norm = self._small("grad_norm", tr("Gradient norm"), 2, lambda norm: f"{norm:.3g}", smooth=True)
        self.speed = self._small(
            "speed", tr("Speed"), 1, count_text, unit=tr("tokens/s"), tick_text=short_count, smooth=True
        )
        self.memory = self._chart(
            tr("Memory"),
            {
                "ours": ChartLine(tr("this run"), 1, "area"),
                "others": ChartLine(tr("other programs"), 0, "area", ink="faint"),
                "spilled": ChartLine(tr("spilled to system memory"), 0, "area", ink="error"),
                "peak": ChartLine(tr("peak so far"), 1),
            },
            lambda gib: memory_size(round(gib * _GIB)),
            unit="GiB",
            tick_text=plain_number,
            limit_label=tr("predicted"),
            from_zero=True,
            small=True,
        )
        self.temperature = self._small("temperature", tr("Temperature"), 3, lambda heat: f"{heat:.0f} °C", unit="°C")
        self.power = self._small("power", tr("Power"), 0, lambda power: f"{power:.0f} W", unit="W")
        self.clock = self._small("clock", tr("Clock"), 2, lambda clock: f"{clock:,.0f} MHz", unit="MHz")
        self.load = self._small("load", tr("GPU load"), 1, lambda load: f"{load:.0f} %", unit="%")
        self._sampled = (self.temperature, self.power, self.clock, self.load)
        self.small = (
            *self.rewards.charts, *self._preferences, self.rate, self.grad_norm, self.speed, self.memory,
            *self._sampled,
        )  # fmt: skip
        self._arrange(self.loss, self.small)
        self._parts: list[Callable[[], None]] = []
        self._next = QTimer(self, singleShot=True, interval=0)
        self._next.setObjectName("small charts")
        self._next.timeout.connect(self._draw_next)

    def draw(self, state: RunState, samples: HardwareHistory = _NO_SAMPLES) -> None:
        """Draw the steps of a state.

        Args:
            state: state folded from the run's events so far.
            samples: recording of the hardware so far; temperature, power and clock are shown if it has them.
        """
        if state.starts[:1] != self._run:  # another run
            self._run = state.starts[:1]
            self.link.forget()
            for chart in (self.loss, self.rewards.reward, self.margin, self.accuracy, self.grad_norm, self.speed):
                chart.set_window(default_window(state.total_steps))
        curves = self.curves = run_curves(state)
        self.link.set_axis(curves.axis)
        self.loss.set_curves({"loss": curves.loss, "held_out": curves.held_out}, marks=curves.marks)
        parts = [
            lambda: self._draw_steps(curves),
            lambda: self._draw_rewards(reward_curves(state)),
            lambda: self._draw_preferences(preference_curves(state)),
            lambda: self._draw_hardware(curves, hardware_curves(samples, curves.axis)),
            self.pinned.refresh,
        ]
        if len(state.steps) > _AT_ONCE:
            self._parts = parts
            self._next.start()
        else:
            self._next.stop()  # what is left of a longer run
            for draw in parts:
                draw()

    def _draw_next(self) -> None:
        """Draw the next part of a long run's small charts: each in an event of its own, so that none takes long."""
        self._parts.pop(0)()
        if self._parts:
            self._next.start()

    def _draw_steps(self, curves: RunCurves) -> None:
        self.rate.set_curves({"rate": curves.learning_rate})
        self.grad_norm.set_curves({"grad_norm": curves.grad_norm})
        self.speed.set_curves({"speed": curves.tokens_per_s})

    def _draw_rewards(self, found: RewardCurves) -> None:
        """Draw the charts of a run that learns from rewards; others do not have them."""
        shown = self.rewards.draw(found)
        for chart in self.rewards.charts:
            self.room.set_shown(chart, shown=chart in shown)
        self.room.set_large(self.rewards.reward if shown else self.loss)

    def _draw_preferences(self, found: PreferenceCurves) -> None:
        """Draw the charts of a run that learns from preferences; others do not have them."""
        learns = len(found.margin) + len(found.held_out_margin) > 0
        self.loss.head.set_unit(tr("nats per pair") if learns else tr("nats per token"))
        self.margin.set_curves({"margin": found.margin, "held_out": found.held_out_margin})
        self.accuracy.set_curves({"accuracy": found.accuracy, "held_out": found.held_out_accuracy})
        self.log_prob.set_curves({"chosen": found.chosen, "rejected": found.rejected})
        self.kl.set_curves({"kl": found.kl, "kl_to_base": found.kl_to_base})
        for chart in (self.margin, self.accuracy, self.log_prob):
            self.room.set_shown(chart, shown=learns)
        self.room.set_shown(self.kl, shown=len(found.kl) + len(found.kl_to_base) > 0)

    def _draw_hardware(self, curves: RunCurves, found: HardwareCurves) -> None:
        parts = {"ours": found.ours, "others": found.others, "spilled": found.spilled}
        shown = {key: curve for key, curve in parts.items() if len(curve)} or {"peak": curves.memory}
        self.memory.set_curves(shown, limit=curves.predicted_memory)
        for chart, (key, curve) in zip(self._sampled, found.sampled().items(), strict=True):
            chart.set_curves({key: curve})
            unit = chart.spec.unit
            chart.head.set_unit(
                unit if found.gpu is None else tr("{unit}, GPU {index}").format(unit=unit, index=found.gpu)
            )
            self.room.set_shown(chart, shown=len(curve) > 0)
        self.room.arrange()

    def _small(
        self,
        key: str,
        name: str,
        series: int,
        value_text: Callable[[float], str],
        *,
        unit: str = "",
        tick_text: TickText = plain_number,
        smooth: bool = False,
    ) -> Chart:
        line = ChartLine(tr("each step") if smooth else "", series)
        options = {"unit": unit, "tick_text": tick_text, "smooth": key if smooth else ""}
        return self._chart(name, {key: line}, value_text, from_zero=True, small=True, **options)
