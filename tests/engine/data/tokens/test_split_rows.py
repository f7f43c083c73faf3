"""Texts longer than a row fill further rows: no token is lost, each comes once, cuts lie where something ends."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files import text_files
from burnish_engine.data.prepare import prepare
from burnish_engine.data.tokens.mix import split_row_ends
from burnish_engine.data.tokens.split_rows import split_text
from burnish_engine.data.tokens.tokenize import Encoded


def by_letter(text):
    """Each character is a token, learned but for the first."""
    ids = np.array([ord(letter) for letter in text], np.int32)
    return Encoded(ids, np.arange(len(text)) > 0, np.arange(len(text), dtype=np.int32))


def pieces_of(text, longest, bos=None):
    return ["".join(map(chr, piece.ids)) for piece, _ in split_text(text, by_letter(text), longest, bos)]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("one two three.\nfour five six", "one two three.\n"),
        ("one two. Three four five six", "one two. Three "),
        ("one two three. Four five six seven", "one two three. "),
        ("一二三四五六七八九十一二三四。五六七八九", "一二三四五六七八九十一二三四。"),
        ("one two four3 fourfivesix", "one two four3 "),
        ("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnop"),
    ],
)
def test_pieces_end_at_lines_then_sentences_then_words(text, first):
    assert pieces_of(text, 16)[0] == first
    assert "".join(pieces_of(text, 16)) == text


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(text=st.text("ab. \n。", max_size=200), longest=st.integers(16, 40), bos=st.sampled_from([None, ord("^")]))
def test_every_token_comes_once_and_later_pieces_begin_unlearned(text, longest, bos):
    found = list(split_text(text, by_letter(text), longest, bos))
    assert all(len(piece.ids) <= longest for piece, _ in found)
    plain = [piece.ids[(bos is not None and number > 0) :] for number, (piece, _) in enumerate(found)]
    assert "".join(map(chr, np.concatenate(plain))) == text
    assert [text[begin:end] for _, (begin, end) in found] == ["".join(map(chr, ids)) for ids in plain]
    supervised = sum(int(piece.supervised.sum()) for piece, _ in found)
    assert supervised == max(len(text) - len(found), 0)
    if len(found) > 1:
        assert all(piece.supervised.any() for piece, _ in found)


def test_a_character_of_several_tokens_stays_whole():
    text = "xyz" * 9
    tokens = Encoded(*(np.repeat(array, 3) for array in by_letter(text)))
    for piece, _ in list(split_text(text, tokens, 16, None))[:-1]:
        assert len(piece.ids) % 3 == 0


def prepared(path, tokenizer, **data):
    section = DataSection(files=[str(path)], **{"max_length": 64, "validation_share": 0.1, "workers": 1, **data})
    return prepare(Recipe(data=section), tokenizer)


@pytest.fixture
def book(tmp_path):
    """A text file without a blank line."""
    path = tmp_path / "book.txt"
    path.write_text("".join(f"Line {number} says that it is {number * 7}.\n" for number in range(120)))
    return path


def text_of(tokenizer, documents):
    bos = tokenizer.bos_token or ""
    return "".join(tokenizer.decode(document.input_ids).removeprefix(bos) for document in documents)


@pytest.mark.parametrize("adds_bos", [False, True])
def test_a_text_without_blank_lines_is_learned_to_its_end(book, make_tokenizer, adds_bos):
    tokenizer = make_tokenizer("zephyr", adds_bos=adds_bos)
    found = prepared(book, tokenizer, max_length=160)
    facts, report = found.facts, found.facts.report
    assert text_of(tokenizer, [*found.train, *found.validation]) == book.read_text().rstrip("\n") + tokenizer.eos_token
    assert len(found.validation) == round(0.1 * (len(found.train) + len(found.validation))), "the end is held out"
    assert (facts.rows, report.used_rows, report.training_rows, report.held_out_rows) == (1, 1, 1, 0)
    assert (report.tokens_lost, facts.truncated_rows) == (0, 0)
    assert [line.rows_cut for line in report.cut_lines] == [0]
    [finding] = [finding for finding in report.findings if finding.kind == "continued"]
    assert finding.rows == 1
    assert f"{len(found.train) + len(found.validation) - 1} further rows" in finding.says
    assert all(tokenizer.decode(document.input_ids).endswith(".\n") for document in found.train)
    if adds_bos:
        assert {int(document.input_ids[0]) for document in found.train} == {tokenizer.bos_token_id}


@pytest.mark.full
def test_a_cut_says_the_share_of_tokens_it_loses(book, write_jsonl, make_tokenizer):
    tokenizer = make_tokenizer()
    chat = {"messages": [{"role": "user", "content": "Say?"}, {"role": "assistant", "content": book.read_text()}]}
    for path, settings_ in ((book, {"overlong": "truncate"}), (write_jsonl([chat]), {})):
        facts = prepared(path, tokenizer, **settings_).facts
        lost = f"{facts.report.tokens_lost / (facts.report.tokens_lost + facts.tokens):.1%}"
        [finding] = [finding for finding in facts.report.findings if finding.kind == "overlong"]
        assert facts.report.tokens_lost > 1000
        assert lost in finding.says
        assert any(lost in warning and "cut to 64 tokens" in warning for warning in facts.warnings)


@pytest.mark.full
def test_documents_of_text_files_stay_bounded(book, make_tokenizer, monkeypatch):
    tokenizer = make_tokenizer()
    monkeypatch.setattr(text_files, "LONGEST_TEXT_CHARS", 1000)
    found = prepared(book, tokenizer, validation_share=0.3)
    assert found.facts.rows == found.facts.report.used_rows > 3
    rows = sorted([*found.train, *found.validation], key=lambda document: document.row)
    assert text_of(tokenizer, rows).replace(tokenizer.eos_token, "\n") == book.read_text()
    assert {document.row for document in found.train}.isdisjoint({document.row for document in found.validation})


def test_ends_are_held_out_only_where_rows_are_few():
    groups = np.repeat([3, 5, 9], [10, 1, 30])
    train, held_out = split_row_ends(groups, 0.1)
    assert held_out.tolist() == [9, 38, 39, 40]
    assert sorted([*train, *held_out]) == list(range(41))
    assert split_row_ends(groups, 0.4) is None
    assert split_row_ends(np.arange(3), 0.3) is None


GOOD = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
line = st.text("ab .", min_size=1, max_size=60)
chats = st.tuples(line, st.text("ab .", max_size=90)).map(
    lambda pair: {"messages": [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]}
)


@pytest.mark.full
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.one_of(st.lists(line.map(lambda text: {"text": text}), max_size=12), st.lists(chats, max_size=12)),
    share=st.sampled_from([0.0, 0.05, 0.3, 0.5]),
    options=st.fixed_dictionaries(
        {
            "overlong": st.sampled_from(["auto", "truncate", "drop", "split"]),
            "duplicates": st.sampled_from(["keep", "drop", "drop_near"]),
            "leaks": st.sampled_from(["keep", "drop"]),
            "degenerate": st.sampled_from(["keep", "drop"]),
            "weights": st.sampled_from([[], [0.5], [2.5]]),
        }
    ),
)
def test_every_row_is_trained_on_or_held_out_or_left_out(write_jsonl, make_tokenizer, rows, share, options):
    good = [{"text": f"good {number}"} if rows and "text" in rows[0] else GOOD for number in range(2)]
    path, tokenizer = write_jsonl([*good, *rows, *rows[:2]]), make_tokenizer()
    try:
        found = prepared(path, tokenizer, max_length=24, validation_share=share, **options)
    except DataError:
        return
    facts, report = found.facts, found.facts.report
    train, held_out = ({document.row for document in documents} for documents in (found.train, found.validation))
    assert len(train) == report.training_rows
    assert len(held_out - train) == report.held_out_rows
    assert report.training_rows + report.held_out_rows == report.used_rows
    assert facts.rows == len(rows) + len(rows[:2]) + 2 == report.used_rows + sum(facts.dropped.values())
    named = {place.row for places in facts.dropped_examples.values() for place in places}
    assert named.isdisjoint(train | held_out)
