"""Outlines of cards that are still to come."""

from PySide6.QtGui import QColor

from burnish_app.look.theme import colors_of, font
from burnish_app.widgets.basic.to_come import CardsToCome


def test_the_text_stands_on_a_plate_of_its_own_in_the_middle(qtbot, theme):
    waiting = CardsToCome("It comes when the rows are read")
    qtbot.addWidget(waiting)
    waiting.setFont(font(medium=True))
    waiting.resize(600, 300)
    picture = waiting.grab().toImage().scaled(600, 300)
    surface = QColor(colors_of(waiting).surface)
    half = waiting.fontMetrics().horizontalAdvance("It comes when the rows are read") // 2
    for x in (300 - half - 6, 300 + half + 6):  # beside the text, on its plate
        assert picture.pixelColor(x, 150) == surface
    assert picture.pixelColor(3, 3) != surface


def test_a_long_text_stays_on_its_plate_in_a_narrow_page(qtbot, theme):
    waiting = CardsToCome("It comes when the rows are read, and when it is known what they are made of")
    qtbot.addWidget(waiting)
    waiting.resize(300, 240)
    picture = waiting.grab().toImage().scaled(300, 240)
    surface = QColor(colors_of(waiting).surface)
    assert all(picture.pixelColor(x, 120) != surface for x in (2, 297)), "beside the plate"
    assert picture.pixelColor(2, 120) == picture.pixelColor(2, 200), "no letter there"
