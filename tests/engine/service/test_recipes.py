"""When a dataset that the server read before is read again."""

import os

import pytest

from burnish_engine.service.recipes import data_key

from support.runs.tiny_runs import tiny_recipe


@pytest.fixture
def recipe(tmp_path):
    template = tmp_path / "own.jinja"
    template.write_text("{{ messages }}", encoding="utf-8")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}", encoding="utf-8")
    plain = tiny_recipe(tmp_path)
    return plain.model_copy(update={"data": plain.data.model_copy(update={"template": str(template)})})


@pytest.mark.parametrize(
    "name", ["train.jsonl", "held.jsonl", "own.jinja", "base/config.json", "base/tokenizer_config.json"]
)
def test_any_file_that_decides_what_rows_become_makes_another_dataset(recipe, tmp_path, name):
    before = data_key(recipe)
    assert data_key(recipe) == before
    (tmp_path / name).touch()
    os.utime(tmp_path / name, ns=(1, 1))
    assert data_key(recipe) != before


def test_how_rows_are_packed_counts_only_where_asked(recipe):
    other = recipe.model_copy(update={"train": recipe.train.model_copy(update={"micro_batch_tokens": 512})})
    assert data_key(recipe) != data_key(other)
    assert data_key(recipe, packing=False) == data_key(other, packing=False)
