"""The choice of GGUF types: a check box for each type, with its size and a plain description."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QGridLayout, QLabel, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import BODY_PX, UNIT, font
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.text import body, set_tone
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES, GgufType
from burnish_engine.contract.units import file_size

_USUAL = tuple(quant for quant, facts in GGUF_TYPES.items() if facts.in_form)
_ORDER = (*_USUAL, *(quant for quant in GGUF_TYPES if quant not in _USUAL))


class TypeChoices(QWidget):
    """Offers the common GGUF types, with the recommended one marked, and all others behind a button.

    Attributes:
        changed: signal without arguments, emitted when a type is checked or unchecked.
        boxes: check box of each type that was made so far.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.boxes: dict[GgufType, QCheckBox] = {}
        self.sizes: dict[GgufType, QLabel] = {}
        self.descriptions: dict[GgufType, QLabel] = {}
        self._known: dict[GgufType, int] = {}
        self._exact: dict[GgufType, int] = {}
        self.recommended: GgufType | None = None
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
        box.setAccessibleDescription(tr(GGUF_TYPES[quant].text))
        box.toggled.connect(self.changed)
        self.boxes[quant], self.sizes[quant], self.descriptions[quant] = box, body("", "muted"), body("", "muted")
        self.sizes[quant].setWordWrap(False)
        for column, widget in enumerate((box, self.sizes[quant], self.descriptions[quant])):
            self._grid.addWidget(widget, _ORDER.index(quant), column)
        self._fill_line(quant)

    def chosen(self) -> list[GgufType]:
        """Return the checked types, in the order shown."""
        return [quant for quant in _ORDER if quant in self.boxes and self.boxes[quant].isChecked()]

    def choose(self, quants: list[GgufType]) -> None:
        """Check these types and no others."""
        if any(quant not in _USUAL for quant in quants):
            self._show_others(show=True)
        for quant, box in self.boxes.items():
            box.setChecked(quant in quants)

    def toggle(self, quant: GgufType) -> None:
        """Check a type, or uncheck it."""
        chosen = set(self.chosen()) ^ {quant}
        self.choose([one for one in _ORDER if one in chosen])

    def show_exact_sizes(self, file_bytes: Mapping[GgufType, int]) -> None:
        """Show file sizes that are known to the byte."""
        self._exact |= file_bytes
        self._fill()

    def show_sizes(self, file_bytes: Mapping[GgufType, int], recommended: GgufType | None) -> None:
        """Show predicted sizes and mark the recommended type. Sizes known to the byte stay: they may arrive earlier.

        Args:
            file_bytes: predicted size of each file, bytes; a missing type is unknown.
            recommended: type recommended for the target; None marks none.
        """
        self._known, self.recommended = dict(file_bytes), recommended
        self._fill()

    def forget_sizes(self) -> None:
        """Forget sizes and recommendation, because they were of another run."""
        self._known, self._exact, self.recommended = {}, {}, None
        self._fill()

    def _fill(self) -> None:
        for quant in self.boxes:
            self._fill_line(quant)

    def _fill_line(self, quant: GgufType) -> None:
        exact = self._exact.get(quant)
        size = exact or self._known.get(quant)
        self.sizes[quant].setText(f"{'' if exact else '~ '}{file_size(size)}" if size else "–")
        self.sizes[quant].setToolTip(tr("{exact:,} bytes").format(exact=exact) if exact else "")
        best = quant == self.recommended
        recommended = tr("  ·  recommended for your target") if best else ""
        self.descriptions[quant].setText(f"{tr(GGUF_TYPES[quant].text)}{recommended}")
        set_tone(self.descriptions[quant], "accent" if best else "muted")

    def _show_others(self, *, show: bool) -> None:
        """Show or hide the less common types. Their rows are made when they are first shown, because there are many."""
        for quant in _ORDER[len(_USUAL) :]:
            if show and quant not in self.boxes:
                self._add_line(quant)
            if quant in self.boxes:
                for widget in (self.boxes[quant], self.sizes[quant], self.descriptions[quant]):
                    widget.setVisible(show)
        self._others_shown = show
        self._more.setText(tr("▾  Fewer types") if show else tr("▸  More types"))
        self._more.setAccessibleName(tr("Fewer types") if show else tr("More types"))
