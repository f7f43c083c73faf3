"""The close look at copies: equal and nearly equal rows, and held-out rows that are trained on."""

import numpy as np
import pytest
from engine.data.report.looked_at import applied, chat, finding, numbers, prepared, prose, rows

from burnish_engine.data.rows.near_duplicates import earliest_near_duplicates, minhash_bands


@pytest.mark.full
def test_equal_rows(write_jsonl, make_tokenizer):
    path, tokenizer = write_jsonl([*rows(), *rows()[3:5]]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    assert (finding(facts, "duplicates").rows, numbers(finding(facts, "duplicates").first)) == (2, [41, 42])
    assert any("rows 41, 42" in warning and "data.duplicates" in warning for warning in facts.warnings)
    after = applied(path, tokenizer, facts, "duplicates")
    assert after.dropped == {"the same as an earlier row": 2}
    assert numbers(after.dropped_examples["the same as an earlier row"]) == [41, 42]
    assert (after.rows, after.train_rows, finding(after, "duplicates")) == (42, 40, None)


def test_nearly_equal_rows(write_jsonl, make_tokenizer):
    near = chat("Question 3?", prose(3) + " indeed")
    path, tokenizer = write_jsonl([*rows(), near]), make_tokenizer()
    facts = prepared(path, tokenizer).facts
    assert finding(facts, "duplicates") is None
    assert numbers(finding(facts, "near_duplicates").first) == [41]
    after = applied(path, tokenizer, facts, "near_duplicates")
    assert after.dropped == {"nearly the same as an earlier row": 1}


@pytest.mark.full
def test_near_duplicates_are_found_and_others_are_not():
    random = np.random.RandomState(0)
    texts = [prose(seed, 60) for seed in range(300)]
    changed = []
    for text in texts[:100]:
        words = text.split()
        words[random.randint(len(words))] = "changed"
        changed.append(" ".join(words))
    bands = np.array([minhash_bands(text) for text in [*texts, *changed]])
    ids = [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32) for text in [*texts, *changed]]
    first, whole = earliest_near_duplicates(bands, ids.__getitem__, np.ones(400, dtype=bool), thorough=True)
    assert whole
    assert (first[:300] == np.arange(300)).all()
    assert (first[300:] == np.arange(100)).mean() > 0.97


def test_leaks_from_training_into_validation(write_jsonl, make_tokenizer):
    near = chat("Question 7?", prose(7) + " indeed")
    held = write_jsonl([rows()[5], near, chat("new", "row")], "held.jsonl")
    path, tokenizer = write_jsonl(rows()), make_tokenizer()
    facts = prepared(path, tokenizer, validation_files=[str(held)]).facts
    assert (finding(facts, "leaks").rows, finding(facts, "near_leaks").rows) == (1, 1)
    after = applied(path, tokenizer, facts, "leaks", validation_files=[str(held)])
    assert after.dropped == {"held out as well": 2}
    assert (after.train_rows, after.validation_rows) == (38, 3)
    assert finding(after, "leaks") is finding(after, "near_leaks") is None


@pytest.mark.full
def test_copies_are_left_out_within_training_and_within_held_out_rows_and_never_across(write_jsonl, make_tokenizer):
    """A row in both is a leak, told and by default kept; the held-out set stays what its files say."""
    near = [chat("Question 7?", prose(7) + more) for more in (" indeed", " in fact")]
    held = write_jsonl([rows()[5], rows()[5], *near, chat("new", "row")], "held.jsonl")
    path, tokenizer = write_jsonl([*rows(), rows()[5]]), make_tokenizer()
    for setting, dropped, held_out in (
        ("keep", {}, 5),
        ("drop", {"the same as an earlier row": 2}, 4),
        ("drop_near", {"the same as an earlier row": 2, "nearly the same as an earlier row": 1}, 3),
    ):
        facts = prepared(path, tokenizer, validation_files=[str(held)], duplicates=setting).facts
        assert facts.dropped == dropped
        assert (facts.report.training_rows, facts.report.held_out_rows) == (41 - (setting != "keep"), held_out)
        leaked = finding(facts, "leaks")
        assert (leaked.rows, {place.file for place in leaked.first}) == (2 if setting == "keep" else 1, {str(held)})
        assert any("held-out rows are also among the training rows" in warning for warning in facts.warnings)
        assert finding(facts, "near_leaks").rows == held_out - leaked.rows - 1


@pytest.mark.full
def test_copies_within_one_file_are_not_held_out_when_they_are_dropped(write_jsonl, make_tokenizer):
    path, tokenizer = write_jsonl([*rows(), *rows()]), make_tokenizer()
    kept = prepared(path, tokenizer, validation_share=0.3).facts
    assert finding(kept, "leaks") is not None
    found = prepared(path, tokenizer, validation_share=0.3, duplicates="drop")
    assert finding(found.facts, "leaks") is None
    assert sorted(document.row for document in [*found.train, *found.validation]) == list(range(1, 41))
