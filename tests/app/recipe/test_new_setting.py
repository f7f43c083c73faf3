"""A setting that is declared in one place is there everywhere: one made up here is added to the recipe."""

import tomllib
from typing import Literal

import pytest
from typer.testing import CliRunner

from burnish_app.look import language
from burnish_app.recipe.recipe_fields import all_fields, folded_sections, main_fields
from burnish_app.recipe.recipe_relevance import is_relevant, note_text, without_effect_text
from burnish_app.recipe.search import found_fields
from burnish_app.recipe.value_reasons import value_reason
from burnish_app.widgets.recipe.recipe_form import RecipeForm
from burnish_app.wording.recipe_text import setting_name, setting_text
from burnish_engine.cli.prepare.recipe import app
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe, setting_notes
from burnish_engine.contract.recipe.recipe_file import dump_recipe, parse_recipe, recipe_problems, reference_page
from burnish_engine.contract.recipe.recipe_section import Section, Step, setting, when


class GlazeSection(Section):
    """The glaze of a pot."""

    finish: Literal["matte", "gloss"] = setting(
        "matte",
        "How the surface looks. gloss: it mirrors.",
        label="Finish (of the surface)",
        choices={"gloss": "shining"},
        note={"gloss": "Takes a second firing."},
    )
    coats: int = setting(
        0,
        "Layers of glaze. 0: as the kiln decides.",
        label="Coats (layers of glaze)",
        unit="coats",
        zero="by the kiln",
        more="{ratio} times the usual layers: it may run.",
        less="Thinner than usual.",
        used_if=when("finish", "gloss"),
        page="first",
        order=3,
        step=Step(4, doubles=True),
        ge=0,
        le=64,
    )


GLOSS = '[glaze]\nfinish = "gloss"\ncoats = 8\n'


@pytest.fixture
def glaze():
    """The recipe with one section more."""
    field = setting(GlazeSection, "How to glaze.", label="Glazing")
    field.annotation = GlazeSection
    Recipe.model_fields["glaze"] = field
    Recipe.model_rebuild(force=True)
    all_fields.cache_clear()
    yield
    del Recipe.model_fields["glaze"]
    Recipe.model_rebuild(force=True)
    all_fields.cache_clear()


def tables(**section):
    return Recipe.model_validate({"glaze": section}).model_dump()


def field(key):
    return next(one for one in all_fields() if one.key == key)


def test_the_file_the_reference_and_the_command_line_explain_it(glaze, tmp_path):
    text = dump_recipe(Recipe(), comments=True)
    assert tomllib.loads(text)["glaze"] == {"finish": "matte", "coats": 0}
    assert '# Layers of glaze. 0: as the kiln decides. [coats] Only with glaze.finish = "gloss".' in text
    assert parse_recipe(GLOSS).glaze.coats == 8
    path = tmp_path / "glazed.toml"
    path.write_text("[glaze]\ncoats = 8\n", encoding="utf-8")
    printed = CliRunner().invoke(app, ["reference"]).output
    assert printed.strip() == reference_page().strip()
    row = next(line for line in printed.splitlines() if line.startswith("| `coats` |"))
    assert all(part in row for part in ("≥ 0 ≤ 64", "coats", "Coats (layers of glaze)", "Layers of glaze", "Only with"))
    assert "`gloss`: Takes a second firing." in printed
    assert "glaze.coats does not apply" in CliRunner().invoke(app, ["check", str(path)]).output


def test_its_values_are_checked(glaze):
    with pytest.raises(UsageError, match=r"glaze\.coats = 65: it has to be at most 64"):
        parse_recipe("[glaze]\ncoats = 65\n")
    with pytest.raises(UsageError, match=r"did you mean glaze\.coats"):
        parse_recipe("[glaze]\ncoat = 1\n")
    assert list(recipe_problems({"glaze": {"finish": "dull"}})) == ["glaze.finish"]
    assert setting_notes(parse_recipe(GLOSS)) == []
    assert len(setting_notes(parse_recipe("[glaze]\ncoats = 8\n"))) == 1


def test_it_is_found_worded_and_stepped(glaze):
    assert main_fields()[3].key == "glaze.coats"  # behind the name, one of order 1, and another of order 3
    assert [one.key for one in dict(folded_sections())["Glazing"]] == ["glaze.finish"]
    for words in ("coats", "layers of glaze", "kiln"):
        assert "glaze.coats" in found_fields(all_fields(), words)
    for words in ("shining", "gloss", "firing"):
        assert "glaze.finish" in found_fields(all_fields(), words)
    assert setting_name("glaze.coats") == "Coats (layers of glaze)"
    assert (setting_text("glaze.coats", 0), setting_text("glaze.finish", "gloss")) == ("by the kiln", "shining")
    coats = field("glaze.coats")
    assert [coats.stepped(value, up=True) for value in (0, 4, 64)] == [4, 8, 64]
    assert coats.from_text("by the kiln") == 0


def test_it_comes_and_goes_with_the_setting_that_it_needs(glaze):
    assert not is_relevant("glaze.coats", tables())
    assert is_relevant("glaze.coats", tables(finish="gloss"))
    assert "“Finish” is: matte" in without_effect_text("glaze.coats", tables(coats=2))
    assert "second firing" in note_text("glaze.finish", tables(finish="gloss"))
    assert value_reason("glaze.coats", tables(coats=8), tables(coats=2), None).startswith("4 times")


@pytest.mark.gui
def test_the_form_shows_it(glaze, qtbot, theme):
    form = RecipeForm()
    qtbot.addWidget(form)
    form.show_recipe(parse_recipe(GLOSS))
    row = form.row("glaze.coats")
    assert row.editor.text() == "8"
    assert row.editor.accessibleName() == "Coats (layers of glaze)"
    assert not row.isHidden()
    form.show_recipe(Recipe())
    assert row.isHidden()


def test_every_word_of_it_is_translated(glaze):
    language.install(lambda text: f"<{text}>")
    try:
        all_fields.cache_clear()
        coats, finish = field("glaze.coats"), field("glaze.finish")
        told = [coats.label, coats.unit, coats.zero, finish.choice_text("gloss")]
        assert told == ["<Coats (layers of glaze)>", "<coats>", "<by the kiln>", "<shining>"]
        assert "<Layers of glaze. 0: as the kiln decides.>" in coats.help
        assert "<Takes a second firing.>" in note_text("glaze.finish", tables(finish="gloss"))
        assert value_reason("glaze.coats", tables(coats=8), tables(coats=2), None)[0] == "<"
        assert "<Glazing>" in dict(folded_sections())
    finally:
        language.install(lambda text: text)
