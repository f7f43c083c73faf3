"""The values that a stepper offers."""

import pytest

from burnish_app.recipe.recipe_fields import recipe_fields
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_problems

FIELDS = {field.key: field for field in recipe_fields()}
NUMBERS = [field for field in FIELDS.values() if field.kind in ("whole", "number")]


def path(key, value, *, up, count):
    found = []
    for _ in range(count):
        value = FIELDS[key].stepped(value, up=up)
        found.append(value)
    return found


@pytest.mark.parametrize(
    ("key", "start", "up", "values"),
    [
        ("adapter.rank", 16, True, [32, 64, 128, 256, 256]),
        ("adapter.rank", 16, False, [8, 4, 2, 1, 1]),
        ("train.micro_batch_tokens", 2048, True, [4096, 8192]),
        ("train.learning_rate", 2e-4, True, [3e-4, 4e-4]),
        ("train.learning_rate", 2e-4, False, [1e-4, 9e-5]),
        ("train.epochs", 2.0, True, [3.0, 4.0]),
        ("train.epochs", 1.0, False, [0.9, 0.8]),
        ("train.max_steps", 0, True, [10, 20]),
        ("train.max_steps", 20, False, [10, 0, 0]),
        ("train.max_steps", 100, False, [90]),
        ("train.warmup_share", 0.05, True, [0.1, 0.15]),
        ("train.warmup_share", 0.9, True, [0.9]),
        ("evaluation.patience", 0, True, [1, 2]),
        ("evaluation.patience", 1, False, [0, 0]),
    ],
)
def test_steps_are_those_that_people_would_type(key, start, up, values):
    assert path(key, start, up=up, count=len(values)) == pytest.approx(values)


@pytest.mark.parametrize("field", NUMBERS, ids=lambda field: field.key)
def test_no_step_leaves_what_is_allowed(field):
    allowed = Recipe().model_dump()
    for up in (True, False):
        value = field.read(Recipe().model_dump())
        for _ in range(40):
            following = field.stepped(value, up=up)
            assert isinstance(following, int) == (field.kind == "whole")
            assert (following >= value) if up else (following <= value)
            value = following
            field.write(allowed, value)
            own = {key: text for key, text in recipe_problems(allowed).items() if key == field.key}
            assert not own or "0 or at least" in str(own)
        field.write(allowed, field.read(Recipe().model_dump()))


@pytest.mark.parametrize("field", NUMBERS, ids=lambda field: field.key)
def test_a_zero_that_means_more_than_nothing_has_a_word(field):
    if field.kind != "whole" and "0: " not in field.help:
        return
    means_more = " 0: " in field.help
    assert means_more == bool(field.zero), field.help
    if field.zero:
        assert field.as_text(0) == field.zero
        assert field.from_text(field.zero.upper()) == field.from_text("0") == 0
        assert "0" not in field.zero
