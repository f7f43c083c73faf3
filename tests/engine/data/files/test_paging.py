"""Stretches of a file's rows: any one in any order, and no more of the file is read than that takes."""

import json

import pytest

from burnish_engine.data.files import paging
from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.files.paging import RowPager
from burnish_engine.data.files.read import Table


@pytest.fixture
def part(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"n": n}) + ("\n\n" if n == 4 else "\n") for n in range(5000)]
    path.write_text("".join(lines), encoding="utf-8")
    return find_parts([str(path)]).parts[0]


class CountedTable(Table):
    """Counts the rows that are read of it."""

    read = 0

    def raw(self):
        for row in super().raw():
            self.read += 1
            yield row


def numbers(rows):
    return [json.loads(text)["n"] for _, text in rows]


def test_any_stretch_in_any_order(part):
    pager = RowPager(Table(part))
    for start in (0, 4990, 250, 1000, 255, 4090):
        assert numbers(pager.rows(start, 20)) == list(range(5000))[start : start + 20]
    assert pager.rows(5000, 20) == []
    assert pager.rows(9000, 20) == []
    assert numbers(pager.rows(4999, 1)) == [4999]


def test_no_more_is_read_than_is_looked_at(part):
    table = CountedTable(part)
    pager = RowPager(table)
    pager.rows(0, 100)
    assert table.read < 600
    assert not pager.is_exact
    assert 4000 < pager.total < 6000, "from the size of the file"
    pager.rows(50, 100)
    assert table.read < 600, "what was read is kept"
    pager.rows(4900, 200)
    assert (pager.total, pager.is_exact) == (5000, True)


def test_the_rows_of_a_csv_are_estimated_without_their_column_names(tmp_path):
    path = tmp_path / "rows.csv"
    lines = "".join(f"{n},short\n" for n in range(10_000, 15_000))
    path.write_text(f"a_column_with_a_long_name,another_column\n{lines}", encoding="utf-8")
    pager = RowPager(Table(find_parts([str(path)]).parts[0]))
    pager.rows(0, 10)
    assert 4500 < pager.total < 5500


def test_what_was_given_up_is_read_again(part, monkeypatch):
    monkeypatch.setattr(paging, "_KEPT_CHARS", 3000)
    pager = RowPager(Table(part))
    assert numbers(pager.rows(4000, 5)) == [4000, 4001, 4002, 4003, 4004]
    assert numbers(pager.rows(0, 3)) == [0, 1, 2]
    assert numbers(pager.rows(4000, 2)) == [4000, 4001]
    assert len(pager._chunks) < 5
    assert pager.total >= 4001, "what is known of the size stays known"


def test_rows_are_found_by_their_line(part):
    pager = RowPager(Table(part))
    found = pager.find({2, 7, 4002, 9999})
    indices = [(index, row[0]) for index, row in found]
    assert (indices, numbers(row for _, row in found)) == ([(1, 2), (5, 7), (4000, 4002)], [1, 5, 4000])


def test_reading_can_be_canceled_and_begun_anew(part):
    def cancel():
        raise KeyboardInterrupt

    pager = RowPager(Table(part))
    pager.rows(0, 10)
    with pytest.raises(KeyboardInterrupt):
        pager.rows(4000, 10, cancel)
    assert numbers(pager.rows(300, 2)) == [300, 301]
