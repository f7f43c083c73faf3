"""The four charts of a run: a large one for the loss, and learning rate, speed and memory below it."""

from __future__ import annotations

import math
from array import array

import numpy as np
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.plot import ChartLine
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.runs.charts import Chart, moving_mean
from burnish_app.wording.numbers import count_text
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.units import memory_size

_LOSS_PX, _SMALL_PX = (168, 480), (84, 240)
_MIN_PX = 216  # least width of a small chart's card; narrower ones go below
_GIB = 2**30
_THIN_PX = 1.2
_BESIDE_PX = 524  # height of a page without the drawings: headline, figures, margins, the charts' own headings
_LOSS_SHARE = 2 / 3


def mean_window(steps: int) -> int:
    """Return the number of steps to average the loss over: a fiftieth of the run, 5 to 100.

    Args:
        steps: number of steps that the run will make.
    """
    return min(max(steps // 50, 5), 100)


def loss_text(loss: float) -> str:
    """Format a loss for figures and legends."""
    return f"{loss:.3f}" if math.isfinite(loss) else "not a number"


def learning_rate_text(rate: float) -> str:
    """Format a learning rate such as 2e-4 or 1.85e-4."""
    if rate == 0 or not math.isfinite(rate):
        return "0"
    digits, _, exponent = f"{rate:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


class RunCharts(QWidget):
    """Draws the charts of a `RunState`. The page calls `draw` at most five times per second."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = Chart(
            "Loss",
            {
                "raw": ChartLine("each step", 0, width_px=1.0, faint=True),
                "mean": ChartLine("mean", 0, width_px=2.0),
                "held_out": ChartLine("held out", 1, points=True),
            },
            loss_text,
            tick_text=lambda loss: f"{loss:.2f}",
        )
        self.rate = Chart("Learning rate", {"rate": ChartLine("", 3, _THIN_PX)}, learning_rate_text, from_zero=True)
        self.speed = Chart(
            "Speed",
            {"speed": ChartLine("", 2, _THIN_PX)},
            lambda speed: f"{count_text(speed)} tokens/s",
            tick_text=lambda speed: f"{speed / 1000:g} k" if speed >= 1000 else f"{speed:g}",
            from_zero=True,
        )
        self.memory = Chart(
            "Memory",
            {"memory": ChartLine("", 1, _THIN_PX)},
            lambda gib: memory_size(round(gib * _GIB)),
            tick_text=lambda gib: f"{gib:g} GiB",
            from_zero=True,
        )
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2 * UNIT)
        column.addWidget(_in_card(self.loss))
        small = [_in_card(chart) for chart in (self.rate, self.speed, self.memory)]
        for card in small:
            card.setMinimumWidth(_MIN_PX)
        column.addLayout(columns_layout(small, 2 * UNIT, even=True, fill=True))
        self.fit_height(0)

    def fit_height(self, page_px: int) -> None:
        """Set the heights of the charts for a page of this height, device-independent pixels."""
        room = page_px - _BESIDE_PX
        self.loss.set_plot_height(_between(room * _LOSS_SHARE, *_LOSS_PX))
        for chart in (self.rate, self.speed, self.memory):
            chart.set_plot_height(_between(room * (1 - _LOSS_SHARE), *_SMALL_PX))

    def draw(self, state: RunState) -> None:
        """Draw the steps of a state."""
        steps = state.steps.step.values()
        losses = state.steps.loss.values()
        self.loss.set_line("raw", steps, losses)
        self.loss.set_line("mean", steps, moving_mean(losses, mean_window(state.total_steps)))
        self.loss.set_line("held_out", state.evaluations.step.values(), state.evaluations.loss.values())
        self.loss.set_marks(state.bad_steps, [back.to_step for back in state.rollbacks])
        self.rate.set_line("rate", steps, state.steps.learning_rate.values())
        self.speed.set_line("speed", steps, state.steps.tokens_per_s.values())
        self.memory.set_line("memory", steps, np.asarray(state.steps.held_bytes.values()) / _GIB)


def newest_mean(values: array[float], window: int) -> float:
    """Compute the mean of the finite numbers among the last `window` ones; NaN if there are none.

    Args:
        values: numbers in order.
        window: number of last values to average.
    """
    last = [value for value in values[-window:] if math.isfinite(value)]
    return sum(last) / len(last) if last else math.nan


def _in_card(chart: Chart) -> Card:
    card = Card()
    card.body.addWidget(chart)
    return card


def _between(value: float, low: int, high: int) -> int:
    return round(min(max(value, low), high))
