"""The card of what a run took: energy, its price, power, heat, and what held the clocks down."""

from __future__ import annotations

import numpy as np

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import Value, caption
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.hardware.strip import HOT_C
from burnish_app.wording.hardware_text import energy_per_point, price_text, throttled_text
from burnish_engine.contract.run.fold import EvaluationHistory
from burnish_engine.contract.run.hardware_log import GpuHistory, HardwareHistory
from burnish_engine.contract.units import energy_size


class RunHardware(Card):
    """Shows what a run, live or past, took of the hardware, by its recording. Hidden where no GPU was recorded."""

    def __init__(self) -> None:
        super().__init__(tr("What it took"))
        self._price_per_kwh = 0.0
        self._history, self._evaluations = HardwareHistory(), EvaluationHistory()
        self.energy = Value(
            tr("Energy"), hint=tr("By the counters of the GPUs; the rest of the machine is not counted.")
        )
        self.price = Value(tr("Price"), hint=tr("At the price per kWh in Settings."))
        self.per_point = Value(
            tr("For each point"),
            hint=tr("Energy for each point (1 nat) by which the held-out loss fell."),
        )
        self.power = Value(tr("Mean power"), "W")
        self.heat = Value(tr("Hottest"), "°C")
        values = (self.energy, self.price, self.per_point, self.power, self.heat)
        self.body.addLayout(columns_layout(values, 3 * UNIT, even=True))
        self.throttled = caption("")
        self.body.addWidget(self.throttled)
        self.hide()

    def set_price(self, price_per_kwh: float) -> None:
        """Set the price of a kilowatt hour; 0: not set."""
        self._price_per_kwh = price_per_kwh
        self._draw()

    def show_run(self, history: HardwareHistory, evaluations: EvaluationHistory) -> None:
        """Show a run's recording.

        Args:
            history: recording of the run so far.
            evaluations: evaluations of the run so far.
        """
        self._history, self._evaluations = history, evaluations
        self._draw()

    def _draw(self) -> None:
        joules = self._history.energy_j
        gpus = [gpu for gpu in self._history.gpus.values() if len(gpu)]
        self.setVisible(bool(gpus))
        if not gpus:
            return
        self._draw_energy(joules)
        seconds = np.asarray(gpus[0].seconds.values()).sum()
        if joules is not None and seconds > 0:
            self.power.set(f"{joules / seconds:,.0f}")
        hottest = max((_hottest(gpu) for gpu in gpus), default=float("nan"))
        known = bool(np.isfinite(hottest))
        self.heat.set(f"{hottest:.0f}" if known else "–", tone="warning" if known and hottest >= HOT_C else "")
        text = throttled_text(gpus[0].throttle_s, float(seconds))
        self.throttled.setText(text)
        self.throttled.setVisible(bool(text))

    def _draw_energy(self, joules: float | None) -> None:
        if joules is None:
            for value in (self.energy, self.price, self.per_point, self.power):
                value.set("–")
            return
        self.energy.set(*energy_size(joules).split(" "))
        price = price_text(joules, self._price_per_kwh)
        self.price.setVisible(bool(price))
        self.price.set(price)
        each = energy_per_point(joules, self._evaluations)
        if each is None:
            self.per_point.set("–", "")
            return
        figure, unit = energy_size(each).split(" ")
        price = price_text(each, self._price_per_kwh)
        self.per_point.set(figure, f"{unit}, {price}" if price else unit)


def _hottest(gpu: GpuHistory) -> float:
    degrees = np.asarray(gpu.temperature_c.values())
    known = degrees[np.isfinite(degrees)]
    return float(known.max()) if len(known) else float("nan")
