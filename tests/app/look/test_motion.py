"""Motion: parts unfold by their height, and stand still where motion is reduced."""

import pytest
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from burnish_app.look.motion import fade_in, glide, is_reduced, set_motion, system_reduces_motion, unfold
from burnish_app.look.tokens import MOTION_MS
from burnish_app.widgets.basic.text import Value, body

pytestmark = pytest.mark.gui


@pytest.fixture
def part(qtbot, theme):
    holder = QWidget()
    column = QVBoxLayout(holder)
    made = body("A part of the page that unfolds")
    column.addWidget(made)
    made.hide()
    qtbot.addWidget(holder)
    holder.resize(400, 300)
    holder.show()
    yield made
    set_motion("system")


def test_a_part_unfolds_and_folds_again(qtbot, part):
    set_motion("full")
    unfold(part, show=True)
    assert part.isVisible()
    assert part.maximumHeight() < 10
    qtbot.waitUntil(lambda: part.maximumHeight() > 1000)
    unfold(part, show=False)
    unfold(part, show=True)  # in the midst of it
    qtbot.waitUntil(lambda: part.maximumHeight() > 1000)
    assert part.isVisible()
    unfold(part, show=False)
    qtbot.waitUntil(part.isHidden)


def test_nothing_moves_where_motion_is_reduced(part):
    set_motion("reduced")
    unfold(part, show=True)
    assert part.isVisible()
    assert part.maximumHeight() > 1000
    assert is_reduced()


def test_a_number_glides_to_its_new_value_and_ends_there(qtbot, part):
    part.show()
    for mode, least in (("full", 2), ("reduced", 1)):
        set_motion(mode)
        seen = []
        glide(part, 1.0, 3.0, seen.append)
        qtbot.waitUntil(lambda seen=seen: seen[-1:] == [3.0])
        assert len(seen) >= least
        assert seen == sorted(seen)
        assert mode == "full" or seen == [3.0]


def test_a_figure_is_its_new_value_at_once_whatever_it_shows_on_the_way(qtbot, part):
    set_motion("full")
    value = Value("Loss")
    part.parentWidget().layout().addWidget(value)
    value.show()
    value.set("2.000")
    value.set("1.000")
    assert value.text == "1.000"
    assert value.accessibleDescription() == "1.000"
    shown = value.findChildren(QLabel)[1]
    qtbot.waitUntil(lambda: shown.text() == "1.000")


@pytest.mark.parametrize("then", [("–", None), ("1.2", "GB"), ("4.50", None)], ids=["none", "unit", "another"])
def test_a_figure_that_changes_while_it_runs_ends_on_its_newest_value(qtbot, part, then):
    set_motion("full")
    value = Value("Size", "MB")
    part.parentWidget().layout().addWidget(value)
    value.show()
    value.set("900")
    value.set("950")
    value.set(*then)
    shown = value.findChildren(QLabel)[1]
    if then[1]:
        assert shown.text() == "1.2", "a number of another unit is none to run from"
    qtbot.wait(2 * MOTION_MS)
    assert shown.text() == value.text == then[0]


def test_a_cover_that_fades_goes_and_is_none_where_motion_is_reduced(qtbot, part):
    holder = part.parentWidget()
    set_motion("reduced")
    before = len(holder.children())
    fade_in(holder)
    assert len(holder.children()) == before
    set_motion("full")
    fade_in(holder)
    assert len(holder.children()) == before + 1
    qtbot.waitUntil(lambda: len(holder.children()) == before)


@pytest.mark.skipif("sys.platform == 'win32'")
@pytest.mark.parametrize(
    ("file", "text", "less"),
    [
        ("kdeglobals", "[KDE]\nAnimationDurationFactor=0.0\n", True),
        ("kdeglobals", "[KDE]\nAnimationDurationFactor=0.5\n", False),
        ("gtk-3.0/settings.ini", "[Settings]\ngtk-enable-animations=0\n", True),
        ("gtk-3.0/settings.ini", "[Settings]\ngtk-enable-animations = False\n", True),
        ("gtk-3.0/settings.ini", "[Settings]\ngtk-enable-animations=1\n", False),
        ("gtk-3.0/settings.ini", "[Settings\n", False),
    ],
)
def test_each_desktop_s_own_file_counts(tmp_path, monkeypatch, file, text, less):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert system_reduces_motion() == less


@pytest.mark.skipif("sys.platform == 'win32'")
def test_the_desktops_setting_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert not system_reduces_motion()
    (tmp_path / "kdeglobals").write_text("[KDE]\nAnimationDurationFactor=0\n")
    assert system_reduces_motion()
    set_motion("system")
    assert is_reduced()
    (tmp_path / "kdeglobals").write_text("[KDE]\nAnimationDurationFactor=1\n")
    set_motion("system")
    assert not is_reduced()
