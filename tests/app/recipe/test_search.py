"""Which settings a search finds."""

import pytest

from burnish_app.recipe.recipe_fields import recipe_fields
from burnish_app.recipe.search import found_fields

FIELDS = recipe_fields()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("learning rate", "train.learning_rate"),
        ("rate learning", "train.learning_rate"),
        ("QLoRA", "model.quantize"),
        ("nf4", "model.quantize"),
        ("adafactor", "train.optimizer"),
        ("max_grad", "train.max_grad_norm"),
        ("clip", "train.max_grad_norm"),
        ("early", "evaluation.patience"),
        ("experts", "adapter.expert_rank"),
        ("Dettmers", "model.quantize"),
    ],
)
def test_a_setting_is_found_by_term_plain_word_key_choice_and_help(text, key):
    assert key in found_fields(FIELDS, text)


def test_every_word_has_to_be_there():
    both = found_fields(FIELDS, "learning rate")
    assert both < found_fields(FIELDS, "rate")
    assert found_fields(FIELDS, "learning zebra") == set()


@pytest.mark.full
def test_every_setting_is_found_by_its_own_name():
    for field in FIELDS:
        assert field.key in found_fields(FIELDS, field.label), field.key
        assert field.key in found_fields(FIELDS, field.key), field.key


def test_few_letters_search_nothing():
    assert found_fields(FIELDS, "") is None
    assert found_fields(FIELDS, " a ") is None
