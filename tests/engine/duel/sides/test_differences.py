"""What is compared, what is unfair and what the duel decides; no recipe key is forgotten."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.duel.sides.differences import differences, refuse_unfair, shown


def recipe(**sections):
    return Recipe.model_validate(sections)


def kinds(*recipes):
    return {one.key: one.kind for one in differences(recipes)}


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("data", {"files": ["b.jsonl"]}),
        ("data", {"learn": "everything"}),
        ("data", {"validation_share": 0.2}),
        ("data", {"validation_files": ["h.jsonl"]}),
        ("evaluation", {"max_rows": 7}),
        ("train", {"epochs": 3.0}),
        ("train", {"max_tokens": 10_000}),
        ("train", {"micro_batch_tokens": 4096}),
        ("train", {"accumulation": 2}),
        ("train", {"schedule": "wsd"}),
        ("train", {"warmup_share": 0.2}),
        ("train", {"precision": "fp32"}),
        ("model", {"path": "other"}),
        ("devices", {"kind": "cpu"}),
    ],
)
def test_conditions_have_to_be_the_same(section, change):
    found = differences([recipe(), recipe(**{section: change})])
    assert [one.kind for one in found] == ["unfair"]
    with pytest.raises(UsageError, match="cannot be compared fairly") as refused:
        refuse_unfair(found, ["a", "b"])
    assert f"{section}.{next(iter(change))}" in str(refused.value)
    assert found[0].why in str(refused.value)
    assert "--anyway" in str(refused.value)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("train", {"optimizer": "adamw8bit"}),
        ("train", {"engine": "plain"}),
        ("train", {"weight_decay": 0.1}),
        ("adapter", {"rank": 64}),
        ("adapter", {"method": "dora"}),
        ("masking", {"kind": "magma"}),
        ("memory", {"layers": "all"}),
        ("model", {"quantize": "nf4"}),
    ],
)
def test_what_a_duel_may_be_about(section, change):
    found = differences([recipe(), recipe(**{section: change})])
    assert [one.kind for one in found] == ["compared"]
    refuse_unfair(found, ["a", "b"])


def test_what_the_duel_decides_is_no_hindrance():
    other = recipe(
        name="x", train={"seed": 5, "learning_rate": 1e-3, "checkpoint_every": 7}, export={"quants": ["F16"]},
        target={"kind": "phone"}, evaluation={"every": 3, "prompts": ["hi"], "patience": 2}, data={"workers": 2},
        guard={"action": "warn"},
    )  # fmt: skip
    assert set(kinds(recipe(), other).values()) == {"decided"}
    refuse_unfair(differences([recipe(), other]), ["a", "b"])


def test_what_is_compared_comes_first_and_three_sides_have_three_values():
    found = differences(
        [recipe(), recipe(adapter={"rank": 4}, name="x"), recipe(train={"epochs": 1.0}, adapter={"rank": 64})]
    )
    assert [(one.key, one.kind) for one in found] == [
        ("adapter.rank", "compared"), ("train.epochs", "unfair"), ("name", "decided"),
    ]  # fmt: skip
    assert found[0].values == [16, 4, 64]
    assert differences([recipe(), recipe()]) == []


def test_every_data_key_and_every_device_key_is_known():
    """A new key of the sections that say what is learned, and where, must not slip through as something compared."""
    for section in ("data", "devices"):
        for key, field in type(getattr(Recipe(), section)).model_fields.items():
            del field
            from burnish_engine.duel.sides.differences import _kind

            assert _kind(f"{section}.{key}")[0] in ("unfair", "decided")


def test_values_are_shown_short():
    assert shown("/home/somebody/data/train.jsonl") == "train.jsonl"
    assert shown("C:/data/train.jsonl") == "train.jsonl"
    assert shown(["/a/b.jsonl", "/a/c.jsonl"]) == "[b.jsonl, c.jsonl]"
    assert shown("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert (shown(True), shown(1e-5), shown(3)) == ("true", "1e-05", "3")
    assert len(shown("x" * 100)) == 60
