"""The guide as pages and sections: its order, its places, and what a search finds."""

import pytest

from burnish_app.page_list import PAGES
from burnish_app.state.guide_pages import FIRST, PLACES, GuidePage, anchor_of, load_guide, plain, search_guide
from burnish_engine.contract.recipe.recipe import sections

GUIDE = load_guide()
PLACES_THERE = {f"{page.file}#{section.anchor}" for page in GUIDE for section in page.sections}


def test_the_guide_begins_with_its_first_page_and_has_all_others_once():
    files = [page.file for page in GUIDE]
    assert files[:2] == [FIRST, "install.md"]
    assert len(files) == len(set(files)) > 20
    assert all(page.title != page.file for page in GUIDE)


@pytest.mark.parametrize("key", [entry.key for entry in PAGES])
def test_every_page_of_the_window_has_a_place_in_the_guide(key):
    file, _, anchor = PLACES[key].partition("#")
    assert file in {page.file for page in GUIDE}
    assert not anchor or PLACES[key] in PLACES_THERE


@pytest.mark.parametrize("section", ["top-level", *sections()])
def test_every_section_of_the_recipe_has_a_place_in_the_reference(section):
    assert f"recipe-reference.md#{section}" in PLACES_THERE


def test_sections_leave_markup_and_code_blocks_alone():
    page = GuidePage(
        "a.md", "# A `b`\n\nSee [the other](c.md) *twice*.\n\n```\n# no heading\n```\n\n## Is it C? [d](e.md)\ntext\n"
    )
    assert [(one.title, one.anchor) for one in page.sections] == [("A b", "a-b"), ("Is it C? d", "is-it-c-d")]
    assert page.sections[0].text.startswith("See the other twice.")
    assert plain("| a | b |\n|---|---|\n| `c` | d |") == "a b c d"
    assert plain("- one\n- two-fold\n  - three") == "one two-fold three"
    assert anchor_of("Try it: is it good?") == "try-it-is-it-good"


def test_a_search_finds_sections_with_all_words_those_in_headings_first():
    pages = [
        GuidePage("one.md", "# One\nA spike and a rollback.\n## Spikes\nThey go.\n"),
        GuidePage("two.md", f"# Two\n{'word ' * 100}rollback {'word ' * 100}\n"),
    ]
    assert [hit.place for hit in search_guide(pages, "SPIKE")] == ["one.md#spikes", "one.md#one"]
    assert [hit.place for hit in search_guide(pages, "spike rollback")] == ["one.md#one"]
    (hit,) = search_guide(pages, "rollback word")
    assert "rollback" in hit.excerpt or "word" in hit.excerpt
    assert len(hit.excerpt) < 200
    assert search_guide(pages, "nowhere") == search_guide(pages, "  ") == []


def test_words_of_the_guide_are_found_where_they_are_explained():
    assert search_guide(GUIDE, "rollback")[0].place == "training-guard.md#rollback"
    assert "your-data.md#the-score-of-your-task" in [hit.place for hit in search_guide(GUIDE, "score task")]
