"""A choice as a card."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QButtonGroup, QVBoxLayout, QWidget

from burnish_app.widgets.basic.choice_card import ChoiceCard


@pytest.fixture
def cards(qtbot, theme):
    made = ChoiceCard("one", "The first."), ChoiceCard("a choice whose name is long " * 3, "The second.")
    window, group = QWidget(), QButtonGroup()
    column = QVBoxLayout(window)
    for card in made:
        column.addWidget(card)
        group.addButton(card.button)
    qtbot.addWidget(window)
    window.show()
    yield made
    group.deleteLater()


def test_a_press_beside_the_button_chooses_once(cards):
    clicks = []
    cards[0].button.clicked.connect(lambda: clicks.append(True))
    below = QPoint(5, cards[0].height() - 3)
    QTest.mousePress(cards[0], Qt.MouseButton.LeftButton, pos=below)
    QTest.mousePress(cards[0], Qt.MouseButton.LeftButton, pos=below)
    assert (cards[0].button.isChecked(), clicks) == (True, [True])


def test_a_long_name_wraps_and_does_not_widen_the_card(cards):
    card = cards[1]
    assert card.minimumSizeHint().width() == cards[0].minimumSizeHint().width()
    assert card.heightForWidth(240) > card.heightForWidth(card.button.sizeHint().width() + 60)
