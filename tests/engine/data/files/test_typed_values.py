"""Typed columns of Parquet and Arrow files become the JSON values that their rows hold."""

import datetime
import json
import uuid
from decimal import Decimal

import pyarrow
import pytest
from pyarrow import ipc, parquet

from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.files.read import Table
from burnish_engine.data.rows.conversation import calls_of, messages_of, text_of, tools_in


def as_parquet(path, table):
    parquet.write_table(table, path / "rows.parquet")
    return path / "rows.parquet"


def as_arrow_stream(path, table):
    with ipc.new_stream(path / "rows.arrow", table.schema) as writer:
        writer.write_table(table)
    return path / "rows.arrow"


@pytest.fixture(params=[as_parquet, as_arrow_stream])
def rows_of(tmp_path, request):
    def rows(encoding="utf-8", **columns):
        found = find_parts([str(request.param(tmp_path, pyarrow.table(columns)))])
        return [json.loads(text) for _, text in Table(found.parts[0], encoding).raw()]

    return rows


def json_lists(*rows):
    texts = pyarrow.array([text for row in rows for text in row], pyarrow.json_())
    ends = [sum(map(len, rows[:end])) for end in range(len(rows) + 1)]
    return pyarrow.ListArray.from_arrays(ends, texts)


def test_keys_that_a_struct_adds_are_left_out_and_columns_stay(rows_of):
    calls = [{"name": "a", "arguments": {"x": 1, "y": {"z": [None, 2]}}}, {"name": "b", "arguments": {"w": ""}}]
    assert rows_of(calls=[[calls[0]], [calls[1]]], n=[None, 1]) == [
        {"calls": [calls[0]], "n": None},
        {"calls": [calls[1]], "n": 1},
    ]


def test_a_null_that_the_row_has_stays(rows_of):
    tools = json_lists(['{"default": null, "n": 1.50}', '"a"'], [])
    found = rows_of(
        whole=pyarrow.array(['{"a": null}', "null"], pyarrow.json_()),
        tools=tools,
        inner=pyarrow.StructArray.from_arrays([tools, pyarrow.array([None, "b"])], ["tools", "b"]),
        map=pyarrow.array([[("k", None), ("l", 2)], None], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    )
    kept = [{"default": None, "n": 1.5}, "a"]
    assert found == [
        {"whole": {"a": None}, "tools": kept, "inner": {"tools": kept}, "map": {"k": None, "l": 2}},
        {"whole": None, "tools": [], "inner": {"tools": [], "b": "b"}, "map": None},
    ]


@pytest.mark.parametrize(
    ("value", "kind", "right"),
    [
        ("Grüße".encode(), pyarrow.binary(), "Grüße"),
        (b"abc", pyarrow.binary(3), "abc"),
        (b"ab", pyarrow.large_binary(), "ab"),
        (datetime.date(2024, 2, 3), pyarrow.date32(), "2024-02-03"),
        (datetime.datetime(2024, 2, 3, 4), pyarrow.timestamp("ns"), "2024-02-03T04:00:00"),
        (datetime.timedelta(seconds=1.5), pyarrow.duration("us"), 1.5),
        (Decimal("1.10"), pyarrow.decimal128(5, 2), 1.1),
        (Decimal("3.00"), pyarrow.decimal128(5, 2), 3),
        (Decimal("0.1000000000000000000001"), pyarrow.decimal128(30, 22), "0.1000000000000000000001"),
        (1.5, pyarrow.float16(), 1.5),
        (uuid.UUID(int=7).bytes, pyarrow.uuid(), str(uuid.UUID(int=7))),
        ("a", pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), "a"),
        ([(1, b"x")], pyarrow.map_(pyarrow.int64(), pyarrow.binary()), {"1": "x"}),
        ({"bytes": b"\x89PNG", "path": None}, None, {"bytes": None, "path": None}),
        ({"bytes": b"\x89PNG", "path": "a.png"}, None, {"bytes": None, "path": "a.png"}),
    ],
)
def test_a_value_of_a_type(rows_of, value, kind, right):
    if isinstance(value, dict):
        kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    assert rows_of(column=pyarrow.array([value, None], kind)) == [{"column": right}, {"column": None}]


def test_bytes_are_of_the_encoding_that_the_recipe_names(rows_of):
    assert rows_of("latin-1", text=["Grüße".encode("latin-1")]) == [{"text": "Grüße"}]


@pytest.mark.parametrize(
    "read",
    [
        lambda value: text_of(value, "completion"),
        lambda value: text_of([value], "completion"),
        lambda value: messages_of([{"role": "tool", "content": value}]),
        lambda value: calls_of({"name": "a", "arguments": {"b": [value]}}),
        lambda value: tools_in([{"name": "a", "description": value}]),
    ],
)
def test_bytes_that_are_no_text_are_refused_by_name_where_they_are_read(rows_of, read):
    """And nowhere else: a column that nobody reads does no harm."""
    [row] = rows_of(answer=[b"\xff\xfe\x00"])
    with pytest.raises(RowError, match="answer"):
        read(row["answer"])


def test_a_map_with_a_key_twice_is_refused_by_name(rows_of):
    [row] = rows_of(answer=pyarrow.array([[("a", 1), ("a", 2)]], pyarrow.map_(pyarrow.string(), pyarrow.int64())))
    with pytest.raises(RowError, match="answer"):
        text_of(row["answer"], "completion")
