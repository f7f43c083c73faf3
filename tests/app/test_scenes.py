"""Every screenshot scene draws something, in a narrow window without scrolling sideways."""

import pytest
from app import screenshots
from PySide6.QtGui import QImage

screenshots.load_scenes()
pytestmark = pytest.mark.gui


@pytest.mark.parametrize("name", screenshots.SCENES)
def test_a_scene_is_drawn_and_is_not_blank(name, qtbot, theme, tmp_path, monkeypatch):
    file = tmp_path / "scene.png"
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    with qtbot.captureExceptions() as raised:
        too_wide = screenshots.draw(name, screenshots.SIZES[0], theme, file)
    assert not raised
    assert too_wide == 0
    image = QImage(str(file))
    page = image.copy(image.width() // 2, 0, image.width() // 2, image.height())  # the sidebar is never blank
    assert len({page.pixel(x, y) for x in range(0, page.width(), 7) for y in range(0, page.height(), 7)}) > 2
