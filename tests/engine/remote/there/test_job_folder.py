"""A job's folder there: what arrives is checked, what is kept outlives the machine."""

import hashlib
import signal
import time
from contextlib import contextmanager

import pytest

from burnish_engine.contract.errors import DataError, SetupError
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.remote.there.job import JobAttempt
from burnish_engine.remote.there.job_folder import BundleManifest, JobEnd, JobFolder
from burnish_engine.remote.there.keep import KeptCopy
from burnish_engine.remote.there.relay import Liveness, Relay
from burnish_engine.remote.there.relay_line import RelayLine, read_line, write_line


@pytest.fixture
def job(tmp_path):
    folder = JobFolder(tmp_path / "job")
    (folder.run.root / "checkpoints" / "step-000002").mkdir(parents=True)
    folder.run.state.write_text('{"run": "run"}')
    folder.run.events.write_text("{}\n{}\n")
    return folder


@contextmanager
def restored_signals():
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def checkpoint(run: RunPaths, name):
    folder = run.checkpoints / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_text(name)
    (folder / "COMPLETE").write_text("{}")


def test_what_arrived_is_checked_against_the_manifest(tmp_path):
    folder = JobFolder(tmp_path)
    with pytest.raises(SetupError, match=r"manifest\.json"):
        folder.manifest()
    (tmp_path / "data").write_bytes(b"rows")
    manifest = BundleManifest(run="r", files={"data": hashlib.sha256(b"rows").hexdigest()})
    folder.verify(manifest)
    (tmp_path / "data").write_bytes(b"rowz")
    with pytest.raises(DataError, match="data did not arrive"):
        folder.verify(manifest)


def test_the_next_attempt_finds_the_newest_whole_checkpoint_and_its_commands(job, tmp_path):
    kept = KeptCopy(job, tmp_path / "kept")
    assert kept.next_attempt() == 1
    checkpoint(job.run, "step-000002")
    kept.save_checkpoints()
    checkpoint(job.run, "step-000004")
    for file in (job.run.checkpoints / "step-000002").iterdir():
        file.unlink()
    (job.run.checkpoints / "step-000002").rmdir()
    (job.run.checkpoints / ".step-000006.partial").mkdir()
    kept.save_checkpoints()
    other = JobFolder(tmp_path / "other-machine")
    again = KeptCopy(other, tmp_path / "kept")
    assert again.next_attempt() == 2
    assert again.restore()
    assert [path.name for path in other.run.checkpoints.iterdir()] == ["step-000004"]
    assert other.run.events.read_text() == "{}\n{}\n"
    with (tmp_path / "kept" / "control.jsonl").open("ab") as inbox:
        inbox.write(b'{"name": "stop"}\n{"name": "torn')
    again.deliver_commands()
    assert other.run.control.read_text() == '{"name": "stop"}\n'
    again.deliver_commands()
    assert other.run.control.read_text() == '{"name": "stop"}\n'


def test_commands_and_the_end_of_the_attempt_before_are_not_this_ones(job, tmp_path):
    kept = KeptCopy(job, tmp_path / "kept")
    kept.next_attempt()
    kept.save()
    inbox = tmp_path / "kept" / "control.jsonl"
    inbox.write_bytes(b'{"name": "stop"}\n')
    job.write_end(JobEnd(exit_code=20, status="stopped"))
    kept.folder.write_end(JobEnd(exit_code=20, status="stopped"))
    seen = []

    class Noting(JobAttempt):
        def _work(self, attempt):
            self._beside()
            with inbox.open("ab") as file:
                file.write(b'{"name": "checkpoint"}\n')
            self._beside()
            seen.append((attempt, job.end(), kept.folder.end(), job.run.control.read_text()))
            return 0

    with restored_signals():
        Noting(job, sends=False, kept=tmp_path / "kept").run()
    assert seen == [(2, None, None, '{"name": "checkpoint"}\n')]
    assert job.record().attempt == 2


def test_there_is_nothing_to_restore_at_first(tmp_path):
    assert not KeptCopy(JobFolder(tmp_path / "job"), tmp_path / "kept").restore()


def test_the_relay_sends_what_is_new_from_where_the_reader_is(job):
    lines = []
    relay = Relay(job, lambda text: lines.append(read_line(text)), events=1)
    relay.step()
    with job.run.events.open("a") as file:
        file.write('{"n": 3}\n{"torn"')
    relay.step()
    relay.end(JobEnd(exit_code=13, status="failed", message="m", files={"card.json": "a"}))
    events = [line.text for line in lines if line.kind == "event"]
    assert events == ["{}", '{"n": 3}']
    assert (lines[-1].kind, lines[-1].exit_code, lines[-1].status, lines[-1].text) == ("end", 13, "failed", "m")


def test_another_attempt_sends_again_what_the_one_before_saved(job):
    lines = []
    relay = Relay(job, lambda text: lines.append(read_line(text)), attempt=2)
    relay.begin()
    relay.step()
    assert (lines[0].kind, lines[0].events, lines[0].attempt) == ("attempt", 2, 2)
    assert [line.kind for line in lines].count("event") == 2


def test_a_merged_recording_of_the_hardware_is_not_sent_twice(job):
    lines = []
    relay = Relay(job, lambda text: lines.append(read_line(text)), hardware_t=1.0)
    job.run.hardware.write_text('{"t": 1.0}\n{"t": 2.0}\n')
    relay.step()
    write_atomic(job.run.hardware, '{"t": 2.0}\n{"t": 3.0}\n')
    relay.step()
    assert [line.text for line in lines if line.kind == "hardware"] == ['{"t": 2.0}', '{"t": 3.0}']


def test_a_job_that_has_not_begun_is_not_lost(job):
    assert not Liveness(job).is_lost()


@pytest.mark.parametrize("text", ["", "pip says hello", "@burnish ", "@burnish {", '@burnish {"kind": "other"}'])
def test_other_output_is_no_line(text):
    assert read_line(text) is None


def test_lines_survive_the_way():
    line = RelayLine(kind="event", attempt=3, text='{"é": "\\n"}')
    assert read_line(write_line(line)) == line
    assert "\n" not in write_line(line)


def test_the_counter_moves_while_files_are_hashed(tmp_path, monkeypatch):
    monkeypatch.setattr("burnish_engine.remote.there.job._BEAT_S", 0.01)
    folder, seen = JobFolder(tmp_path), set()

    class Hashing(JobAttempt):
        def _work(self, _attempt):
            for _ in range(2000):  # a whole model takes minutes; who watches from another host gives up after 90 s
                seen.add(folder.record().beat)
                if len(seen) == 3:
                    break
                time.sleep(0.005)
            return 0

    with restored_signals():
        assert Hashing(folder, sends=False, kept=None).run() == 0
    assert len(seen) == 3
