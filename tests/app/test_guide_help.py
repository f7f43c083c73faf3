"""F1, "?" and the button of a page open the guide at the place that fits."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QPushButton, QWidget

from burnish_app.guide_help import place_of
from burnish_app.state.guide_pages import FIRST, PLACE_PROPERTY, PLACES


def test_the_nearest_widget_with_a_place_says_which(qtbot):
    outer = QWidget()
    qtbot.addWidget(outer)
    middle = QWidget(outer)
    inner = QLineEdit(middle)
    assert place_of(inner, "recipe") == PLACES["recipe"]
    outer.setProperty(PLACE_PROPERTY, "data.md")
    middle.setProperty(PLACE_PROPERTY, "recipe-reference.md#train")
    assert place_of(inner, "recipe") == "recipe-reference.md#train"
    assert place_of(outer, "recipe") == "data.md"
    assert place_of(None, "no such page") == FIRST


def test_keys_and_button_open_the_guide_of_the_shown_page(qtbot, window):
    window.go_to("export")
    assert window.help.guide is None
    window.setFocus()
    QTest.keyClick(window, Qt.Key.Key_F1)
    guide = window.help.guide
    assert guide.isVisible()
    assert guide.place == PLACES["export"]
    guide.close()
    QTest.keyClick(window, Qt.Key.Key_Question)
    assert guide.isVisible()
    guide.close()
    window.go_to("settings")
    button = next(one for one in window.page("settings").findChildren(QPushButton) if one.text() == "?")
    button.click()
    assert window.help.guide is guide
    assert guide.isVisible()
    assert guide.place == PLACES["settings"]
    guide.close()


@pytest.mark.full
def test_a_question_mark_in_a_field_is_only_typed(qtbot, window):
    window.go_to("model")
    field = window.page("model").models.search
    field.setFocus()
    QTest.keyClicks(field, "why?")
    assert field.text() == "why?"
    assert window.help.guide is None
