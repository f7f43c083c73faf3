"""What two cards say beside each other."""

import pytest

from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.card import FactChange, Resume
from burnish_engine.runs.card import write_card
from burnish_engine.runs.compare.card_text import changes_text
from burnish_engine.runs.compare.compare_cards import compare_cards

from support.runs.cards import digest, files, make_card, row_files


@pytest.fixture
def said(tmp_path):
    """Compare two cards (None: without one): -> words by topic."""

    def compare(*cards):
        folders = [RunPaths(tmp_path / name) for name in ("a", "b")]
        for paths, card in zip(folders, cards, strict=True):
            paths.root.mkdir()
            if card:
                write_card(paths, card)
        return {line.topic: line for line in compare_cards(*folders)}

    return compare


def test_equal_cards_differ_in_nothing(said):
    lines = said(make_card(), make_card())
    assert {topic: line.words for topic, line in lines.items()} == {
        "base model": "base model: the same weights",
        "data": "data: the same files",
        "trained weights": "trained weights: the same, bit for bit",
    }
    assert {line.verdict for line in lines.values()} == {"same"}


def test_versions_and_devices_that_differ_are_named_with_both_values(said):
    other = make_card(
        versions={"burnish": "0.1.0", "python": "3.11.7", "torch": "2.11.0", "driver": "580.1"},
        device="Kettle 2",
        memory_bytes=8 * 2**30 + 1000,
        memory_plan="layers = input:2, mlp_rows = 0, head_rows = 256",
    )
    lines = said(make_card(), other)
    facts = {topic: line.words for topic, line in lines.items() if line.values and line.verdict == "differs"}
    assert facts == {
        "torch": "torch 2.13.0 / 2.11.0",
        "cuda": "CUDA 12.8 / none",
        "driver": "NVIDIA driver none / 580.1",
        "device": "device Lamp 9000 / Kettle 2",
        "memory_plan": "memory plan layers = all:2 / layers = input:2",
    }
    assert lines["torch"].values == ("2.13.0", "2.11.0")


@pytest.mark.parametrize(
    ("base", "verdict", "words"),
    [
        ({"model_safetensors": "x", "config_json": "c"}, "differs", "other weights (model.safetensors differs)"),
        ({"model_safetensors": "b", "config_json": "x"}, "differs", "the same weights, but config.json differs"),
        ({"model_safetensors": "b"}, "differs", "the same weights, but only the first run has config.json"),
        ({"part_safetensors": "b", "config_json": "c"}, "same", "the same weights"),
        ({"model_safetensors": None, "config_json": "c"}, "unknown", "not known to be the same"),
    ],
)
def test_of_the_base_model_it_is_said_what_differs(said, base, verdict, words):
    first = make_card(base=files(model_safetensors="b", config_json="c"))
    line = said(first, make_card(base=files(**base)))["base model"]
    assert (line.verdict, line.words.startswith(f"base model: {words}")) == (verdict, True), line


@pytest.mark.parametrize(
    ("data", "verdict", "words"),
    [
        ([("one", "1"), ("two", "2")], "same", "data: the same files"),
        ([("moved", "1"), ("two", "2")], "same", "data: the same files"),
        ([("one", "1"), ("two", "9")], "differs", "data: two differs"),
        ([("one", "1")], "differs", "data: only the first run has two"),
        ([("two", "2"), ("one", "1")], "differs", "data: the train files come in another order"),
        ([("one", None), ("two", "2")], "unknown", "data: not known to be the same"),
    ],
)
def test_of_the_data_it_is_said_what_differs(said, data, verdict, words):
    first = make_card(data=row_files(("one", "1"), ("two", "2")))
    line = said(first, make_card(data=row_files(*data), tokens="o"))["data"]
    assert (line.verdict, line.words.startswith(words)) == (verdict, True), line


@pytest.mark.parametrize(("tokens", "words"), [("t", "is the same"), ("o", "differs")])
def test_of_unread_data_it_is_said_whether_the_same_is_learned(said, tokens, words):
    line = said(make_card(data=row_files(("one", None))), make_card(tokens=tokens))["data"]
    assert (line.verdict, line.words.endswith(f"; what is learned from them {words}")) == ("unknown", True), line


def test_held_out_files_are_compared_apart(said):
    first = make_card(data=[*row_files(("t", "1")), *row_files(("h", "2"), role="held out")])
    second = make_card(data=[*row_files(("t", "1")), *row_files(("h", "3"), role="held out")])
    assert said(first, second)["data"].words == "data: h differs; what is learned from them is the same"


def test_equal_files_can_be_tokenized_otherwise(said):
    assert "although the files are the same" in said(make_card(), make_card(tokens="o"))["tokenized data"].words


def test_trained_weights_are_compared_where_both_have_some(said):
    lines = said(make_card(), make_card(trained="x"))
    assert lines["trained weights"].words == "trained weights: differ"


@pytest.mark.parametrize("both", [False, True])
def test_weights_without_hashes_are_never_said_to_be_the_same(said, both):
    card = make_card()
    unread = card.model_copy(update={"result": card.result.model_copy(update={"files": []})})
    line = said(unread if both else card, unread)["trained weights"]
    assert line.verdict == "unknown"


@pytest.mark.parametrize("base", [files(config_json="c"), files(model_safetensors=None)])
def test_a_base_model_without_hashes_is_never_said_to_be_the_same(said, base):
    assert said(make_card(base=base), make_card(base=base))["base model"].verdict == "unknown"


def test_unfinished_runs_have_no_trained_weights(said):
    assert "trained weights" not in said(make_card(), make_card(result=False))


def test_a_resume_with_other_circumstances_is_told(said):
    changes = [
        FactChange(what="torch", before="2.11.0", after="2.13.0"),
        FactChange(what="base: model.safetensors", before=digest("1"), after=digest("2")),
    ]
    quiet = make_card(resumes=[Resume(t=1.0, step=4, changed=[])])
    told = make_card(resumes=[Resume(t=1.0, step=6, changed=changes)])
    lines = said(quiet, told)
    changes = "torch 2.13.0 (before: 2.11.0), another model.safetensors"
    assert lines["resume"].words == f"b continued at step 6 with {changes}"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [("1", "2", "another rows.jsonl"), ("1", None, "rows.jsonl gone or unreadable"),
     (None, "2", "rows.jsonl (not there or unreadable before)")],
)  # fmt: skip
def test_a_file_that_is_gone_is_not_called_another(before, after, words):
    change = FactChange(what="data: rows.jsonl", before=before and digest(before), after=after and digest(after))
    assert changes_text(Resume(t=1.0, step=4, changed=[change])) == words


def test_a_run_without_a_card_is_no_error(said):
    lines = said(None, make_card())
    assert list(lines) == ["card"]
    assert lines["card"].verdict == "unknown"
    assert lines["card"].words.startswith("a has no card")


def test_a_damaged_card_is_no_error(tmp_path):
    folders = [RunPaths(tmp_path / name) for name in ("a", "b")]
    for paths in folders:
        paths.root.mkdir()
        write_card(paths, make_card())
    folders[1].card.write_text("{", encoding="utf-8")
    (line,) = compare_cards(*folders)
    assert line.verdict == "unknown"
    assert "run b" in line.words
