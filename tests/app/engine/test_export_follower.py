"""Following an export: every change is told soon, and nothing after another run is followed."""

import threading

import pytest

from burnish_app.engine import export_follower
from burnish_app.engine.export_follower import ExportFollower
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.replies import ExportJob


@pytest.fixture
def run(tmp_path):
    paths = RunPaths(tmp_path / "run")
    paths.export.mkdir(parents=True)
    return paths


@pytest.fixture
def follower(qtbot):
    made = ExportFollower()
    yield made
    made.follow("")
    qtbot.waitUntil(lambda: not following())


def following():
    return [thread for thread in threading.enumerate() if thread.name == "export-follower"]


def report(run, share, status="running"):
    write_atomic(run.export_job, ExportJob(status=status, share=share).model_dump_json(), durable=False)


@pytest.fixture
def looked_at(monkeypatch):
    """Collect what the follower found in the file, each time it looked."""
    found, read = [], export_follower.read_with_retry

    def note(path):
        found.append(read(path))
        return found[-1]

    monkeypatch.setattr(export_follower, "read_with_retry", note)
    return found


def test_each_change_is_told_once_and_half_a_file_is_none(qtbot, follower, run, looked_at):
    told = []
    follower.advanced.connect(lambda folder, job: told.append((folder, job.share, job.status)))
    follower.follow(str(run.root))
    report(run, 0.25)
    qtbot.waitUntil(lambda: len(looked_at) > 1)  # more than once at the same
    half = '{"status": "runn'
    run.export_job.write_text(half, encoding="utf-8")
    qtbot.waitUntil(lambda: looked_at[-1] == half)
    report(run, 1.0, "finished")
    qtbot.waitUntil(lambda: len(told) == 2)
    assert told == [(str(run.root), 0.25, "running"), (str(run.root), 1.0, "finished")]


def test_what_is_not_followed_any_more_is_not_told(qtbot, qapp, follower, run):
    told = []
    follower.advanced.connect(lambda *_: told.append(True))
    follower.follow(str(run.root))
    follower.follow("")
    report(run, 0.5)
    qtbot.waitUntil(lambda: not following())
    qapp.processEvents()
    assert told == []
