"""Check boxes and radio buttons wrap their text: nothing is cut, all of it can be pressed, one line stays as it was."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.widgets.basic.tick_boxes import WrappingCheckBox, WrappingRadioButton

pytestmark = pytest.mark.gui

TEXT = "Prefer the reply that is likelier for each of its tokens"


@pytest.fixture(params=[WrappingCheckBox, WrappingRadioButton])
def button(request, qtbot, theme):
    """A button in a window of half of its width."""
    window = QWidget()
    made = request.param(TEXT)
    QVBoxLayout(window).addWidget(made)
    qtbot.addWidget(window)
    window.resize(made.sizeHint().width() // 2, 400)
    with qtbot.waitExposed(window):
        window.show()
    yield made
    window.close()


def inked_rows(widget):
    """Rows of pixels on which anything is drawn."""
    image = widget.grab().toImage()
    ground = image.pixel(image.width() - 1, image.height() - 1)
    return {y for y in range(image.height()) if any(image.pixel(x, y) != ground for x in range(24, image.width()))}


def test_narrow_text_takes_more_lines_and_all_of_it_is_drawn(button):
    one_line = button.sizeHint().height()
    assert button.width() < button.sizeHint().width()
    assert button.height() > one_line
    assert max(inked_rows(button)) > one_line


def test_its_least_width_is_that_of_a_word(button):
    assert button.minimumSizeHint().width() < button.sizeHint().width() / 2
    assert button.heightForWidth(button.sizeHint().width()) == button.sizeHint().height()


def test_a_press_on_the_second_line_ticks_it(button):
    QTest.mouseClick(button, Qt.MouseButton.LeftButton, pos=QPoint(button.width() // 2, button.height() - 4))
    assert button.isChecked()
