"""Recipes: what people write is read, refused or explained."""

import json
import tomllib
from pathlib import Path

import pytest

from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe, sections, setting_notes
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_file import (
    dump_recipe,
    load_recipe,
    parse_recipe,
    recipe_hash,
    recipe_schema,
    reference_page,
)
from burnish_engine.contract.recipe.recipe_section import field_limits


@pytest.mark.parametrize("comments", [False, True])
def test_what_is_written_is_read_back(comments):
    recipe = parse_recipe('[train]\nepochs = 3\n[data]\nfiles = ["a é.jsonl"]\n[target]\nkind = "phone"\n')
    assert parse_recipe(dump_recipe(recipe, comments=comments)) == recipe


def test_the_empty_recipe_is_all_defaults():
    assert parse_recipe("") == Recipe()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[train]\nlerning_rate = 1e-4\n", ["train.lerning_rate", "did you mean train.learning_rate"]),
        ("[adapter]\nlearning_rate = 1e-4\n", ["adapter.learning_rate", "did you mean train.learning_rate"]),
        ("[trian]\nepochs = 1\n", ["trian", "did you mean train"]),
        ("[target]\nzzz = 1\n", ["target.zzz", "known here", "ram_gib"]),
        ("[adapter]\nrank = 0\n", ["adapter.rank = 0", "at least 1"]),
        ("[adapter]\nrank = 4096\n", ["adapter.rank = 4096", "256"]),
        ('[adapter]\nrank = "many"\n', ["adapter.rank", "many", "whole number"]),
        ('[train]\nschedule = "cosinus"\n', ["train.schedule", "cosinus", "'cosine'"]),
        ("[data]\nmax_length = 4096\n", ["data.max_length (4096)", "micro_batch_tokens (2048)"]),
        ("[devices]\ngpus = [0, 1]\n", ["devices", "exactly one GPU"]),
        ('[train]\noptimizer = "adam8"\n', ["train.optimizer", "adam8", "'paged_adamw8bit'"]),
        (
            '[adapter]\nmethod = "dora"\n[train]\nproducts = "fp8"\n',
            ['train.products = "fp8"', 'adapter.method = "dora"'],
        ),
        *(
            (f'[model]\nquantize = "fp8"\n[train]\nproducts = "{products}"\n', [products, "model.quantize"])
            for products in ("int8", "mxfp8")
        ),
        ('[train]\nproducts = "fp8"\nprecision = "fp32"\n', ['products = "fp8"', 'precision is "fp32"']),
        (
            '[adapter]\nmethod = "full"\n[model]\nquantize = "nf4"\n',
            ['adapter.method = "full" trains every weight', 'model.quantize = "nf4"', 'set that to "none"'],
        ),
        ("version = 9\n", ["version 9", "reads version 1"]),
        ("[train\n", ["not valid TOML", "line 1"]),
        ("[train]\nmax_steps = 1\nmax_steps = 2\n", ["already exists. Correct"]),
        ('[export]\nquants = ["Q9_Z"]\n', ["export.quants.0", "Q9_Z", "Q8_0"]),
        ('[data]\nreplay_share = 0.03\n[preference]\nobjective = "dpo"', ["data.replay_share", "sft"]),
        ('[data]\nreplay_share = 0.03\n[devices]\nstrategy = "data_parallel"\ngpus = [0, 1]', ["replay_share"]),
    ],
)
def test_mistakes_are_named_with_value_and_remedy(text, words):
    with pytest.raises(UsageError) as caught:
        parse_recipe(text)
    message = str(caught.value)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "columns",
    [
        ["x"],
        ["=x"],
        ["prompt="],
        ["color=x"],
        ["prompt=a", "prompt=b"],
        ["prompt=a", "completion=a"],
        ["prompt=a", "b"],
    ],
)
def test_columns_that_are_no_pairs_are_refused_before_any_data_is_read(tmp_path, columns):
    path = tmp_path / "recipe.toml"
    path.write_text(f"version = 1\n[data]\ncolumns = {columns!r}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="columns"):
        load_recipe(path)


def test_columns_that_a_person_chose_are_kept_in_the_recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    chosen = Recipe(data=DataSection(shape="kto", columns=["conversation=talk = 1", "label=thumb"]))
    path.write_text(dump_recipe(chosen), encoding="utf-8")
    assert load_recipe(path).data == chosen.data


def test_settings_that_training_every_weight_has_no_use_for():
    def notes(adapter):
        return " ".join(setting_notes(parse_recipe(f"[adapter]\n{adapter}\n"), "adapter"))

    assert notes('method = "full"') == ""
    assert "adapter.rank does not apply" in notes('method = "full"\nrank = 8')
    several = notes('method = "full"\nalpha = 1.0\ndropout = 0.1\ntargets = ["q_proj"]')
    assert "adapter.alpha, adapter.dropout and adapter.targets do not apply" in several
    assert notes("rank = 8") == ""
    assert notes('rank = 8\nstart = "runs/first"') == ""  # it comes from there, and is not ignored


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ('objective = "dpo"\nrpo_alpha = 1.0', []),
        ('objective = "orpo"\nrpo_alpha = 1.0', ["preference.rpo_alpha does not apply"]),
        ('objective = "kto"\nrpo_alpha = 1.0\nsimpo_gamma = 2.0', ["rpo_alpha and preference.simpo_gamma do not"]),
        ("beta = 0.5", ["preference.beta does not apply"]),
        ('objective = "simpo"', ["preference.beta = 0.1"]),
        ('objective = "simpo"\nbeta = 2.0', []),
    ],
)
def test_settings_of_another_objective_are_noted(section, names):
    notes = setting_notes(parse_recipe(f"[preference]\n{section}\n"), "preference")
    assert len(notes) == len(names)
    assert all(name in note for name, note in zip(names, notes, strict=True))


def test_all_mistakes_are_told_at_once():
    with pytest.raises(UsageError, match="2 problems"):
        parse_recipe("[train]\nepochs = -1\nlerning_rate = 1\n")


def test_paths_are_taken_from_the_recipes_folder(tmp_path):
    folder = tmp_path / "mein Ordner é"
    folder.mkdir()
    (folder / "r.toml").write_text('[data]\nfiles = ["d.jsonl"]\n[model]\npath = "base"\n', encoding="utf-8")
    recipe = load_recipe(folder / "r.toml")
    assert recipe.data.files == [str(folder / "d.jsonl")]
    assert recipe.model.path == str(folder / "base")


def test_a_model_folder_beside_the_recipe_is_found_from_anywhere(tmp_path, monkeypatch):
    """Although owner/name would be the name of a model where there is no such folder."""
    folder, elsewhere = tmp_path / "recipes", tmp_path / "elsewhere"
    (folder / "models" / "base").mkdir(parents=True)
    elsewhere.mkdir()
    for name, found in (("models/base", str(folder / "models" / "base")), ("models/other", "models/other")):
        (folder / "r.toml").write_text(f"[model]\npath = '{name}'\n", encoding="utf-8")
        for place in (elsewhere, folder):
            monkeypatch.chdir(place)
            assert Path(load_recipe(folder / "r.toml").model.path) == Path(found)


@pytest.mark.parametrize("content", [b"\xff\xfe[\x00", b'name = "\xe9"\n'])
def test_a_recipe_in_another_encoding_is_refused(tmp_path, content):
    (tmp_path / "r.toml").write_bytes(content)
    with pytest.raises(UsageError, match="UTF-8"):
        load_recipe(tmp_path / "r.toml")


def test_a_missing_recipe_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no recipe"):
        load_recipe(tmp_path / "none.toml")


def test_hash_follows_values_not_layout():
    assert recipe_hash(parse_recipe("[train]\nepochs=2.0")) == recipe_hash(parse_recipe("# x\n[train]\nepochs =  2\n"))
    assert recipe_hash(parse_recipe("[train]\nepochs=3")) != recipe_hash(parse_recipe(""))


def test_reference_lists_every_key_once():
    page = reference_page()
    for name, model in sections().items():
        assert f"## `[{name}]`" in page
        section = page.split(f"## `[{name}]`")[1].split("\n## ")[0]
        for key in model.model_fields:
            assert section.count(f"| `{key}` |") == 1
    assert "≥ 1 ≤ 256" in page  # adapter.rank
    assert "| `gpus` | `[0]` | up to 64 items |" in page


@pytest.mark.parametrize(
    ("schema", "limits"),
    [
        ({"minimum": 1, "maximum": 4096}, "≥ 1 ≤ 4,096"),
        ({"exclusiveMinimum": 0.5, "exclusiveMaximum": 1}, "> 0.5 < 1"),
        ({"items": {"minimum": 0}, "maxItems": 3}, "≥ 0 up to 3 items"),
        ({"minLength": 1, "maxLength": 64}, "1 to 64 characters"),
        ({"minItems": 1}, "not empty"),
        ({"minItems": 2}, "at least 2 items"),
        ({"type": "string"}, ""),
    ],
)
def test_limits_of_numbers_texts_and_lists_are_written(schema, limits):
    assert field_limits(schema) == limits


def test_schema_refuses_unknown_keys_and_is_json():
    schema = json.loads(json.dumps(recipe_schema()))
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["AdapterSection"]["properties"]["rank"]["maximum"] == 256


def test_the_commented_recipe_explains_each_key():
    text = dump_recipe(Recipe(), comments=True)
    assert tomllib.loads(text)["train"]["epochs"] == 2.0
    assert "# Rank of the update. [dimensions]" in text
    assert all("#" in line for line in text.splitlines() if line.startswith("["))


@pytest.mark.full
def test_the_page_in_the_repository_is_the_printed_one(assets):
    """After changing a recipe field: burnish recipe reference > assets/guide/recipe-reference.md."""
    assert (assets / "guide" / "recipe-reference.md").read_text(encoding="utf-8") == reference_page()


def test_a_number_of_gpus_means_those_that_the_recipe_names_where_it_names_enough():
    devices = DevicesSection(strategy="data_parallel", gpus=[2, 3])
    assert [devices.first_gpus(count) for count in range(4)] == [[], [2], [2, 3], [0, 1, 2]]
