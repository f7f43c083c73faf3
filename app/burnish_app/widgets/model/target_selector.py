"""The selector of the target device: the kind of device that the finished model shall run on, and its memory."""

from __future__ import annotations

from typing import get_args

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from burnish_app.look.language import tr
from burnish_app.widgets.basic.text import ShorteningBox, body
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_engine.contract.recipe.recipe_export import TargetSection

_KINDS = ("phone", "laptop", "desktop", "server")
_USUAL_GIB = {"phone": 6.0, "laptop": 16.0, "desktop": 32.0, "server": 64.0}
_SIZES_GIB = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 512.0)


class TargetSelector(QWidget):
    """Two combo boxes that read as a sentence: "to run on a [phone] with [6 GiB]".

    Attributes:
        chosen: signal with the new `TargetSection`.
    """

    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        assert set(_KINDS) == set(get_args(TargetSection.model_fields["kind"].annotation))
        self._target = TargetSection()
        self.kind = ShorteningBox(by_content=True)
        self.kind.addItems(list(_KINDS))
        self.kind.setAccessibleName(tr("Kind of device the result will run on"))
        self.memory = ShorteningBox(by_content=True)
        self.memory.setAccessibleName(tr("Memory of that device"))
        line = FlowLayout()
        self.setLayout(line)
        for widget in (_word(tr("to run on a")), self.kind, _word("with"), self.memory):
            line.addWidget(widget)
        self.show_target(self._target)
        self.kind.activated.connect(self._kind_chosen)
        self.memory.activated.connect(self._memory_chosen)

    def show_target(self, target: TargetSection) -> None:
        """Show a target without emitting `chosen`."""
        self._target = target
        self.kind.setCurrentText(target.kind)
        sizes = sorted({*_SIZES_GIB, target.ram_gib})
        self.memory.clear()
        for size in sizes:
            self.memory.addItem(f"{size:g} GiB", size)
        self.memory.setCurrentIndex(sizes.index(target.ram_gib))

    def _kind_chosen(self) -> None:
        kind = self.kind.currentText()
        if kind != self._target.kind:
            self._notify(self._target.model_copy(update={"kind": kind, "ram_gib": _USUAL_GIB[kind]}))

    def _memory_chosen(self) -> None:
        self._notify(self._target.model_copy(update={"ram_gib": float(self.memory.currentData())}))

    def _notify(self, target: TargetSection) -> None:
        if target != self._target:
            self.show_target(target)
            self.chosen.emit(target)


def _word(text: str) -> QWidget:
    label = body(text, "muted")
    label.setWordWrap(False)
    return label
