"""Which files to make: a check box a type, with its size and a plain word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QGridLayout, QWidget

from burnish_app.fidelity_words import TYPE_WORDS
from burnish_app.theme import BODY_PX, UNIT, font
from burnish_app.widgets.buttons import quiet
from burnish_app.widgets.text import body, set_look
from burnish_app.words import bytes_in_words
from burnish_engine.contract.recipe import GgufType

TYPES: tuple[GgufType, ...] = get_args(GgufType)
_USUAL: tuple[GgufType, ...] = ("Q8_0", "Q6_K", "Q4_K_M", "Q4_0", "IQ4_NL")
_ORDER = (*_USUAL, *(quant for quant in TYPES if quant not in _USUAL))


class TypeChoices(QWidget):
    """The usual types, the recommended one marked; all others behind a fold."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.boxes: dict[GgufType, QCheckBox] = {}
        self._sizes = {quant: body("", "muted") for quant in TYPES}
        self._words = {quant: body(TYPE_WORDS[quant], "muted") for quant in TYPES}
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(3 * UNIT)
        grid.setVerticalSpacing(UNIT - 2)
        grid.setColumnStretch(2, 1)
        self._others: list[QWidget] = []
        for line, quant in enumerate(_ORDER):
            box = QCheckBox(quant)
            box.setFont(font(BODY_PX, bold=True))
            box.setAccessibleDescription(TYPE_WORDS[quant])
            box.toggled.connect(self.changed)
            self._sizes[quant].setWordWrap(False)
            self.boxes[quant] = box
            grid.addWidget(box, line, 0)
            grid.addWidget(self._sizes[quant], line, 1)
            grid.addWidget(self._words[quant], line, 2)
            if quant not in _USUAL:
                self._others += [box, self._sizes[quant], self._words[quant]]
        self._more = quiet("", lambda: self._show_others(show=self._others[0].isHidden()))
        grid.addWidget(self._more, len(_ORDER), 0, 1, 3, Qt.AlignmentFlag.AlignLeft)
        self._show_others(show=False)

    def chosen(self) -> list[GgufType]:
        """The types that are checked, in the order shown."""
        return [quant for quant in _ORDER if self.boxes[quant].isChecked()]

    def choose(self, quants: list[GgufType]) -> None:
        """Check these and no others."""
        for quant, box in self.boxes.items():
            box.setChecked(quant in quants)
        if any(quant not in _USUAL for quant in quants):
            self._show_others(show=True)

    def _show_others(self, *, show: bool) -> None:
        for widget in self._others:
            widget.setVisible(show)
        self._more.setText("▾  Fewer types" if show else "▸  More types")

    def show_sizes(self, file_bytes: Mapping[GgufType, int], recommended: GgufType | None) -> None:
        """Show predicted sizes and mark the recommended type.

        Args:
            file_bytes: Predicted size of each file; what is missing is not known.
            recommended: For the target; None marks none.
        """
        for quant in TYPES:
            size = file_bytes.get(quant)
            self._sizes[quant].setText(bytes_in_words(size) if size else "–")
            self._words[quant].setText(
                f"{TYPE_WORDS[quant]}{'  ·  recommended for your target' if quant == recommended else ''}"
            )
            set_look(self._words[quant], "accent" if quant == recommended else "muted")
