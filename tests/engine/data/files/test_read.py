import json
import os

import pytest

from burnish_engine.contract.errors import DataError, ExitCode
from burnish_engine.data.files import read
from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.files.read import Table

from support.data.tables import read_rows


def rows_of(path):
    return [(row.number, row.values) for row in read_rows(path)]


def refusal(path):
    with pytest.raises(DataError) as caught:
        for _ in read_rows(path):
            pass
    assert caught.value.exit_code is ExitCode.DATA == 11
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    return str(caught.value)


def put(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


# What is read


def test_jsonl_rows_are_numbered_by_line_and_kept_exactly(tmp_path):
    lines = [
        '{"prompt": "2024-01-02", "completion": "007"}',
        "",
        '{"prompt": "NA", "completion": "line\\u2028separator\\nand \\ud83d\\ude00"}',
        '{"prompt": 5, "completion": null, "more": {"a": [1, "b"]}}',
    ]
    path = put(tmp_path, "a.jsonl", "\r\n".join(lines))
    assert rows_of(path) == [
        (1, {"prompt": "2024-01-02", "completion": "007"}),
        (3, {"prompt": "NA", "completion": "line\u2028separator\nand 😀"}),
        (4, {"prompt": 5, "completion": None, "more": {"a": [1, "b"]}}),
    ]


def test_one_column_may_hold_many_types(tmp_path):
    values = ["text", 1, 1.5, None, True, [1, "a"], {"x": 1}, {"y": {"z": []}}, [{"role": "user"}], [{"from": 1}]]
    path = put(tmp_path, "a.jsonl", "\n".join(json.dumps({"v": value}) for value in values))
    assert [values["v"] for _, values in rows_of(path)] == values


def test_byte_order_mark_and_unicode_line_ends_inside_a_line_are_accepted(tmp_path):
    path = put(tmp_path, "a.jsonl", b"\xef\xbb\xbf" + '{"text": "a\u2028b\u0085c"}\n'.encode())
    assert rows_of(path) == [(1, {"text": "a\u2028b\u0085c"})]


@pytest.mark.parametrize(
    "content",
    ['[{"a": 1}, {"a": 2}]', '{"rows": [{"a": 1}, {"a": 2}], "note": "x", "tags": []}', '{"a": 1}\n{"a": 2}\n'],
)
def test_json_as_list_as_object_with_one_list_and_as_lines(tmp_path, content):
    assert rows_of(put(tmp_path, "a.json", content)) == [(1, {"a": 1}), (2, {"a": 2})]


def test_json_with_a_single_chat_is_one_row(tmp_path):
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    assert rows_of(put(tmp_path, "a.json", json.dumps(chat, indent=2))) == [(1, chat)]


def test_csv_keeps_values_as_text_and_numbers_rows_by_their_first_line(tmp_path):
    content = '\ufeffprompt,completion\r\n007,NA\r\n"two\r\nlines, and ""quotes""",None\r\n\r\nlast,\r\n'
    assert rows_of(put(tmp_path, "a.csv", content)) == [
        (2, {"prompt": "007", "completion": "NA"}),
        (3, {"prompt": 'two\r\nlines, and "quotes"', "completion": "None"}),
        (6, {"prompt": "last", "completion": ""}),
    ]


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")])
def test_csv_separators(tmp_path, name, separator):
    path = put(tmp_path, name, f'question{separator}"an,swer"\na, b{separator}c\n')
    assert rows_of(path) == [(2, {"question": "a, b", "an,swer": "c"})]


def test_the_index_that_pandas_writes_has_a_name(tmp_path):
    assert rows_of(put(tmp_path, "a.csv", ",a\n0,x\n")) == [(2, {"Unnamed: 0": "0", "a": "x"})]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_nan_is_a_missing_value(tmp_path, name):
    row = '{"input": NaN, "n": [Infinity, 1]}'
    path = put(tmp_path, name, f"[{row}]" if name == "a.json" else f"{row}\n")
    assert rows_of(path) == [(1, {"input": None, "n": [None, 1]})]


def test_csv_fields_may_be_long(tmp_path):
    long = "x" * 300_000
    assert rows_of(put(tmp_path, "a.csv", f"text\n{long}\n")) == [(2, {"text": long})]


def test_parquet_with_nested_messages(tmp_path):
    import pyarrow
    from pyarrow import parquet

    chats = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], []]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"messages": chats, "n": [1, None]}), path)
    assert rows_of(path) == [(1, {"messages": chats[0], "n": 1}), (2, {"messages": [], "n": None})]


def test_text_files_split_into_documents_at_blank_lines(tmp_path):
    path = put(tmp_path, "a.txt", "\r\none\r\n  two\r\n \r\n\r\nthree\r\n")
    assert rows_of(path) == [(2, {"text": "one\n  two"}), (6, {"text": "three"})]


@pytest.mark.parametrize(
    "name",
    [
        "with space.jsonl",
        "Größe 数据 [v1].jsonl",
        "a{b}!.jsonl",
        pytest.param("*?.jsonl", marks=pytest.mark.skipif(os.name == "nt", reason="not a file name on Windows")),
    ],
)
def test_any_path_is_taken_literally(tmp_path, name):
    path = put(tmp_path, f"Ordner mit Öl/{name}", '{"text": "a"}\n')
    put(tmp_path, "Ordner mit Öl/Größe 数据 v.jsonl", '{"text": "other"}\n')
    assert rows_of(path) == [(1, {"text": "a"})]


def test_a_sample_holds_whole_rows_however_long_they_are(tmp_path):
    """Rows longer than a stretch of the sample: books, of which each is a row."""
    rows = [{"text": f"{number} " + "x" * 100_000} for number in range(30)]
    table = Table(find_parts([str(put(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))]).parts[0])
    sample, scale = table.sample(160_000)
    assert 0 < len(sample) < 30
    assert all(json.loads(text) in rows for _, text in sample)
    assert len(sample) * scale == pytest.approx(30, rel=0.05)


def test_the_rows_of_a_sample_are_numbered_by_their_lines(tmp_path, monkeypatch):
    lines = [json.dumps({"n": n, "text": "x" * (n % 90)}) + "\n" * (1 + n % 2) for n in range(4000)]
    line_of = {n: 1 + n + n // 2 for n in range(4000)}
    table = Table(find_parts([str(put(tmp_path, "a.jsonl", "".join(lines)))]).parts[0])
    sample, _ = table.sample(40_000)
    assert 200 < len(sample) < 2000
    assert all(number == line_of[json.loads(text)["n"]] for number, text in sample)
    monkeypatch.setattr(read, "COUNTED_BYTES", 1000)
    estimated, _ = table.sample(40_000)
    assert [text for _, text in estimated] == [text for _, text in sample]
    assert [number for number, _ in estimated] != [number for number, _ in sample]


# What is refused


def test_missing_file(tmp_path):
    message = refusal(tmp_path / "nothing here.jsonl")
    assert "no data file" in message
    assert "nothing here.jsonl" in message


def test_folder_without_data(tmp_path):
    (tmp_path / "data.jsonl").mkdir()
    assert "holds no data file" in refusal(tmp_path / "data.jsonl")


def test_folder_with_nothing_but_empty_files(tmp_path):
    put(tmp_path, "data/a.jsonl", b"")
    assert "is empty" in refusal(tmp_path / "data")


@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_a_pipe_is_named_as_one(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    assert "pipe" in refusal(tmp_path / "a.jsonl")


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz"])
def test_unknown_kind_names_the_known_ones(tmp_path, name):
    message = refusal(put(tmp_path, name, "x"))
    assert all(ending in message for ending in (".jsonl", ".json", ".csv", ".parquet", ".txt"))


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "parquet", "txt"])
def test_empty_file(tmp_path, ending):
    assert "is empty (0 bytes)" in refusal(put(tmp_path, f"a.{ending}", b""))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", " \n\r\n\t\n"),
        ("a.json", " \n "),
        ("a.json", "[]"),
        ("a.csv", "\n\n"),
        ("a.csv", "prompt,completion\n"),
        ("a.txt", "\n \n"),
    ],
)
def test_no_rows(tmp_path, name, content):
    assert "no rows" in refusal(put(tmp_path, name, content))


def test_broken_line_names_line_column_and_excerpt(tmp_path):
    good = '{"text": "fine"}\n'
    broken = '{"text": "' + "long " * 50 + 'unquoted" oops}\n'
    message = refusal(put(tmp_path, "a.jsonl", good * 516 + broken + good))
    assert "line 517, column 271" in message
    assert 'unquoted" oops}' in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("line", "kind"), [("[1, 2]", "a list"), ('"word"', "a text"), ("17", "a number"), ("null", "null")]
)
def test_line_that_is_no_object(tmp_path, line, kind):
    message = refusal(put(tmp_path, "a.jsonl", f'{{"a": 1}}\n\n{line}\n'))
    assert "Line 3" in message
    assert f"is {kind}, not an object" in message


def test_a_line_that_is_a_bare_chat_says_how_to_write_it(tmp_path):
    assert '{"messages": ' in refusal(put(tmp_path, "a.jsonl", '[{"role": "user", "content": "Hm?"}]\n' * 2))


@pytest.mark.parametrize("content", ['[\n  {"a": 1}\n]\n', '{\n  "a": 1\n}\n', '[{"a": 1}]\n'])
def test_json_document_under_a_jsonl_name_says_so(tmp_path, content):
    assert "ending .json" in refusal(put(tmp_path, "a.jsonl", content))


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "txt"])
def test_wrong_encoding_names_line_and_byte(tmp_path, ending):
    message = refusal(put(tmp_path, f"a.{ending}", '{"a": 1}\n{"a": 2}\n{"a": "Gr\xf6\xdfe"}\n'.encode("latin-1")))
    assert "not UTF-8" in message
    assert "line 3, byte 10 is 0xF6" in message


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16", "UTF-16"), ("utf-16-be", "UTF-16"), ("utf-16-le", "UTF-16"), ("utf-32", "UTF-32")]
)
def test_utf16_is_recognized(tmp_path, encoding, name):
    mark = b"" if encoding in {"utf-16", "utf-32"} else {"be": b"\xfe\xff", "le": b""}[encoding[-2:]]
    message = refusal(put(tmp_path, "a.jsonl", mark + '{"text": "hello"}\n'.encode(encoding)))
    assert f"looks like {name}" in message


def test_nul_bytes(tmp_path):
    message = refusal(put(tmp_path, "a.jsonl", b'{"a": 1}\n{"a": "x\0y and more text to be sure"}\n'))
    assert "NUL byte in line 2 (byte 9)" in message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": [{"x": 1}], "b": [{"y": 1}]}', "2 lists of objects"),
        ('{"a": 1, "b": "c"}', "no lists of objects"),
        ("{}", "no lists of objects"),
        ('"just a text"', "a text"),
        ("12", "a number"),
    ],
)
def test_json_of_another_form_says_what_it_is(tmp_path, content, said):
    message = refusal(put(tmp_path, "a.json", content))
    assert said in message
    assert "[{...}, {...}]" in message


def test_json_list_with_something_else_in_it(tmp_path):
    assert "Item 2 of the list" in refusal(put(tmp_path, "a.json", '[{"a": 1}, "b"]'))


def test_broken_json_names_its_line(tmp_path):
    assert "line 3, column 3" in refusal(put(tmp_path, "a.json", '[\n  {"a": 1},\n  oops\n]'))


@pytest.mark.parametrize("content", ["[" * 200_000, '{"a":' * 200_000, '{"a": ' + "9" * 10_000 + "}"])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_hostile_json_is_an_error_like_any_other(tmp_path, name, content):
    refusal(put(tmp_path, name, content))


def test_csv_row_with_other_field_count_names_its_line(tmp_path):
    message = refusal(put(tmp_path, "a.csv", 'a,b\n"1\n1",2\n1,2,3\n'))
    assert "Line 4" in message
    assert "3 fields, the header has 2" in message


@pytest.mark.parametrize(("header", "said"), [("a,b,a", '"a" twice'), ("a,,b", "Column 2"), (",,", "Column 2")])
def test_csv_header(tmp_path, header, said):
    assert said in refusal(put(tmp_path, "a.csv", f"{header}\n1,2,3\n"))


def test_csv_with_an_open_quote_names_where_it_begins(tmp_path):
    assert "begins in line 3" in refusal(put(tmp_path, "a.csv", 'a,b\n1,2\n1,"open\nmore\nmore\n'))


def test_damaged_parquet(tmp_path):
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": [f"row {n}" * 20 for n in range(2000)]}), path)
    whole = path.read_bytes()
    for name, content in {
        "cut.parquet": whole[: len(whole) // 2],
        "other.parquet": b"not parquet at all",
        "middle.parquet": whole[:200] + bytes(400) + whole[600:],
    }.items():
        assert "not a whole Parquet file" in refusal(put(tmp_path, name, content))


def test_messages_are_safe_to_print(tmp_path):
    message = refusal(put(tmp_path, "a.jsonl", '{"a": "\x1b[31mred"}\n'))
    assert "\x1b" not in message
