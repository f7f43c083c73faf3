"""Following an export: every change is told soon, and nothing after another run is followed."""

import pytest

from burnish_app.export_follower import ExportFollower
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.protocol import ExportJob


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


def report(run, share, status="running"):
    write_atomic(run.export_job, ExportJob(status=status, share=share).model_dump_json(), durable=False)


def test_each_change_is_told_once_and_half_a_file_is_none(qtbot, follower, run):
    told = []
    follower.advanced.connect(lambda folder, job: told.append((folder, job.share, job.status)))
    follower.follow(str(run.root))
    report(run, 0.25)
    qtbot.waitUntil(lambda: len(told) == 1)
    run.export_job.write_text('{"status": "runn', encoding="utf-8")
    qtbot.wait(700)
    report(run, 1.0, "finished")
    qtbot.waitUntil(lambda: len(told) == 2)
    assert told == [(str(run.root), 0.25, "running"), (str(run.root), 1.0, "finished")]


def test_what_is_not_followed_any_more_is_not_told(qtbot, follower, run):
    told = []
    follower.advanced.connect(lambda *_: told.append(True))
    follower.follow(str(run.root))
    follower.follow("")
    report(run, 0.5)
    qtbot.wait(700)
    assert told == []
