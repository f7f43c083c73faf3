"""Where a recipe may run, as text; names never become options of other programs."""

import pytest

from burnish_engine.contract.recipe.place import RunPlace, parse_place
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_hash


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("here", "here", ""),
        ("ssh:office", "ssh", "office"),
        ("ssh:me@10.0.0.2", "ssh", "me@10.0.0.2"),
        ("slurm", "slurm", ""),
        ("slurm:login1", "slurm", "login1"),
        ("sky", "sky", ""),
        ("sky:A100-80GB", "sky", "A100-80GB"),
        ("hf", "hf", ""),
        ("hf:a10g-small", "hf", "a10g-small"),
    ],
)
def test_places_are_read_and_written(text, kind, name):
    assert parse_place(text) == RunPlace(kind, name)
    assert str(parse_place(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "there", "ssh", "ssh:", "ssh:-oProxyCommand=x", "ssh:a b", "ssh:a;b", "slurm:", "here:x", "hf:A b", "sky:--x"],
)
def test_what_is_no_place_is_refused(text):
    with pytest.raises(ValueError, match="must"):
        parse_place(text)


def test_an_older_recipe_keeps_its_hash():
    plain = Recipe()
    elsewhere = plain.model_copy(update={"devices": plain.devices.model_copy(update={"where": "hf"})})
    stated = plain.model_copy(update={"devices": plain.devices.model_copy(update={"where": "here"})})
    assert recipe_hash(plain) == recipe_hash(stated) != recipe_hash(elsewhere)
