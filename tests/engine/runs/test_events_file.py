"""The event log survives crashes in the middle of a line."""

import errno

import pytest

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.run.events import PhaseChanged, Warned
from burnish_engine.runs.events_file import EventWriter, read_events


def test_events_come_back_in_order_with_their_numbers(tmp_path):
    writer = EventWriter(tmp_path / "e.jsonl")
    for text in ("one", "zwei ß\n"):
        writer.write(Warned(code="x", message=text))
    writer.close()
    found = list(read_events(tmp_path / "e.jsonl"))
    assert [(event.seq, event.message) for event in found] == [(0, "one"), (1, "zwei ß\n")]
    assert all(event.t > 0 for event in found)


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_line_is_skipped_by_readers_and_cut_by_the_next_writer(tmp_path, cut):
    path = tmp_path / "e.jsonl"
    writer = EventWriter(path)
    for text in ("one", "two"):
        writer.write(Warned(code="x", message=text))
    writer.close()
    path.write_bytes(path.read_bytes()[:-cut])
    assert [event.message for event in read_events(path)] == ["one"]
    writer = EventWriter(path)
    writer.write(PhaseChanged(phase="training"))
    writer.close()
    assert [event.seq for event in read_events(path)] == [0, 1]
    assert path.read_bytes().count(b"\n") == 2


def test_lines_of_newer_versions_are_skipped(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"type": "hologram", "v": 1}\n{"v": 2, "type": "phase", "phase": "training"}\n')
    assert list(read_events(path)) == []


def test_no_log_yet_is_no_events(tmp_path):
    assert list(read_events(tmp_path / "none.jsonl")) == []


def test_a_full_disk_is_told_and_leaves_no_half_line(tmp_path):
    path = tmp_path / "e.jsonl"
    writer = EventWriter(path)
    writer.write(Warned(code="x", message="one"))
    real = writer._file

    class Full:
        def fileno(self):
            return real.fileno()

        def truncate(self, size):
            return real.truncate(size)

        def write(self, data):
            return real.write(data[:10])

    writer._file = Full()
    with pytest.raises(NoSpaceError):
        writer.write(Warned(code="x", message="two"))

    class Broken(Full):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    writer._file = Broken()
    with pytest.raises(NoSpaceError, match="disk is full"):
        writer.write(Warned(code="x", message="three"))
    assert path.read_bytes().count(b"\n") == 1
    assert path.read_bytes().endswith(b"\n")
