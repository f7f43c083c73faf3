"""The design tokens: what can be read and seen, hues that can be told apart, bundled fonts, the text size."""

from itertools import combinations
from types import SimpleNamespace

import pytest
from app.measures.color_math import contrast, distance
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontInfo, QFontMetricsF, QIcon, QPalette

from burnish_app.look import tokens
from burnish_app.look.chart_style import chart_pen
from burnish_app.look.fonts import chosen_share, font, scaled_width, set_text_share, system_text_share
from burnish_app.look.icons import icon
from burnish_app.look.theme import Theme, colors_of, qt_palette
from burnish_app.look.tokens import DARK, LIGHT, SMALL_PX
from burnish_app.widgets.basic.text import body, title

BOTH = pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])


def grounds(colors):
    return colors.window, colors.surface, colors.sidebar, colors.raised


@BOTH
def test_text_can_be_read(colors):
    """WCAG 2.2, 1.4.3: text has a contrast of 4.5 at least; the faint text of what is disabled is exempt."""
    inks = (colors.text, colors.muted, colors.accent_ink, colors.link, colors.warning, colors.error, colors.success)
    pairs = [(ink, ground) for ink in inks for ground in grounds(colors)]
    kinds = ("error", "warning", "success", "info", "link")
    pairs += [(getattr(colors, kind), getattr(colors, f"{kind}_soft")) for kind in kinds]
    pairs += [(colors.text, getattr(colors, f"{kind}_soft")) for kind in kinds]
    pairs += [(colors.on_accent, colors.accent), (colors.accent_ink, colors.accent_soft)]
    pairs += [(colors.text, token) for token in colors.tokens]
    for ink, ground in pairs:
        assert contrast(ink, ground) >= 4.5, (ink, ground, contrast(ink, ground))


@BOTH
@pytest.mark.parametrize(
    ("ink", "ground"),
    [
        ("WindowText", "Window"), ("Text", "Base"), ("ButtonText", "Button"), ("ToolTipText", "ToolTipBase"),
        ("HighlightedText", "Highlight"), ("Link", "Window"), ("LinkVisited", "Base"), ("PlaceholderText", "Base"),
    ],
)  # fmt: skip
def test_what_qt_paints_by_itself_can_be_read(colors, ink, ground):
    roles = qt_palette(colors)
    inks, grounds = (roles.color(QPalette.ColorRole[role]).name() for role in (ink, ground))
    assert contrast(inks, grounds) >= 4.5


@BOTH
def test_what_is_disabled_looks_fainter(colors):
    roles = qt_palette(colors)
    for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
        faint = roles.color(QPalette.ColorGroup.Disabled, role).name()
        assert contrast(faint, colors.surface) < contrast(roles.color(role).name(), colors.surface)


@BOTH
def test_what_is_not_text_can_be_seen(colors):
    """WCAG 2.2, 1.4.11: rings of the focus, borders of fields, handles and lines of charts have 3 at least."""
    for mark in (colors.focus, colors.edge, colors.faint):
        for ground in grounds(colors):
            assert contrast(mark, ground) >= 3.0, (mark, ground, contrast(mark, ground))
    assert contrast(colors.text, colors.accent) >= 3.0 or colors.dark  # the ring of a primary button
    for series in colors.series:
        assert contrast(series.color, colors.surface) >= 3.0, series
    assert len({series.dash for series in colors.series}) == len(colors.series)


@BOTH
def test_accent_link_and_states_have_hues_of_their_own(colors):
    marks = (colors.accent_ink, colors.link, colors.warning, colors.error, colors.success)
    for one, other in combinations(marks, 2):
        assert distance(one, other) >= 0.08, (one, other, distance(one, other))


def test_the_bundled_fonts_are_used_and_their_licenses_are_there(theme, assets):
    assert QFontInfo(font()).family() == "Inter"
    assert QFontInfo(font(bold=True)).family() == "Inter"
    assert QFontInfo(font(mono=True)).family() == "JetBrains Mono"
    for folder in (assets / "fonts").iterdir():
        if folder.is_dir():
            assert "SIL Open Font License, Version 1.1" in (folder / "OFL.txt").read_text(encoding="utf-8")


def test_figures_have_digits_of_equal_width(theme):
    metrics = QFontMetricsF(font(tokens.FIGURE_PX, bold=True))
    widths = [metrics.horizontalAdvance(digit * 8) for digit in "0123456789"]
    assert max(widths) - min(widths) < 1.0  # hinting moves eight digits by a fraction of a pixel


def test_nothing_is_set_smaller_than_the_smallest_size():
    assert min(tokens.SMALL_PX, tokens.BODY_PX, tokens.FIGURE_PX, tokens.TITLE_PX) == SMALL_PX == 12


def test_the_text_size_reaches_widgets_that_are_there_already(qtbot, theme):
    words, head = body("Words"), title("A page")
    for widget in (words, head):
        qtbot.addWidget(widget)
    before = words.font().pixelSize(), head.font().pixelSize()
    try:
        theme.set_text_percent(150)
        assert (words.font().pixelSize(), head.font().pixelSize()) == (21, 42)
        assert font().pixelSize() == 21
        theme.set_text_percent(90)
        assert words.font().pixelSize() < before[0]
        assert head.font().weight() == title("").font().weight()
    finally:
        theme.set_text_percent(100)
    assert (words.font().pixelSize(), head.font().pixelSize()) == before


def test_the_systems_text_size_is_respected(qapp, monkeypatch):
    set_text_share(1.0)
    try:
        monkeypatch.setattr("burnish_app.look.theme.system_text_share", lambda: 1.5)
        Theme(qapp)
        assert font().pixelSize() == 21
    finally:
        monkeypatch.undo()
        Theme(qapp)
    assert font().pixelSize() == 14


@pytest.mark.parametrize(("percent", "share"), [(10, 0.9), (90, 0.9), (125, 1.25), (150, 1.5), (400, 1.5)])
def test_a_chosen_text_size_stays_within_what_the_window_has_room_for(percent, share):
    assert chosen_share(percent) == share


def test_the_system_s_text_counts_as_larger_only_beyond_what_desktops_usually_have(qapp):
    usual, shares = qapp.font(), []
    try:
        for points in (9.0, 10.5, 12.0, 18.0, 96.0):
            larger = font()
            larger.setPointSizeF(points)
            qapp.setFont(larger)
            shares.append(system_text_share())
    finally:
        qapp.setFont(usual)
    assert shares[0] == shares[1] == shares[2]
    assert shares[3] == pytest.approx(1.5 * shares[0])
    assert shares[4] == 2.0, "the window would have no room for more"


def test_least_widths_grow_with_the_text_up_to_the_narrowest_page():
    set_text_share(1.5)
    try:
        assert [scaled_width(width) for width in (100, 400, 500)] == [150, 456, 500]
    finally:
        set_text_share(1.0)


@pytest.mark.parametrize(("scheme", "colors"), [("Dark", DARK), ("Light", LIGHT), ("Unknown", LIGHT)])
def test_the_system_s_theme_is_followed_unless_another_was_chosen(qtbot, qapp, theme, monkeypatch, scheme, colors):
    words, mode = body("Words"), theme.mode
    qtbot.addWidget(words)
    hints = SimpleNamespace(colorScheme=lambda: Qt.ColorScheme[scheme])
    monkeypatch.setattr(qapp, "styleHints", lambda: hints, raising=False)
    try:
        theme.set_mode("system")
        assert colors_of(words) == colors
        theme.set_mode("light" if colors.dark else "dark")
        assert colors_of(words) != colors
    finally:
        theme.set_mode(mode)


def test_an_icon_has_its_color_and_another_one_while_it_is_disabled(qapp):
    made = icon("play", "#ff0000", 16, disabled="#0000ff", pixel_ratio=1.0)
    for mode, color in ((QIcon.Mode.Normal, "#ff0000"), (QIcon.Mode.Disabled, "#0000ff")):
        image = made.pixmap(16, mode).toImage()
        pixels = [image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height())]
        assert {pixel.name() for pixel in pixels if pixel.alpha() == 255} == {color}


def test_dashes_of_charts_are_longer_than_their_dots():
    dash, dot, both = (chart_pen("#112233", 2.0, dash=kind) for kind in ("dash", "dot", "dash_dot"))
    assert dash.dashPattern()[0] > dot.dashPattern()[0]
    assert len(both.dashPattern()) == 4
    plain = chart_pen("#112233", 2.0, alpha=51)
    assert (plain.style(), plain.widthF(), plain.color().alpha()) == (Qt.PenStyle.SolidLine, 2.0, 51)
    assert plain.isCosmetic()


def test_weights_of_the_text_differ():
    weights = [font(bold=True).weight(), font(medium=True).weight(), font().weight()]
    assert weights == sorted(set(weights), reverse=True)


def test_another_theme_and_another_text_size_are_told(theme):
    heard = []
    theme.changed.connect(lambda: heard.append(theme.mode))
    before, size = theme.mode, theme.text_percent
    theme.set_mode("dark" if before == "light" else "light")
    theme.set_text_percent(size + 10)
    assert len(heard) == 2
    theme.set_mode(before)
    theme.set_text_percent(size)
