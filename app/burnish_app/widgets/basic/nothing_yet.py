"""The content of a page that has none yet: what is missing, and a pale sample of what will be there."""

from __future__ import annotations

from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from burnish_app.look.tokens import GAP_PX
from burnish_app.widgets.basic.card import Card, EmptyState


class NothingYet(QWidget):
    """Shows an empty state in a card, and a sample below it that takes the rest of a page that fills its height.

    Args:
        empty: empty state with the way on.
        sample: pale sample of the later content.
    """

    def __init__(self, empty: EmptyState, sample: QWidget) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        card = Card()
        card.body.addWidget(empty)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GAP_PX)
        column.addWidget(card)
        column.addWidget(sample, 1)
