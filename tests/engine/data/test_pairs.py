"""Preference pairs from their rows to a micro-batch: two sequences of one document."""

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
from burnish_engine.data.tokens.pack import IGNORED, epoch_batches, micro_batch

QUESTION = {"role": "user", "content": "What is it?"}


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def recipe(*files: Any, objective: Any = "dpo", max_length: int = 200, **data: Any) -> Recipe:
    return Recipe(
        data=DataSection(files=[str(file) for file in files], max_length=max_length, validation_share=0.0, **data),
        train=TrainSection(micro_batch_tokens=2 * max_length),
        preference=PreferenceSection(objective=objective),
    )


def halves(tokenizer: Any, document: Any) -> list[tuple[str, str]]:
    """Decode each sequence of a document, whole and what of it is supervised."""
    found, start = [], 0
    for length in document.sequence_lengths:
        ids, learned = (values[start : start + length] for values in (document.input_ids, document.supervised))
        found.append((tokenizer.decode(ids), tokenizer.decode(ids[learned])))
        start += length
    return found


FORMS = {
    "texts": {"prompt": "What is it?", "chosen": "A good one.", "rejected": "A bad one."},
    "replies as turns": {"prompt": [QUESTION], "chosen": [reply("A good one.")], "rejected": [reply("A bad one.")]},
    "implicit prompt": {"chosen": [QUESTION, reply("A good one.")], "rejected": [QUESTION, reply("A bad one.")]},
    "dialogs": {
        "chosen": "\n\nHuman: What is it?\n\nAssistant: A good one.",
        "rejected": "\n\nHuman: What is it?\n\nAssistant: A bad one.",
    },
    "conversation and rejected": {"messages": [QUESTION, reply("A good one.")], "rejected_response": "A bad one."},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_pair_is_one_document_of_prompt_with_chosen_and_prompt_with_rejected(form, write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer()
    prepared = prepare(recipe(write_jsonl([FORMS[form]])), tokenizer)
    (document,) = prepared.train
    (chosen, learned), (rejected, learned_too) = halves(tokenizer, document)
    assert "What is it?" in chosen
    assert "What is it?" in rejected
    assert "A good one." in chosen
    assert "A bad one." in rejected
    assert "bad" not in chosen
    assert "good" not in rejected
    assert learned.startswith("A good one.")
    assert learned_too.startswith("A bad one.")
    assert not prepared.warnings or not any("shape preference" in warning for warning in prepared.warnings)


def test_only_the_last_reply_of_a_longer_chat_is_learned(write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer()
    before = [QUESTION, reply("Guess."), {"role": "user", "content": "Say it."}]
    row = {"prompt": before, "chosen": [reply("A good one.")], "rejected": [reply("A bad one.")]}
    (document,) = prepare(recipe(write_jsonl([row])), tokenizer).train
    for whole, learned in halves(tokenizer, document):
        assert "Guess." in whole
        assert "Guess." not in learned


def test_both_sequences_of_a_pair_stand_alone_in_a_pass(write_jsonl, make_tokenizer):
    rows = [{"prompt": f"Question {n}?", "chosen": "Good. " * (n % 5 + 1), "rejected": "Bad."} for n in range(20)]
    prepared = prepare(recipe(write_jsonl(rows)), make_tokenizer())
    plan = epoch_batches(prepared.train, 400, True, 0, 0)
    assert sorted(row for group in plan.groups for row in group) == list(range(len(prepared.train)))
    for batch in plan:
        lengths = [length for row in batch.rows for length in prepared.train[row].sequence_lengths]
        assert len(batch.rows) * 2 == len(lengths)
        assert np.diff(batch.boundaries).tolist() == lengths
        assert (batch.positions[batch.boundaries[:-1]] == 0).all()
        last = batch.boundaries[1:] - 1
        assert (batch.labels[last] == IGNORED).all()


def test_a_pair_that_is_cut_the_same_or_empty_is_left_out_with_its_reason(write_jsonl, make_tokenizer):
    rows = [
        FORMS["texts"],
        {"prompt": "a", "chosen": "same", "rejected": "same"},
        {"prompt": "a", "chosen": "good", "rejected": "very long " * 200},
        {"prompt": "a", "chosen": "good", "rejected": ""},
    ]
    prepared = prepare(recipe(write_jsonl(rows)), make_tokenizer())
    assert len(prepared.train) == 1
    assert sum(prepared.facts.dropped.values()) == 3
    assert len(prepared.facts.dropped) == 3


def test_files_without_pairs_are_refused_where_pairs_are_to_be_learned(write_jsonl, make_tokenizer):
    with pytest.raises(DataError, match="pairs"):
        prepare(recipe(write_jsonl([{"messages": [QUESTION, reply("Yes.")]}])), make_tokenizer())


def test_the_chosen_half_is_an_ordinary_row(write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer()
    path = write_jsonl([FORMS["texts"]])
    (pair,) = prepare(recipe(path), tokenizer).train
    (alone,) = prepare(recipe(path, objective="sft", shape="preference"), tokenizer).train
    first = pair.first_sequence()
    assert np.array_equal(first.input_ids, alone.input_ids)
    assert np.array_equal(first.supervised, alone.supervised)
    batches = [micro_batch([document], [0]) for document in (first, alone)]
    assert np.array_equal(batches[0].labels, batches[1].labels)


def test_a_recipe_whose_pairs_cannot_be_learned_says_what_to_change():
    with pytest.raises(ValueError, match="micro_batch_tokens"):
        Recipe(
            data=DataSection(max_length=300),
            train=TrainSection(micro_batch_tokens=512),
            preference=PreferenceSection(objective="simpo"),
        )
    with pytest.raises(ValueError, match=r"data\.shape"):
        Recipe(data=DataSection(shape="alpaca"), preference=PreferenceSection(objective="orpo"))
