"""The live history: ten minutes of one GPU, what holds its clocks down, who holds its memory, and alarms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QButtonGroup, QGridLayout, QPushButton, QVBoxLayout

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.state.hardware_alarms import Alarm
from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import ElidedLabel, body, caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.hardware.trace import Layer, Trace, rounded_up
from burnish_app.widgets.page.banner import Banner
from burnish_app.wording.hardware_text import (
    alarm_text,
    celsius_text,
    clocks_text,
    holder_text,
    load_text,
    memory_split_text,
    pcie_now_text,
    watts_text,
)
from burnish_app.wording.numbers import percent
from burnish_engine.contract.facts.hardware import MemoryHolder
from burnish_engine.contract.run.hardware_log import GpuHistory, HardwareHistory
from burnish_engine.contract.units import memory_size

_COLUMNS_PX = 200  # least width of a trace; a narrower view has fewer in a line
_MOST_ACROSS = 3
_MOST_HOLDERS = 6
_LEAST_C, _MOST_C = 20.0, 90.0
_NOTABLE = 0.01  # share of the time


class LiveView(Card):
    """Shows the live history of the hardware.

    Attributes:
        remedy: signal with the `Alarm` whose remedy the person asked for.
        began: signal without arguments, emitted when there is something to show.
    """

    remedy = Signal(object)
    began = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._history = HardwareHistory()
        self._gpu = -1
        self._can_help: Callable[[Alarm], bool] = lambda _: False
        self.setAccessibleName(tr("Hardware, the last ten minutes"))
        self.hide()
        self._title = heading("")
        self._title.setWordWrap(False)
        self._choices, self._group = FlowLayout(4, 4), QButtonGroup(self)
        self._alarms = QVBoxLayout()
        self._shown_alarms: list[Alarm] = []
        self._shown_holders: tuple[MemoryHolder, ...] = ()
        self._split, self._clocks, self._pcie = body("", "muted"), body(""), body("", "muted")
        self._holders = QGridLayout()
        self._holders_head = caption(tr("Memory by process"))
        self._holders_head.hide()
        self.traces = self._make_traces()
        self._grid = QGridLayout()
        self._grid.setSpacing(2 * UNIT)
        self._across = 0
        self._arrange(_COLUMNS_PX)
        self._fill()

    def show_history(
        self, history: HardwareHistory, alarms: Sequence[Alarm], can_help: Callable[[Alarm], bool]
    ) -> None:
        """Show the newest samples and alarms.

        Args:
            history: live history.
            alarms: alarms of the newest samples.
            can_help: function that says whether a click can remedy an alarm.
        """
        several = self._indices(history) != self._indices(self._history)
        self._history, self._can_help = history, can_help
        if several or self._gpu not in history.gpus:
            self._make_choices()
        self._show_alarms(list(alarms))
        begins = self.isHidden() and history.start is not None
        self.setVisible(history.start is not None)
        if begins:
            self.began.emit()
        if self.isVisible():
            self._draw()

    def showEvent(self, event: QShowEvent) -> None:
        """Draw the newest samples."""
        super().showEvent(event)
        self._draw()

    @property
    def shown_text(self) -> str:
        """All sentences that the panel shows."""
        labels = (self._title, self._split, self._clocks, self._pcie)
        return "\n".join(label.text() for label in labels if not label.isHidden())

    @property
    def alarm_banners(self) -> list[Banner]:
        """The banners of the alarms."""
        items = [self._alarms.itemAt(at) for at in range(self._alarms.count())]
        return [item.widget() for item in items if item is not None and isinstance(item.widget(), Banner)]  # type: ignore[misc]

    def _fill(self) -> None:
        when = caption(tr("the last 10 minutes"))
        when.setWordWrap(False)
        head = fill(FlowLayout(UNIT, 0), self._title, when)
        self._holders.setHorizontalSpacing(2 * UNIT)
        self._holders.setVerticalSpacing(4)
        self._holders.setColumnStretch(0, 1)
        fill(
            self.body,
            head,
            self._choices,
            self._alarms,
            self._split,
            self._grid,
            self._clocks,
            self._pcie,
            self._holders_head,
            self._holders,
            spacing_px=UNIT + 4,
        )

    def _make_traces(self) -> dict[str, Trace]:
        def first(text: Callable[[float], str]) -> Callable[[Sequence[float]], str]:
            return lambda values: text(values[0]) if values else "–"

        def memory(values: Sequence[float]) -> str:
            return memory_size(values[-1]) if values and math.isfinite(values[-1]) else "–"

        def clock(values: Sequence[float]) -> str:
            return f"{values[0]:,.0f} MHz" if values and math.isfinite(values[0]) else "–"

        def traffic(values: Sequence[float]) -> str:
            return " / ".join(f"{one:.1f}" for one in values) + " GB/s" if values and math.isfinite(values[0]) else "–"

        traces = {
            "memory": Trace(tr("Memory"), memory),
            "load": Trace(tr("Load"), first(load_text)),
            "temperature": Trace(tr("Temperature"), first(celsius_text)),
            "power": Trace(tr("Power"), first(watts_text)),
            "clock": Trace(tr("Clock"), clock),
            "pcie": Trace(tr("PCIe to / from"), traffic),
        }
        traces["clock"].setToolTip(tr("Shaded: something other than idleness held the clocks down."))
        traces["memory"].setToolTip(tr("Amber: Burnish. Gray above it: other programs."))
        for trace in traces.values():
            for other in traces.values():
                trace.pointed.connect(other.set_cursor)
        return traces

    @staticmethod
    def _indices(history: HardwareHistory) -> list[int]:
        return [gpu.index for gpu in history.start.gpus] if history.start else []

    def _make_choices(self) -> None:
        """Make a button for each GPU, where there are several."""
        indices = self._indices(self._history)
        if self._gpu not in indices:
            self._gpu = indices[0] if indices else -1
        clear(self._choices)
        for index in indices if len(indices) > 1 else ():
            button = self._choice(index)
            self._group.addButton(button)
            self._choices.addWidget(button)

    def _choice(self, index: int) -> QPushButton:
        def choose() -> None:
            self._gpu = index
            self._draw()

        button = secondary(str(index), choose)
        button.setAccessibleName(f"GPU {index}")
        button.setCheckable(True)
        button.setChecked(index == self._gpu)
        button.setFixedWidth(32)
        button.setStyleSheet("padding: 3px 0;")
        return button

    def _show_alarms(self, alarms: list[Alarm]) -> None:
        """Show a banner for each alarm; one that stays keeps its banner, so that a click is never lost."""
        if [alarm.key for alarm in alarms] == [alarm.key for alarm in self._shown_alarms]:
            return
        self._shown_alarms = alarms
        clear(self._alarms)
        for alarm in alarms:
            what, remedy = alarm_text(alarm)
            actions = [(tr("Use less memory from the next step"), self._asker(alarm))]
            self._alarms.addWidget(Banner("warning", what, remedy, actions if self._can_help(alarm) else ()))

    def _asker(self, alarm: Alarm) -> Callable[[], object]:
        return lambda: self.remedy.emit(alarm)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put as many traces beside each other as there is room for."""
        super().resizeEvent(event)
        self._arrange(self.width() - 2 * GAP_PX)

    def _arrange(self, width_px: int) -> None:
        across = max(1, min(_MOST_ACROSS, width_px // scaled(_COLUMNS_PX)))
        if across == self._across:
            return
        self._across = across
        for at, trace in enumerate(self.traces.values()):
            self._grid.addWidget(trace, at // across, at % across)

    def _draw(self) -> None:
        """Show the chosen GPU, or the processor where there is none."""
        gpu = self._history.gpus.get(self._gpu)
        for key in ("temperature", "power", "clock", "pcie"):
            self.traces[key].setVisible(gpu is not None)
        self._show_holders(gpu)
        if gpu is None:
            self._draw_host()
            return
        several = len(self._indices(self._history)) > 1
        self._title.setText(
            tr("GPU {index}: {name}").format(index=gpu.facts.index, name=gpu.facts.name) if several else gpu.facts.name
        )
        for label, text in (
            (self._split, memory_split_text(gpu)),
            (self._clocks, f"{clocks_text(gpu)} {self._held_down_text(gpu)}".strip()),
            (self._pcie, pcie_now_text(gpu)),
        ):
            label.setText(text)
            label.setVisible(bool(text))
        self._draw_gpu(gpu)

    def _held_down_text(self, gpu: GpuHistory) -> str:
        """Say for how much of the time shown the clocks were held down."""
        seconds, share = np.asarray(gpu.seconds.values()), np.asarray(gpu.throttled.values())
        held = float((seconds * share).sum() / max(seconds.sum(), 1e-9))
        if held < _NOTABLE:
            return ""
        return tr("Something held them down for {share} of the last 10 minutes (shaded).").format(share=percent(held))

    def _draw_gpu(self, gpu: GpuHistory) -> None:
        t = np.asarray(gpu.t.values())
        used, ours = np.asarray(gpu.used_bytes.values()), np.asarray(gpu.ours_bytes.values())
        memory = [Layer(ours, "accent", filled=True), Layer(used, "faint", filled=True)]
        self.traces["memory"].set_values(
            t, memory if np.isfinite(ours).any() else memory[1:], high=gpu.facts.memory_total_bytes or 1.0
        )
        self.traces["load"].set_values(t, [Layer(np.asarray(gpu.load.values()), filled=True)], high=1.0)
        warmest = gpu.facts.slowdown_c or _MOST_C
        degrees = Layer(np.asarray(gpu.temperature_c.values()))
        self.traces["temperature"].set_values(t, [degrees], low=_LEAST_C, high=warmest)
        power = Layer(np.asarray(gpu.power_w.values()))
        self.traces["power"].set_values(t, [power], high=gpu.facts.power_limit_w or 1.0)
        clock = Layer(np.asarray(gpu.clock_mhz.values()))
        shaded = np.asarray(gpu.throttled.values())
        self.traces["clock"].set_values(t, [clock], high=gpu.facts.best_clock_mhz or 1.0, shaded=shaded)
        to_gpu, from_gpu = np.asarray(gpu.to_gpu_gb_s.values()), np.asarray(gpu.from_gpu_gb_s.values())
        finite = np.concatenate([to_gpu, from_gpu])
        finite = finite[np.isfinite(finite)]
        most = rounded_up(float(finite.max())) if len(finite) else 1.0
        self.traces["pcie"].set_values(t, [Layer(to_gpu), Layer(from_gpu, "muted")], high=most)

    def _draw_host(self) -> None:
        history = self._history
        problem = history.start.problem if history.start else ""
        self._title.setText(tr("Processor and memory"))
        self._split.setText(problem or tr("No NVIDIA GPU was found; the processor trains."))
        self._split.show()
        self._clocks.hide()
        self._pcie.hide()
        t = np.asarray(history.t.values())
        ours, used = np.asarray(history.process_bytes.values()), np.asarray(history.ram_used_bytes.values())
        total = history.start.ram_total_bytes if history.start else 0
        layers = [Layer(ours, "accent", filled=True), Layer(used, "faint", filled=True)]
        self.traces["memory"].set_values(t, layers, high=total or 1.0)
        self.traces["load"].set_values(t, [Layer(np.asarray(history.cpu.values()), filled=True)], high=1.0)

    def _show_holders(self, gpu: GpuHistory | None) -> None:
        holders = gpu.holders if gpu is not None else ()
        if holders == self._shown_holders:
            return
        self._shown_holders = holders
        clear(self._holders)
        self._holders_head.setVisible(bool(holders))
        for line, holder in enumerate(holders[:_MOST_HOLDERS]):
            name = ElidedLabel(holder_text(holder), tone="accent" if holder.ours else "")
            amount = body(memory_size(holder.bytes) if holder.bytes is not None else tr("not told"))
            amount.setWordWrap(False)
            self._holders.addWidget(name, line, 0)
            self._holders.addWidget(amount, line, 1, alignment=Qt.AlignmentFlag.AlignRight)
