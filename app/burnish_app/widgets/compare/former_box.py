"""The line that chooses one of the former sweeps or duels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from burnish_app.look.tokens import GAP_PX
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import ShorteningBox, body


class Former(NamedTuple):
    """A former sweep or duel: its title, when it was created (seconds since the epoch), and its key."""

    title: str
    created: float
    key: str


class FormerBox(QWidget):
    """Chooses one of the former sweeps or duels.

    Args:
        label: text before the choice.
        name: name for screen readers.
        new: text of the first choice, whose key is empty; empty: there is none.

    Attributes:
        chosen: signal without arguments, emitted when the person chose.
        box: choice.
    """

    chosen = Signal()

    def __init__(self, label: str, name: str, new: str = "") -> None:
        super().__init__()
        self._first = [(new, "")] if new else []
        self.box = ShorteningBox(by_content=True)
        self.box.setAccessibleName(name)
        self.box.setMinimumWidth(260)
        self.box.activated.connect(lambda _place: self.chosen.emit())
        line = fill(QHBoxLayout(self), body(label), self.box, spacing_px=GAP_PX)
        line.addStretch()
        self.offer(())

    @property
    def key(self) -> str:
        """The key of what is chosen; empty: nothing, or the first choice."""
        return self.box.currentData() or ""

    def choose(self, key: str) -> None:
        """Choose by the key; the first choice where there is none such."""
        self.box.choose(key)

    def offer(self, former: Sequence[Former], key: str | None = None) -> None:
        """Offer former ones.

        Args:
            former: former sweeps or duels, in order.
            key: key of the one to choose; None: the choice stays.
        """
        dated = [(f"{one.title}, {datetime.fromtimestamp(one.created):%Y-%m-%d %H:%M}", one.key) for one in former]
        self.box.offer([*self._first, *dated], self.key if key is None else key)
