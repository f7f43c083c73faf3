"""The card of one GPU: a memory bar and its figures."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT, colors_of
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import Value, body, caption
from burnish_app.widgets.basic.wrapping import ColumnsLayout, columns_layout
from burnish_app.wording.machine_text import gpu_memory_text, memory_users_text, pcie_text
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts

_HOT_C = 85  # GeForce cards begin to lower their clocks at 83 to 90 degrees
_CROWDED = 0.25
"""Share of used GPU memory from which the card warns about the processes that use it."""


class GpuCard(Card):
    """Shows one GPU of the machine.

    Args:
        gpu: facts about the GPU.
        machine: facts about its machine; the heading holds the GPU's index if there are several.
        is_live: whether memory, temperature, power and clock stand in a live view, so that they need not stand here.
    """

    def __init__(self, gpu: GpuFacts, machine: MachineFacts, *, is_live: bool = False) -> None:
        several = len(machine.gpus) > 1
        super().__init__(tr("GPU {index}: {name}").format(index=gpu.index, name=gpu.name) if several else gpu.name)
        if gpu.compute_capability:
            capability = caption(tr("compute {version}").format(version="{}.{}".format(*gpu.compute_capability)))
            capability.setToolTip(tr("Compute capability: which generation of NVIDIA hardware it is."))
            self.corner.addWidget(capability)
        if not is_live:
            self._show_memory(gpu)
        self.body.addLayout(_figures(gpu, is_live=is_live))
        if gpu.pcie:
            _, hint = pcie_text(gpu.pcie)
            if hint:
                self.body.addWidget(caption(hint))
        if gpu.mig:
            self.body.addWidget(caption(tr("It is split into instances (MIG); a run uses one of them.")))
        self.body.addStretch(1)

    def _show_memory(self, gpu: GpuFacts) -> None:
        used = 1 - gpu.vram_free_bytes / gpu.vram_total_bytes if gpu.vram_total_bytes else 0.0
        fill(self.body, ShareBar(used, f"{gpu.name}: {gpu_memory_text(gpu)}"), body(gpu_memory_text(gpu)))
        users = memory_users_text(gpu.users)
        if users:
            self.body.addWidget(caption(users, "warning" if used > _CROWDED else "muted"))


class ShareBar(QWidget):
    """A thin bar that is filled to a share.

    Args:
        share: filled share, 0 to 1.
        text: tooltip and name for screen readers.
    """

    def __init__(self, share: float, text: str) -> None:
        super().__init__()
        self._share = min(max(share, 0.0), 1.0)
        self.setAccessibleName(text)
        self.setToolTip(text)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """Return the preferred size: one grid step high."""
        return QSize(200, UNIT)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the track and the filled part."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colors.raised))
        painter.drawRoundedRect(self.rect(), 4, 4)
        if self._share > 0:
            painter.setBrush(QColor(colors.faint))
            painter.drawRoundedRect(QRectF(0, 0, max(self._share * self.width(), UNIT), self.height()), 4, 4)


def _figures(gpu: GpuFacts, *, is_live: bool) -> ColumnsLayout:
    known = [] if is_live else _momentary(gpu)
    if gpu.pcie:
        value = Value(tr("Connection"), "", tr("How it is connected to the processor."), large=False)
        value.set(pcie_text(gpu.pcie)[0])
        known.append(value)
    line = columns_layout(known, 3 * UNIT)
    line.setContentsMargins(0, UNIT, 0, 0)
    return line


def _momentary(gpu: GpuFacts) -> list[Value]:
    """Make the figures that change from moment to moment."""
    known: list[Value] = []
    if gpu.temperature_c is not None:
        value = Value(tr("Temperature"), "°C", large=False)
        value.set(str(gpu.temperature_c), tone="warning" if gpu.temperature_c >= _HOT_C else "")
        known.append(value)
    if gpu.power_w is not None:
        limit = tr("W of {power_limit_w:.0f}").format(power_limit_w=gpu.power_limit_w) if gpu.power_limit_w else "W"
        value = Value(tr("Power"), limit, large=False)
        value.set(f"{gpu.power_w:.0f}")
        known.append(value)
    if gpu.clock_mhz is not None:
        best = tr("MHz of {best_clock_mhz}").format(best_clock_mhz=gpu.best_clock_mhz) if gpu.best_clock_mhz else "MHz"
        value = Value(tr("Clock"), best, tr("Cards run slower while they have nothing to do."), large=False)
        value.set(str(gpu.clock_mhz))
        known.append(value)
    return known
