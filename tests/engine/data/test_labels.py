"""Replies labeled good or bad from their rows to documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.prepare import prepare
from burnish_engine.data.tokens.pack import micro_batch

QUESTION = {"role": "user", "content": "What is it?"}


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def recipe(*files: Any, objective: Any = "kto", max_length: int = 200, **data: Any) -> Recipe:
    return Recipe(
        data=DataSection(files=[str(file) for file in files], max_length=max_length, validation_share=0.0, **data),
        train=TrainSection(micro_batch_tokens=400),
        preference=PreferenceSection(objective=objective),
    )


FORMS = {
    "texts": {"prompt": "What is it?", "completion": "A bad one.", "label": False},
    "turns": {"prompt": [QUESTION], "completion": [reply("A bad one.")], "label": False},
    "conversation": {"messages": [QUESTION, reply("A bad one.")], "label": False},
    "alpaca": {"instruction": "What is it?", "output": "A bad one.", "kto_tag": False},
}


@pytest.mark.parametrize("form", FORMS)
def test_good_and_bad_replies_are_documents_that_know_their_label(form, write_jsonl, make_tokenizer):
    bad = FORMS[form]
    name = "kto_tag" if "kto_tag" in bad else "label"
    tokenizer = make_tokenizer()
    prepared = prepare(recipe(write_jsonl([bad, bad | {name: True}, bad])), tokenizer)
    assert [one.desirable for one in prepared.train] == [False, True, False]
    for document in prepared.train:
        learned = tokenizer.decode(document.input_ids[document.supervised])
        assert learned.startswith("A bad one.")
        assert "What is it?" in tokenizer.decode(document.input_ids)
    assert micro_batch(prepared.train, [1, 0]).desirable.tolist() == [True, False]
    assert not prepared.facts.dropped
    assert not any("shape kto" in warning for warning in prepared.warnings)


def test_only_the_last_reply_is_learned_and_long_ones_are_cut(write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer()
    chat = [QUESTION, reply("Guess."), {"role": "user", "content": "Say it."}, reply("It is " * 200)]
    (document,) = prepare(recipe(write_jsonl([{"messages": chat, "label": True}])), tokenizer).train
    assert len(document) == 200
    assert "Guess." not in tokenizer.decode(document.input_ids[document.supervised])
    with pytest.raises(DataError, match="longer than"):
        prepare(recipe(write_jsonl([{"messages": chat, "label": True}]), overlong="drop"), tokenizer)


def test_a_changed_label_is_other_data(write_jsonl, make_tokenizer):
    good, bad = ({"prompt": "a?", "completion": "b", "label": label} for label in (True, False))
    hashes = {prepare(recipe(write_jsonl(rows)), make_tokenizer()).dataset_hash for rows in ([good], [bad])}
    assert len(hashes) == 2
    kept = prepare(recipe(write_jsonl([good, bad, bad]), duplicates="drop"), make_tokenizer()).train
    assert sorted(one.desirable for one in kept) == [False, True]  # the same words with two labels are no duplicates


def test_held_out_conversations_of_both_labels_are_kept(write_jsonl, make_tokenizer):
    rows = [{"prompt": f"{number}?", "completion": "so", "label": number % 2 == 0} for number in range(6)]
    made = recipe(write_jsonl(rows[:4]), validation_files=[str(write_jsonl(rows[4:], "held.jsonl"))])
    prepared = prepare(made, make_tokenizer())
    assert [one.desirable for one in prepared.validation] == [True, False]
    assert [chat[0]["content"] for chat in prepared.validation_conversations] == ["4?", "5?"]


def test_labels_are_refused_without_an_objective_and_pairs_with_this_one(write_jsonl, make_tokenizer):
    labeled, pair = FORMS["texts"], {"prompt": "a", "chosen": "b", "rejected": "c"}
    with pytest.raises(DataError, match='"kto"'):
        prepare(recipe(write_jsonl([labeled]), objective="sft"), make_tokenizer())
    with pytest.raises(DataError, match="good or bad"):
        prepare(recipe(write_jsonl([pair])), make_tokenizer())
    with pytest.raises(DataError, match="pairs") as refused:
        prepare(recipe(write_jsonl([labeled]), objective="dpo"), make_tokenizer())
    assert '"kto"' in refused.value.remedy
    with pytest.raises(ValueError, match=r"data\.shape"):
        recipe(write_jsonl([labeled]), shape="preference")


def test_a_row_may_be_as_long_as_a_pass(write_jsonl, make_tokenizer):
    made = recipe(write_jsonl([FORMS["texts"]]), max_length=400)  # pairs would need twice as much
    assert len(prepare(made, make_tokenizer()).train) == 1
    assert np.all(prepare(made, make_tokenizer()).train[0].supervised[:1] == [False])
