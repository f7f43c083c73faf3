"""Every screenshot scene draws something, in a narrow window without scrolling sideways; none is mostly empty."""

import numpy as np
import pytest
from app.page_scenes import screenshots
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLabel, QLineEdit, QPushButton

from burnish_app.widgets.basic.tables import FittingTable
from burnish_app.widgets.basic.text import ElidedLabel
from burnish_app.window import Window

screenshots.load_scenes()
pytestmark = pytest.mark.gui


SPARSE = [name for name in screenshots.SCENES if name.endswith(("-empty", "-busy", "-wrong", "-first", "-one"))]
FOOT_PX, SIDEBAR_PX, TILE_PX, FAINT = 57, 208, 20, 6


def empty_share(image):
    """Return the share of a page, beside its sidebar and foot, that is more than two tiles away from anything."""
    image = image.convertToFormat(QImage.Format.Format_Grayscale8)
    pixels = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    page = pixels[:-FOOT_PX, SIDEBAR_PX : image.width()]
    rows, columns = page.shape[0] // TILE_PX, page.shape[1] // TILE_PX
    tiles = page[: rows * TILE_PX, : columns * TILE_PX].reshape(rows, TILE_PX, columns, TILE_PX).astype(int)
    drawn = tiles.max(axis=(1, 3)) - tiles.min(axis=(1, 3)) > FAINT
    near = np.pad(drawn, 2)
    windows = np.lib.stride_tricks.sliding_window_view(near, (5, 5))
    return 1 - windows.any(axis=(2, 3)).mean()


def test_what_is_empty_is_measured():
    blank = QImage(1280, 800, QImage.Format.Format_RGB32)
    blank.fill(0xFFF7F5F1)
    assert empty_share(blank) == 1
    for y in range(0, 380, 30):
        for x in range(SIDEBAR_PX, 1280, 30):
            blank.setPixel(x, y, 0xFF000000)
    assert 0.3 < empty_share(blank) < 0.6


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("name", SPARSE)
def test_a_page_with_little_to_show_is_not_more_than_half_empty(name, qtbot, theme, tmp_path, monkeypatch):
    file = tmp_path / "scene.bmp"
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    screenshots.draw(name, (1280, 800), theme, file)
    assert empty_share(QImage(str(file))) < 0.5


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", screenshots.SCENES)
def test_a_scene_is_drawn_and_is_not_blank(name, qtbot, theme, tmp_path, monkeypatch):
    file = tmp_path / "scene.bmp"
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    with qtbot.captureExceptions() as raised:
        too_wide = screenshots.draw(name, screenshots.SIZES[0], theme, file)
    assert not raised
    assert too_wide == 0
    image = QImage(str(file))
    page = image.copy(image.width() // 2, 0, image.width() // 2, image.height())  # the sidebar is never blank
    assert len({page.pixel(x, y) for x in range(0, page.width(), 7) for y in range(0, page.height(), 7)}) > 2


LARGE = (
    "start-names", "hardware-fits", "hardware-pair", "model-adapter", "model-busy", "model-done", "data-names",
    "data-preferences", "recipe-done", "recipe-optimizer", "recipe-rewards", "recipe-there", "train-checking",
    "train-elsewhere_waits",
    "train-finished", "train-pinned", "train-placed", "train-ranks", "train-rewarded", "try_out-done",
    "try_out-three", "try_out-voted",
    "export-ready", "export-failed", "runs-names", "compare-long_names", "sweep-drafted", "sweep-done",
    "duel-planned", "duel-done", "settings-done", "settings-failed", "hardware-live",
)  # fmt: skip
"""Scenes of every page, those with the widest content."""


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("name", LARGE)
def test_the_largest_text_fits_into_the_narrowest_window(name, qtbot, theme, tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    before = theme.text_percent
    theme.set_text_percent(150)
    cut = []
    try:
        with monkeypatch.context() as patched:
            patched.setattr(Window, "grab", watched(Window.grab, cut))
            assert screenshots.draw(name, screenshots.SIZES[0], theme, tmp_path / "scene.bmp") == 0
    finally:
        theme.set_text_percent(before)
    assert cut == []


def watched(grab, cut):
    """`grab`, which also lists what is cut: tables and texts too wide for their room, and controls too high for it."""

    def and_list(window):
        page = window.page(window.shown_key)
        for table in page.findChildren(FittingTable):
            if table.isVisible() and table.horizontalHeader().length() > table.viewport().width():
                cut.append(table.accessibleName())
        for label in page.findChildren(QLabel):
            shortens = isinstance(label, ElidedLabel) or label.wordWrap()
            if label.isVisible() and not shortens and label.width() < label.sizeHint().width() - 1:
                cut.append(label.text())
        for button in page.findChildren(QAbstractButton):
            if button.isVisible() and button.text() and button.width() < button.minimumSizeHint().width():
                cut.append(button.text())
        for kind in (QPushButton, QComboBox, QLineEdit):
            for control in window.findChildren(kind):
                if control.isVisible() and control.height() < control.minimumSizeHint().height() - 1:
                    cut.append(control.accessibleName())
        return grab(window)

    return and_list
