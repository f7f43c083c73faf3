"""A run's notes: kept whole, tidy, and never a reason for a run not to be listed."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.notes import MAX_TAGS, RunNotes, read_notes, split_tags, write_notes


def test_notes_come_back_as_they_were_written(tmp_path):
    paths = RunPaths(tmp_path)
    assert read_notes(paths) == RunNotes()
    write_notes(paths, ["keep", " keep ", "", "zu  spät"], "  längerer Text\nmit Zeilen ")
    assert read_notes(paths) == RunNotes(tags=("keep", "zu spät"), text="längerer Text\nmit Zeilen")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tags": 3}', b"\xff\xfe", b'{"v": 2}'])
def test_damaged_notes_are_neither_read_nor_overwritten(tmp_path, content):
    paths = RunPaths(tmp_path)
    paths.notes.write_bytes(content)
    for act in (lambda: read_notes(paths), lambda: write_notes(paths, ["mine"], "")):
        with pytest.raises(UsageError, match="damaged"):
            act()
    assert paths.notes.read_bytes() == content


@pytest.mark.parametrize(
    ("tags", "text"), [(["x" * 41], ""), ([str(n) for n in range(MAX_TAGS + 1)], ""), ([], "x" * 4001)]
)
def test_what_is_too_long_is_refused_and_the_former_notes_stay(tmp_path, tags, text):
    paths = RunPaths(tmp_path)
    write_notes(paths, ["mine"], "")
    with pytest.raises(UsageError, match="not kept"):
        write_notes(paths, tags, text)
    assert read_notes(paths).tags == ("mine",)


def test_the_largest_notes_are_kept_whole(tmp_path):
    tags = [f"{number}".ljust(40, "x") for number in range(MAX_TAGS)]
    assert write_notes(RunPaths(tmp_path), tags, "x" * 4000) == read_notes(RunPaths(tmp_path))
    assert read_notes(RunPaths(tmp_path)) == RunNotes(tags=tuple(tags), text="x" * 4000)


def test_repetitions_do_not_count():
    assert RunNotes(tags=("a",) * (MAX_TAGS + 1)).tags == ("a",)


def test_tags_are_typed_with_commas():
    assert split_tags("a, b c ,,d") == ["a", "b c", "d"]
