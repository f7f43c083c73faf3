"""No page has more words than its limit, and the recipe no more controls in view than a person takes in."""

import pytest
from app.page_scenes import screenshots
from app.page_scenes.word_count import COUNTED, count, count_scene, words
from PySide6.QtWidgets import QComboBox, QLabel, QPushButton, QVBoxLayout, QWidget

screenshots.load_scenes()
pytestmark = pytest.mark.gui

SIZE = (1280, 800)
MOST_WORDS = 350
FEWER_WORDS = {"recipe-suggested": 200, "export-done": 120}
MOST_CONTROLS_IN_VIEW = {"recipe-suggested": 15}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "name", ["recipe-suggested", "data-done", *sorted({*COUNTED} - {"recipe-suggested", "data-done"})]
)
def test_a_page_has_few_words(name, theme, tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    found = count_scene(name, SIZE, theme)
    assert found.words > 20
    assert found.words <= FEWER_WORDS.get(name, MOST_WORDS)
    assert found.controls_in_view <= MOST_CONTROLS_IN_VIEW.get(name, 100)


def test_words_are_counted_where_they_are_seen(qtbot, theme):
    page = QWidget()
    qtbot.addWidget(page)
    column = QVBoxLayout(page)
    hidden, box = QLabel("not seen"), QComboBox()
    box.addItems(["two words", "not chosen"])
    for widget in (QLabel("three words\nhere"), hidden, QPushButton("Press"), box):
        column.addWidget(widget)
    page.show()
    hidden.hide()
    found = count(page)
    assert (found.words, found.controls) == (6, 2)
    assert words("1,204 of  9") == 3
