"""Which files to make: a check box a type, with its size and a plain word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QGridLayout, QLabel, QWidget

from burnish_app.fidelity_words import TYPE_WORDS
from burnish_app.theme import BODY_PX, UNIT, font
from burnish_app.widgets.buttons import quiet
from burnish_app.widgets.text import body, set_look
from burnish_engine.contract.recipe_export import GgufType
from burnish_engine.contract.units import file_size

TYPES: tuple[GgufType, ...] = get_args(GgufType)
_USUAL: tuple[GgufType, ...] = ("Q8_0", "Q6_K", "Q4_K_M", "Q4_0", "IQ4_NL")
_ORDER = (*_USUAL, *(quant for quant in TYPES if quant not in _USUAL))


class TypeChoices(QWidget):
    """The usual types, the recommended one marked; all others behind a fold."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.boxes: dict[GgufType, QCheckBox] = {}
        self._sizes: dict[GgufType, QLabel] = {}
        self._words: dict[GgufType, QLabel] = {}
        self._known: dict[GgufType, int] = {}
        self._exact: dict[GgufType, int] = {}
        self._recommended: GgufType | None = None
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(3 * UNIT)
        self._grid.setVerticalSpacing(UNIT - 2)
        self._grid.setColumnStretch(2, 1)
        for quant in _USUAL:
            self._add_line(quant)
        self._more = quiet("", lambda: self._show_others(show=not self._others_shown))
        self._grid.addWidget(self._more, len(_ORDER), 0, 1, 3, Qt.AlignmentFlag.AlignLeft)
        self._others_shown = False
        self._show_others(show=False)

    def _add_line(self, quant: GgufType) -> None:
        box = QCheckBox(quant)
        box.setFont(font(BODY_PX, bold=True))
        box.setAccessibleDescription(TYPE_WORDS[quant])
        box.toggled.connect(self.changed)
        self.boxes[quant], self._sizes[quant], self._words[quant] = box, body("", "muted"), body("", "muted")
        self._sizes[quant].setWordWrap(False)
        for column, widget in enumerate((box, self._sizes[quant], self._words[quant])):
            self._grid.addWidget(widget, _ORDER.index(quant), column)
        self._fill_line(quant)

    def chosen(self) -> list[GgufType]:
        """The types that are checked, in the order shown."""
        return [quant for quant in _ORDER if quant in self.boxes and self.boxes[quant].isChecked()]

    def choose(self, quants: list[GgufType]) -> None:
        """Check these and no others."""
        if any(quant not in _USUAL for quant in quants):
            self._show_others(show=True)
        for quant, box in self.boxes.items():
            box.setChecked(quant in quants)

    def show_exact_sizes(self, file_bytes: Mapping[GgufType, int]) -> None:
        """Show sizes that are known to the byte."""
        self._exact |= file_bytes
        self._fill()

    def show_sizes(self, file_bytes: Mapping[GgufType, int], recommended: GgufType | None) -> None:
        """Show predicted sizes and mark the recommended type. Sizes known to the byte stay: they may come before these.

        Args:
            file_bytes: Predicted size of each file; what is missing is not known.
            recommended: For the target; None marks none.
        """
        self._known, self._recommended = dict(file_bytes), recommended
        self._fill()

    def forget_sizes(self) -> None:
        """Show no sizes and no recommendation: they were of another run."""
        self._known, self._exact, self._recommended = {}, {}, None
        self._fill()

    def _fill(self) -> None:
        for quant in self.boxes:
            self._fill_line(quant)

    def _fill_line(self, quant: GgufType) -> None:
        exact = self._exact.get(quant)
        size = exact or self._known.get(quant)
        self._sizes[quant].setText(file_size(size) if size else "–")
        self._sizes[quant].setToolTip(f"{exact:,} bytes" if exact else "")
        best = quant == self._recommended
        self._words[quant].setText(f"{TYPE_WORDS[quant]}{'  ·  recommended for your target' if best else ''}")
        set_look(self._words[quant], "accent" if best else "muted")

    def _show_others(self, *, show: bool) -> None:
        """The others are made when they are first wanted: they are more than the usual ones."""
        for quant in _ORDER[len(_USUAL) :]:
            if show and quant not in self.boxes:
                self._add_line(quant)
            if quant in self.boxes:
                for widget in (self.boxes[quant], self._sizes[quant], self._words[quant]):
                    widget.setVisible(show)
        self._others_shown = show
        self._more.setText("▾  Fewer types" if show else "▸  More types")
        self._more.setAccessibleName("Fewer types" if show else "More types")
