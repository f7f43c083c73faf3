"""Following a run's folder: lines that come in pieces, files that come late, folders that go."""

import shutil

import pytest

from burnish_app.engine import run_follower
from burnish_app.engine.run_follower import EventsReader, RunFollower
from burnish_engine.contract.facts.hardware import hardware_line_json
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run import growing_file
from burnish_engine.contract.run.events import RunEnded, Warned
from burnish_engine.contract.run.state import RunStateFile

from support.machines.hardware import made_up


def line(seq):
    return Warned(code="x", message=f"warning {seq} é", seq=seq).model_dump_json().encode() + b"\n"


def messages(state):
    return [warning.message for warning in state.warnings.items()]


@pytest.fixture
def paths(tmp_path):
    root = tmp_path / "run"
    root.mkdir()
    return RunPaths(root)


@pytest.fixture
def follower(qapp):
    made = RunFollower()
    yield made
    made.stop()


def test_only_whole_lines_count(paths):
    reader = EventsReader(paths.events)
    assert not reader.read(), "the file is not there yet"
    whole = line(0) + line(1)
    cut = whole.index("é".encode()) + len(line(0)) + 1  # in the middle of a letter of the second line
    paths.events.write_bytes(whole[:cut])
    assert reader.read()
    assert messages(reader.state) == ["warning 0 é"]
    paths.events.write_bytes(whole)
    reader.read()
    assert messages(reader.state) == ["warning 0 é", "warning 1 é"]
    assert not reader.read()


def test_lines_of_another_version_are_skipped(paths):
    paths.events.write_bytes(b'{"type": "from_the_future"}\n' + line(0) + b"\x00\x00\n" + line(1))
    reader = EventsReader(paths.events)
    reader.read()
    assert len(messages(reader.state)) == 2
    assert reader.skipped == 2


def test_a_file_that_became_shorter_is_read_anew(paths):
    paths.events.write_bytes(line(0) + line(1))
    reader = EventsReader(paths.events)
    reader.read()
    paths.events.write_bytes(line(0))
    reader.read()
    assert messages(reader.state) == ["warning 0 é"]


def test_the_follower_tells_of_what_is_there_and_of_what_comes(qtbot, paths, follower):
    paths.events.write_bytes(line(0))
    paths.state.write_text(RunStateFile(run="run", status="running").model_dump_json())
    states, summaries = [], []
    follower.advanced.connect(lambda folder, state: states.append((folder, state)))
    follower.state_file.connect(lambda folder, state: summaries.append(state.status))
    follower.follow(str(paths.root))
    qtbot.waitUntil(lambda: len(states) == 1 and summaries == ["running"])
    with paths.events.open("ab") as file:
        file.write(
            line(1) + RunEnded(outcome="finished", exit_code=0, step=1, seq=2).model_dump_json().encode() + b"\n"
        )
    paths.state.write_text(RunStateFile(run="run", status="finished").model_dump_json())
    qtbot.waitUntil(lambda: summaries == ["running", "finished"] and states[-1][1].ended is not None)
    assert states[-1][0] == str(paths.root)
    assert len(messages(states[0][1])) == 1, "what was told before stays as it was"


def test_memory_that_a_long_read_leaves_free_goes_back_to_the_system(qtbot, paths, follower, monkeypatch):
    states, returned = [], []
    monkeypatch.setattr(run_follower, "return_free_memory", lambda: returned.append(True))
    monkeypatch.setattr(run_follower, "_MANY_PIECES", 3)
    monkeypatch.setattr(run_follower, "_DRAWN_S", 0.0)
    monkeypatch.setattr(growing_file, "_PIECE_BYTES", 2 * len(line(0)))
    follower.advanced.connect(lambda _folder, state: states.append(len(messages(state))))
    paths.events.write_bytes(line(0))
    follower.follow(str(paths.root))
    qtbot.waitUntil(lambda: states == [1])
    with paths.events.open("ab") as file:
        file.write(line(1))
    qtbot.waitUntil(lambda: states == [1, 2])
    assert not returned, "not after a short read"
    with paths.events.open("ab") as file:
        file.write(b"".join(line(number) for number in range(2, 9)))
    qtbot.waitUntil(lambda: states[-1] == 9 and bool(returned))


def test_samples_of_the_hardware_come_too_those_that_are_there_and_those_that_follow(qtbot, paths, follower):
    told, lines = [], [hardware_line_json(one) + "\n" for one in made_up(seconds=4)]
    follower.hardware.connect(lambda folder, history: told.append((folder, history)))
    paths.hardware.write_text("".join(lines[:4]), encoding="utf-8")
    follower.follow(str(paths.root))
    qtbot.waitUntil(lambda: bool(told) and len(told[-1][1]) == 2)
    with paths.hardware.open("a", encoding="utf-8") as file:
        file.write("".join(lines[4:]))
    qtbot.waitUntil(lambda: len(told[-1][1]) == 4)
    assert told[-1][0] == str(paths.root)
    assert told[-1][1].gpus[0].facts.name


def test_a_folder_that_goes_is_told(qtbot, paths, follower):
    paths.events.write_bytes(line(0))
    with qtbot.waitSignal(follower.advanced):
        follower.follow(str(paths.root))
    with qtbot.waitSignal(follower.gone):
        shutil.rmtree(paths.root)


def test_following_another_run_leaves_the_first(qtbot, paths, follower, tmp_path):
    other = RunPaths(tmp_path / "other")
    other.root.mkdir()
    other.events.write_bytes(line(0))
    paths.events.write_bytes(line(0))
    told = []
    follower.advanced.connect(lambda folder, state: told.append((folder, len(messages(state)))))
    follower.follow(str(paths.root))
    qtbot.waitUntil(lambda: len(told) > 0)
    follower.follow(str(other.root))
    with paths.events.open("ab") as file:
        file.write(line(1))
    for number in (1, 2, 3):  # while the other is looked at again and again, so would the first be
        qtbot.waitUntil(lambda number=number: (str(other.root), number) in told)
        with other.events.open("ab") as file:
            file.write(line(number))
    assert [count for folder, count in told if folder == str(paths.root)] == [1]
