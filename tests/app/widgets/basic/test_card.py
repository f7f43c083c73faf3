"""Heading, hint and corner of a card."""

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QLabel

from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.card import Card

HINT = "Suggested for this machine, your data and the target."


def tops(qtbot, width_px):
    """Upper edges of heading, hint and action of a card."""
    card = Card("Settings", HINT, icon_name="recipe")
    qtbot.addWidget(card)
    action = secondary("Take all suggestions")
    card.corner.addWidget(action)
    card.resize(width_px, 240)
    card.show()
    labels = {label.text(): label for label in card.findChildren(QLabel)}
    return [widget.mapTo(card, QPoint(0, 0)).y() for widget in (labels["Settings"], labels[HINT], action)]


@pytest.mark.gui
def test_the_hint_stays_with_its_heading_in_a_narrow_card(qtbot):
    heading, hint, action = tops(qtbot, 260)
    assert heading < hint < action


@pytest.mark.gui
def test_with_room_the_action_stands_beside_them(qtbot):
    heading, hint, action = tops(qtbot, 700)
    assert heading <= action < hint + 20
