"""The progress bar: what it fills."""

import pytest
from PySide6.QtGui import QColor, QImage

from burnish_app.look.motion import set_motion
from burnish_app.look.theme import colors_of
from burnish_app.widgets.page.banner import ProgressBar

pytestmark = pytest.mark.gui


@pytest.fixture
def bar(qtbot, theme):
    made = ProgressBar()
    qtbot.addWidget(made)
    made.resize(300, made.sizeHint().height())
    made.show()
    yield made
    set_motion("system")


def filled(bar):
    """Return whether each pixel along the bar is filled."""
    image, ink = bar.grab().toImage().convertToFormat(QImage.Format.Format_RGB32), QColor(colors_of(bar).accent)
    return [QColor(image.pixel(x, image.height() // 2)) == ink for x in range(image.width())]


def test_a_share_is_filled_from_the_left(bar):
    bar.set_share(0.5)
    shown = filled(bar)
    assert all(shown[10:140])
    assert not any(shown[160:])


def test_an_unknown_share_without_motion_is_not_read_as_a_share(bar):
    set_motion("reduced")
    bar.set_share(None)
    shown = filled(bar)
    thirds = [shown[at : at + 100] for at in (0, 100, 200)]
    assert all(any(third) and not all(third) for third in thirds)
