"""The guide's window: places, links, the way back, and search."""

import pytest
from PySide6.QtCore import QPoint, QUrl

from burnish_app.look.theme import colors_of
from burnish_app.state.guide_pages import GuidePage
from burnish_app.widgets.guide.guide_window import GuideWindow, page_html

LONG = "\n\n".join(f"Line {n}." for n in range(200))
PAGES = [
    GuidePage("README.md", "# Guide\n\n[one](one.md#far-down) [out](https://example.org)\n"),
    GuidePage(
        "one.md", f"# One\n\n{LONG}\n\n## Far down\n\nHere is gold.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n{LONG}\n"
    ),
]


@pytest.fixture
def guide(qtbot):
    made = GuideWindow(pages=PAGES)
    qtbot.addWidget(made)
    made.show()
    return made


def rows(guide):
    return [guide.places.item(row).text() for row in range(guide.places.count())]


def scrolled(guide):
    return guide.page.verticalScrollBar().value()


@pytest.mark.full
def test_a_place_is_shown_with_its_section_at_the_top(guide):
    guide.show_place("one.md#far-down")
    assert "gold" in guide.page.toPlainText()
    assert scrolled(guide) > 0
    assert guide.page.cursorForPosition(QPoint(30, 12)).block().text() == "Far down"
    guide.show_place("one.md")
    assert scrolled(guide) == 0
    assert guide.places.currentItem().text() == "One"


@pytest.mark.full
def test_another_theme_reaches_the_page_where_it_was_scrolled_to(guide, theme):
    def links():
        return guide.page.toHtml().count(colors_of(guide).link)

    theme.set_mode("light")
    guide.show_place("README.md")
    assert links() > 0
    guide.show_place("one.md#far-down")
    at = scrolled(guide)
    theme.set_mode("dark")
    assert scrolled(guide) == at
    guide.go_back()
    assert links() > 0
    theme.set_mode("light")
    assert links() > 0
    theme.set_mode("system")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("file", ["recipe-reference.md", "serve-protocol.md", "benchmarks.md"])
def test_a_wide_table_needs_no_scrolling_sideways(qtbot, file):
    guide = GuideWindow()
    qtbot.addWidget(guide)
    guide.resize(1000, 700)
    guide.show()
    guide.show_place(file)
    qtbot.waitUntil(lambda: guide.page.verticalScrollBar().maximum() > 0)
    assert guide.page.horizontalScrollBar().maximum() == 0


def test_an_unknown_page_shows_the_first_one(guide):
    guide.show_place("gone.md#there")
    assert guide.place == "README.md"


def test_links_stay_within_the_guide_and_lead_back(guide, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "burnish_app.widgets.guide.guide_window.QDesktopServices.openUrl", lambda url: opened.append(url.toString())
    )
    guide.show_place("README.md")
    assert not guide.back.isEnabled()
    guide.page.anchorClicked.emit(QUrl("one.md#far-down"))
    assert guide.place == "one.md#far-down"
    guide.page.anchorClicked.emit(QUrl("#one"))
    assert guide.place == "one.md#one"
    guide.back.click()
    guide.back.click()
    assert guide.place == "README.md"
    assert "Guide" in guide.page.toPlainText()
    assert not guide.back.isEnabled()
    guide.page.anchorClicked.emit(QUrl("https://example.org"))
    assert opened == ["https://example.org"]


def test_links_to_other_files_open_only_where_they_are_burnishs_own(guide, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "burnish_app.widgets.guide.guide_window.QDesktopServices.openUrl", lambda url: opened.append(url.fileName())
    )
    guide.show_place("one.md")
    for link in (
        "../../../../etc/hosts",
        "none.md",
        "file:///etc/hosts",
        "javascript:alert(1)",
        "../samples/README.md",
    ):
        guide.page.anchorClicked.emit(QUrl(link))
    assert opened == ["README.md"]
    assert guide.place == "one.md"


def test_a_search_lists_what_it_found_and_opens_it(qtbot, guide):
    guide.show_place("README.md")
    guide.search.setText("gold")
    guide.search.returnPressed.emit()
    assert guide.place == "one.md#far-down"
    assert "gold" in rows(guide)[0]
    guide.search.setText("silver")
    guide.search.textEdited.emit("silver")
    qtbot.waitUntil(lambda: not rows(guide))
    guide.search.clear()
    guide.search.textEdited.emit("")
    qtbot.waitUntil(lambda: rows(guide) == ["Guide", "One"])


def test_nothing_of_a_page_is_lost_on_the_way_to_html():
    page = GuidePage("a.md", "# Is `it` R&D?\n\nOne.\n\n| a | b |\n|---|---|\n| <i>1</i> | 2 |\n\nTwo.\n")
    made = page_html(page)
    assert 'name="is-it-rd"' in made
    assert made.index("One.") < made.index("<table") < made.index("&lt;i&gt;1") < made.index("Two.")


def test_a_picture_is_a_link_to_it():
    made = page_html(GuidePage("a.md", "# A\n\n![Speed of *both*](../plots/speed.svg)\n"))
    assert "<img" not in made
    assert '<a href="../plots/speed.svg">Speed of both</a>' in made


def test_the_window_is_no_larger_than_the_screen(qtbot):
    made = GuideWindow()
    qtbot.addWidget(made)
    room = made.screen().availableSize()
    assert made.width() < room.width()
    assert made.height() < room.height()
