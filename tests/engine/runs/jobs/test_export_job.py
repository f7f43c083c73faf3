"""The export's own file: one writer, readers that can tell a crash, one export at a time."""

import time
from types import SimpleNamespace

import pytest

from burnish_engine.contract.errors import FidelityError, StoppedError, UsageError
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.process_end import ProcessEnd
from burnish_engine.contract.serve.replies import ExportJob
from burnish_engine.runs.jobs import export_job
from burnish_engine.runs.jobs.export_job import (
    ExportReporter,
    cancel_export,
    is_exporting,
    read_export_job,
    start_export,
)


@pytest.fixture
def run(tmp_path):
    return RunPaths(tmp_path)


@pytest.fixture
def clock(monkeypatch):
    """Seconds of the reporter's clock; it stands unless a test advances it."""
    now = [100.0]
    monkeypatch.setattr(export_job, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    return now


def test_progress_and_end_are_told(run, clock):
    assert read_export_job(run) is None
    with ExportReporter(run, "gguf", ["Q8_0"]) as reporter:
        assert is_exporting(run)
        assert (read_export_job(run).quants, read_export_job(run).share) == (["Q8_0"], 0.0)
        clock[0] += 0.3
        reporter.progress("Checking", 0.5)
        for _ in range(100):
            reporter.progress("Checking", 0.6)  # not each written: the file lies on a disk
        assert read_export_job(run).share == 0.5
        reporter.finished("/files")
    job = read_export_job(run)
    assert (job.status, job.share, job.message, job.exit_code, job.pid) == ("finished", 1.0, "/files", 0, None)
    assert not is_exporting(run)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (FidelityError("Not the model.", "Again."), "failed", 14),
        (StoppedError("Stopped."), "canceled", 20),
        (KeyboardInterrupt(), "canceled", 20),
        (ValueError("odd"), "failed", 1),
    ],
)
def test_every_end_is_told(run, error, status, code):
    with pytest.raises(type(error)), ExportReporter(run, "gguf", []):
        raise error
    job = read_export_job(run)
    assert (job.status, job.exit_code) == (status, code)
    assert (str(error) in job.message) if status == "failed" else (job.message == "")


REPORT = FidelityReport(
    model="m", architecture="llama", token_strings=1, token_mismatches=0, files=[], passed=False, adapter_sha256="a"
)


def test_the_report_and_what_is_suggested_reach_the_reader_and_a_report_also_where_files_are_refused(run):
    with ExportReporter(run, "gguf", []) as reporter:
        reporter.finished("/files", REPORT, suggested="Q8_0", why="It is the closest.")
    job = read_export_job(run)
    assert (job.report, job.suggested, job.why) == (REPORT, "Q8_0", "It is the closest.")
    with pytest.raises(FidelityError), ExportReporter(run, "gguf", []) as reporter:
        reporter.attach(REPORT)
        raise FidelityError("Not the model.", "Again.")
    assert read_export_job(run).report == REPORT


def test_one_export_at_a_time(run):
    with ExportReporter(run, "gguf", []):
        with pytest.raises(UsageError, match="exported already"), ExportReporter(run, "adapter", []):
            pass
        assert read_export_job(run).to == "gguf"  # the refused one left no word
    with ExportReporter(run, "adapter", []):
        assert read_export_job(run).to == "adapter"


def test_canceling(run, clock):
    with pytest.raises(UsageError, match="not being exported"):
        cancel_export(run)
    run.export.mkdir()
    run.export_cancel.touch()  # left over from an export that was killed
    with ExportReporter(run, "gguf", []) as reporter:
        assert not reporter.canceled()
        cancel_export(run)
        clock[0] += 0.25
        assert reporter.canceled()
    assert not run.export_cancel.exists()


def test_canceling_while_the_process_starts(run, monkeypatch):
    monkeypatch.setattr(export_job, "start_detached", lambda *_: 0)
    run.adapter.mkdir()
    (run.adapter / "adapter_model.safetensors").touch()
    run.export.mkdir()
    run.export_cancel.touch()  # left over from an export that was killed
    start_export(run, "gguf", ["Q8_0"])
    assert not run.export_cancel.exists()
    cancel_export(run)
    with ExportReporter(run, "gguf", ["Q8_0"]) as reporter:
        assert reporter.canceled()


@pytest.mark.parametrize(
    ("job", "age_s", "status"),
    [
        (ExportJob(status="running", pid=2**22 + 1, process_created=1.0), 1, "failed"),
        (ExportJob(status="running"), 1, "running"),
        (ExportJob(status="running"), 3600, "failed"),
        (ExportJob(status="finished", pid=1, process_created=1.0), 1, "finished"),
    ],
    ids=["process gone", "starting", "never came up", "over"],
)
def test_a_job_is_read_with_its_process(run, job, age_s, status):
    run.export.mkdir()
    write_atomic(run.export_job, job.model_copy(update={"started": time.time() - age_s}).model_dump_json())
    assert read_export_job(run).status == status


def test_damage_is_no_job(run):
    run.export.mkdir()
    for content in (b"", b"{", b'{"status": "odd"}', b"\xff\xfe"):
        run.export_job.write_bytes(content)
        assert read_export_job(run) is None


def test_nothing_to_export_is_told_at_once(run):
    with pytest.raises(UsageError, match="no adapter yet"):
        start_export(run, "gguf", [])
    assert not run.export_job.exists()


def test_every_choice_reaches_the_process(run, monkeypatch):
    asked = []
    monkeypatch.setattr(export_job, "trained_of", lambda paths: paths.adapter)
    monkeypatch.setattr(export_job, "start_detached", lambda arguments, *_: asked.append(arguments))
    choices = {"importance": False, "merge_onto": "dequantized", "size_limit_mb": 400.0}
    start_export(run, "ollama", ["Q8_0", "Q4_0"], "desk", **choices)
    run.export_job.unlink()
    start_export(run, "gguf", [])
    assert asked == [
        ["export", str(run.root), "--to", "ollama", "--quant", "Q8_0", "--quant", "Q4_0", "--name", "desk",
         "--no-importance", "--merge-onto", "dequantized", "--size-limit", "400"],
        ["export", str(run.root), "--to", "gguf"],
    ]  # fmt: skip


@pytest.mark.parametrize(("t", "known"), [(1001.0, True), (999.0, False)])
def test_an_export_whose_process_was_killed_says_by_what(run, t, known):
    """A record from before this export is of another process."""
    run.export.mkdir()
    job = ExportJob(status="running", started=1000.0, pid=2**22 + 1, process_created=1.0)
    write_atomic(run.export_job, job.model_dump_json())
    run.export_end.write_text(ProcessEnd(exit_status=-9, memory_kills=1, t=t).model_dump_json())
    found = read_export_job(run)
    assert found.status == "failed"
    assert ("memory was full" in found.message) is known
    assert (found.process_end is not None) is known
