"""Malformed rows and files of every kind: an error or a report, never a crash, and no row that vanishes."""

import gzip
import io
import json
import zipfile

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.prepare import prepare

GOOD = {"messages": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello."}]}

ODD_VALUES = [
    None,
    True,
    False,
    0,
    -1,
    1e308,
    10**30,
    "",
    " ",
    "text",
    "\x00",
    "\u2028",
    "\ud83d",
    "<|im_end|>",
    "{",
    "[",
    "[]",
    "{}",
    "[[",
    "null",
    [],
    {},
    [[]],
    [{}],
    [None],
    [1],
    ["a"],
    {"role": "user"},
    {"content": "a"},
    [{"role": "user"}],
    [{"role": None, "content": "a"}],
    [{"role": 5, "content": "a"}],
    [{"role": "user", "content": {}}],
    [{"role": "user", "content": []}],
    [{"role": "user", "content": [1]}],
    [{"role": "user", "content": [{"type": "image"}]}],
    [{"role": "assistant", "content": "a", "tool_calls": "x"}],
    [{"role": "assistant", "tool_calls": [{}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}],
    [{"role": "assistant", "function_call": 7}],
    [{"role": "assistant", "content": "a", "weight": 0.5}],
    [{"role": "assistant", "content": "a", "weight": "x"}],
    [{"role": "tool", "content": {"a": 1}}],
    [{"role": "wizard", "content": "x"}],
    [["a"]],
    [["a", "b"]],
    [["a", 1]],
    [[None, None]],
    {"a": {"b": {"c": []}}},
    [[[[[[]]]]]],
    "x" * 5000,
    "😀" * 300,
    "a b " * 500,
    float("nan"),
    float("inf"),
]
"""Put in the place of a column, a list of turns, a turn, a role, a content, tools."""
COLUMNS = ["messages", "tools", "system", "role", "content", "turn", "extra"]

LINES = [
    b"",
    b" ",
    b"\t",
    b"\r",
    b"{",
    b"}",
    b"[",
    b"]",
    b"{}",
    b"[]",
    b"null",
    b"true",
    b"1",
    b'"text"',
    b"NaN",
    b"{'a': 1}",
    b'{"a": }',
    b'{"a": 1,}',
    b'{"a" 1}',
    b'{"a": 1} {"a": 2}',
    b'{"a": "\x01"}',
    b'{"a": "\xff"}',
    b"\xff\xfe",
    b"\xc3(",
    b"\x00",
    b'{"a": "\x00"}',
    b"\xef\xbb\xbf{}",
    b'{"a": "\\ud83d"}',
    b'{"a": "\\x"}',
    b'{"messages": [',
    b"# note",
    b"{" * 5000,
    b"[" * 100_000,
    b'{"a": ' + b"9" * 5000 + b"}",
    b'{"a": 1e999}',
    b"<html>",
    b"a,b,c",
    b'"a","b',
    b"\\",
    b'{"messages": null, "messages": []}',
    b"---",
    b"\xe2\x80\xa8",
    b'{"text": "a"}',
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"PAR1",
]
"""Put in the place of a line."""
ENDINGS = ["jsonl", "json", "csv", "tsv", "txt", "md", "parquet", "arrow", "jsonl.gz", "csv.zst", "zip", "xlsx", ""]


def kinds():
    return len(ODD_VALUES) * len(COLUMNS) + len(LINES) * 6 + len(ENDINGS)


def accounted(path, tokenizer, **data):
    """Prepare a file; whatever comes of it, every row is accounted for. Returns the facts, or None for a refusal."""
    section = DataSection(files=[str(path)], max_length=64, validation_share=0.1, workers=1, **data)
    try:
        facts = prepare(Recipe(data=section), tokenizer).facts
    except BurnishError as error:
        assert error.what.endswith(".")
        assert "\n" not in error.what.replace("\\n", "")
        return None
    assert facts.rows == facts.report.used_rows + sum(facts.dropped.values())
    assert facts.report.used_rows == facts.report.training_rows + facts.report.held_out_rows
    pieces = data.get("overlong", "auto") in ("auto", "split")
    assert pieces or facts.report.used_rows == facts.train_rows + facts.validation_rows
    assert all(1 <= len(facts.dropped_examples[reason]) <= 50 for reason in facts.dropped)
    return facts


def with_odd(column, value):
    if column in ("messages", "tools", "system", "extra"):
        return {**GOOD, column: value}
    if column == "turn":
        return {"messages": [value, *GOOD["messages"]]}
    return {"messages": [{**GOOD["messages"][0], column: value}, GOOD["messages"][1]]}


def test_there_are_at_least_two_hundred_kinds():
    assert kinds() >= 200


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("column", COLUMNS)
def test_every_odd_value_in_every_place(write_jsonl, make_tokenizer, column, tmp_path):
    """One file a place, with every odd value among good rows; what JSON cannot spell is spelled as Python does."""
    tokenizer = make_tokenizer()
    rows = [GOOD, *(with_odd(column, value) for value in ODD_VALUES), GOOD]
    path = tmp_path / f"{column}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    facts = accounted(path, tokenizer)
    assert facts.rows == len(rows)
    assert facts.report.used_rows >= 2
    for value in ODD_VALUES:
        alone = tmp_path / "alone.jsonl"
        alone.write_text(json.dumps(with_odd(column, value)) + "\n", encoding="utf-8")
        accounted(alone, tokenizer)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "tsv", "txt", "md"])
def test_every_odd_line_among_good_ones(tmp_path, make_tokenizer, ending):
    tokenizer = make_tokenizer()
    good = json.dumps(GOOD).encode()
    if ending in ("csv", "tsv"):
        good = b"a,b" if ending == "csv" else b"a\tb"
    head = {"csv": b"prompt,completion\n", "tsv": b"prompt\tcompletion\n"}.get(ending, b"")
    for number, line in enumerate(LINES):
        path = tmp_path / f"{number}.{ending}"
        path.write_bytes(head + good + b"\n" + line + b"\n" + good + b"\n")
        accounted(path, tokenizer)
        facts = accounted(path, tokenizer, broken_rows="drop")
        if ending == "jsonl":
            filled = line.strip(b" \t\r\n")
            assert facts.rows == 2 + bool(filled and filled.decode("utf-8", "replace").strip())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_with_what_it_does_not_say(tmp_path, make_tokenizer, ending):
    tokenizer = make_tokenizer()
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({"messages": [GOOD["messages"]] * 3}), buffer)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.jsonl", json.dumps(GOOD))
    contents = [
        json.dumps(GOOD).encode(),
        buffer.getvalue(),
        buffer.getvalue()[:100],
        packed.getvalue(),
        gzip.compress(b"{}"),
    ]
    for number, content in enumerate([*contents, b"\x00" * 100, b"\xff\xfeh\x00i\x00", b"\x80" * 50, b"\n" * 50]):
        path = tmp_path / (f"{number}.{ending}" if ending else str(number))
        path.write_bytes(content)
        accounted(path, tokenizer)
        accounted(path, tokenizer, broken_rows="drop", encoding="utf-16")


values = st.recursive(
    st.one_of(st.sampled_from(ODD_VALUES), st.text(max_size=8), st.integers(), st.floats(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["role", "from", "content", "value", "messages", "text", "name", "tool_calls", "x"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
names = st.sampled_from(
    [
        *("messages", "conversations", "text", "prompt", "completion", "question", "answer", "instruction", "input"),
        *("output", "chosen", "rejected", "label", "system", "tools", "history", "reasoning", "x", "", " Text "),
    ]
)
turns = st.fixed_dictionaries(
    {},
    optional={
        "role": st.one_of(st.sampled_from(["user", "assistant", "system", "tool", "human", "x"]), values),
        "content": st.one_of(st.text(max_size=8), values),
        "tool_calls": values,
        "reasoning_content": values,
        "weight": st.sampled_from([0, 1, True, None, 0.5, "1"]),
        "function_call": values,
        "tool_call_id": values,
    },
)
odd_chats = st.fixed_dictionaries(
    {"messages": st.lists(turns, max_size=5)}, optional={"tools": values, "system": values}
)
table_rows = st.lists(st.one_of(odd_chats, st.dictionaries(names, values, max_size=4)), min_size=1, max_size=6)


@pytest.mark.full
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=table_rows,
    junk=st.lists(st.sampled_from(LINES), max_size=2),
    shape=st.sampled_from(["auto", "messages", "alpaca", "prompt_completion", "preference", "kto", "text"]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "overlong": st.sampled_from(["auto", "truncate", "drop", "split"]),
            "duplicates": st.sampled_from(["keep", "drop", "drop_near"]),
            "degenerate": st.just("drop"),
            "secrets": st.just("drop"),
            "leaks": st.just("drop"),
            "learn": st.sampled_from(["responses", "last", "everything"]),
            "broken_rows": st.just("drop"),
        },
    ),
)
def test_whatever_rows_hold_they_are_accounted_for(tmp_path, make_tokenizer, rows, junk, shape, options):
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps(row).encode() for row in [GOOD, *rows, GOOD]]
    path.write_bytes(b"\n".join([*lines, *junk]) + b"\n")
    accounted(path, make_tokenizer(), shape=shape, **options)


@pytest.mark.full
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.binary(max_size=300), ending=st.sampled_from(ENDINGS), drop=st.booleans())
def test_whatever_bytes_a_file_holds_it_is_read_or_refused(tmp_path, make_tokenizer, content, ending, drop):
    path = tmp_path / (f"file.{ending}" if ending else "file")
    path.write_bytes(content)
    accounted(path, make_tokenizer(), broken_rows="drop" if drop else "stop")
