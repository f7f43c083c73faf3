"""The parent of a detached run writes down how it ended."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.process_end import ProcessEnd, death_text
from burnish_engine.runs.jobs import keeper, lease
from burnish_engine.runs.process import own_identity, start_detached
from burnish_engine.runs.store import create_run, read_state, summarize, write_state

from support.runs.tiny_runs import tiny_recipe

KILLS_ITSELF = "import os, signal; os.kill(os.getpid(), signal.{})"
NO_SIGNALS = pytest.mark.skipif(os.name == "nt", reason="no signals")


@pytest.fixture
def queue_starts(monkeypatch):
    """Count how often the keeper lets the queue be started, instead of starting a process."""
    starts = []
    monkeypatch.setattr(keeper, "start_queue", lambda: starts.append(True))
    return starts


@pytest.fixture
def kept(tmp_path, queue_starts):
    """Run Python code under a keeper in this process: code -> (what it returned, the record)."""
    names = [name for name in ("SIGINT", "SIGHUP", "SIGBREAK", "SIGTERM") if hasattr(signal, name)]
    before = {name: signal.getsignal(getattr(signal, name)) for name in names}

    def run(code):
        record = tmp_path / "process_end.json"
        code = keeper.main([str(record), sys.executable, "-S", "-c", code])
        return code, ProcessEnd.model_validate_json(record.read_bytes())

    yield run
    for name, handler in before.items():
        signal.signal(getattr(signal, name), handler)


@pytest.mark.parametrize(("code", "status", "cause"), [("raise SystemExit(15)", 15, "disk"), ("", 0, "ended")])
def test_exit_status_is_passed_on_and_recorded(kept, code, status, cause):
    returned, end = kept(code)
    assert (returned, end.exit_status, end.cause) == (status, status, cause)


@NO_SIGNALS
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        *(("SIGKILL", "killed"), ("SIGUSR1", "killed"), ("SIGSEGV", "crash"), ("SIGBUS", "crash")),
        *((name, "asked") for name in ("SIGTERM", "SIGHUP", "SIGINT")),
    ],
)
def test_a_signal_is_named(kept, name, cause):
    returned, end = kept(KILLS_ITSELF.format(name))
    assert (end.signal_name, end.cause) == (name, cause)
    assert returned == 128 + getattr(signal, name)
    assert name in death_text(end)[0]


@pytest.mark.parametrize("code", ["import os; os.abort()", "import os; os._exit(1)", ""])
def test_the_queue_is_started_where_a_process_may_not_have_done_so(kept, queue_starts, code):
    kept(code)
    assert bool(queue_starts) is bool(code)


@NO_SIGNALS
def test_a_kill_by_the_kernel_is_told_from_one_by_a_person(kept, monkeypatch):
    counts = iter([5, 6])
    monkeypatch.setattr(keeper, "_memory_kills", lambda: next(counts))
    assert kept(KILLS_ITSELF.format("SIGKILL"))[1].cause == "memory"


@NO_SIGNALS
def test_a_kill_by_the_kernel_long_before_the_end_does_not_count(kept, monkeypatch):
    counts = itertools.chain([5], itertools.repeat(6))
    monkeypatch.setattr(keeper, "_memory_kills", lambda: next(counts))
    monkeypatch.setattr(keeper, "_LOOK_S", 0.05)
    assert kept("import time; time.sleep(0.5); " + KILLS_ITSELF.format("SIGKILL"))[1].cause == "killed"


@NO_SIGNALS
def test_kills_are_counted_in_the_own_control_group(tmp_path, monkeypatch):
    groups = tmp_path / "cgroup"
    groups.write_text("2:cpu:/older/kind\n0::/user.slice/ours\n")
    monkeypatch.setattr(keeper, "_CONTROL_GROUP", groups)
    assert keeper._control_group_events() == Path("/sys/fs/cgroup/user.slice/ours/memory.events")


@pytest.mark.parametrize(
    ("status", "cause"), [(0xC0000005, "crash"), (0xC0000409, "crash"), (0xC000012D, "memory"), (1, "ended")]
)
def test_causes_by_the_codes_of_windows(status, cause):
    end = ProcessEnd(exit_status=status, t=1.0)
    assert end.cause == cause
    assert all(death_text(end))


@pytest.mark.full
@NO_SIGNALS
def test_the_parent_passes_a_termination_on_and_outlives_it(tmp_path):
    record = tmp_path / "end.json"
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(20)); print(flush=True); time.sleep(60)"
    command = [sys.executable, "-m", keeper.__name__, str(record), sys.executable, "-S", "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    process.stdout.readline()
    process.terminate()
    try:
        assert process.wait(45) == 20
    finally:
        process.kill()
        process.stdout.close()
    assert json.loads(record.read_bytes())["exit_status"] == 20


def test_a_record_of_an_earlier_process_is_not_believed():
    run = create_run(Recipe())
    pid, created = own_identity()
    gone = read_state(run).model_copy(
        update={"status": "running", "pid": pid, "process_created": created - 100, "heartbeat": 1000.0}
    )
    write_state(run, gone)
    assert summarize(run).process_end is None
    run.process_end.write_text("{}")
    assert summarize(run).process_end is None, "a process that is only begun"
    for t, known in ((999.0, False), (1001.0, True)):
        run.process_end.write_text(ProcessEnd(exit_status=-9, t=t).model_dump_json())
        assert (summarize(run).process_end is not None) is known


def test_a_detached_process_has_its_end_recorded(tmp_path):
    end, log = tmp_path / "end.json", tmp_path / "log"
    start_detached(["recipe", "no-such-command"], log, log, end)
    until = time.monotonic() + 60
    while not (end.is_file() and "exit_status" in json.loads(end.read_bytes() or b"{}")):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert json.loads(end.read_bytes())["exit_status"] == 2
    assert "no-such-command" in log.read_text()


WATCHED = """
import ctypes, os, sys
from pathlib import Path
from burnish_engine.runs.jobs.keeper import watched
with watched(Path(sys.argv[1]), Path(sys.argv[2])):
    {}
"""


def ended(file):
    """Wait for a record that is complete."""
    until = time.monotonic() + 60
    while not (file.is_file() and "exit_status" in json.loads(file.read_bytes() or b"{}")):
        assert time.monotonic() < until
        time.sleep(0.05)
    return ProcessEnd.model_validate_json(file.read_bytes())


@pytest.mark.full
@NO_SIGNALS
@pytest.mark.parametrize(
    ("death", "name", "cause"),
    [
        ("os.kill(os.getpid(), 9)", "SIGKILL", "killed"),
        ("ctypes.string_at(0)", "SIGSEGV", "crash"),
        ("os.abort()", "SIGABRT", "crash"),
    ],
)
def test_a_process_without_a_parent_of_ours_is_watched_by_a_child(tmp_path, death, name, cause):
    record, log = tmp_path / "end.json", tmp_path / "log"
    log.write_text("Fatal Python error: Bus error\n", encoding="utf-8")  # of an earlier process
    command = [sys.executable, "-c", WATCHED.format(death), str(record), str(log)]
    environment = {key: value for key, value in os.environ.items() if key != keeper.KEPT}
    assert subprocess.run(command, env=environment, check=False).returncode < 0
    end = ended(record)
    assert (end.signal_name, end.cause) == (name, cause)


@NO_SIGNALS
def test_what_waits_in_the_queue_is_started_after_a_process_was_killed(tmp_path):
    run = create_run(Recipe())
    lease.enqueue(run, "cpu")
    raw = json.loads(run.state.read_text())
    run.state.write_text(json.dumps({**raw, "v": 99}))  # a run that cannot start: its entry just leaves the queue
    command = [sys.executable, "-c", WATCHED.format(KILLS_ITSELF.format("SIGKILL"))]
    environment = {key: value for key, value in os.environ.items() if key != keeper.KEPT}
    subprocess.run([*command, str(tmp_path / "end.json"), str(tmp_path / "log")], env=environment, check=False)
    until = time.monotonic() + 60
    while lease.queue():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.full
def test_a_process_that_ends_by_itself_leaves_no_record_and_one_that_is_kept_has_no_watcher(tmp_path, monkeypatch):
    record, log = tmp_path / "end.json", tmp_path / "log"
    monkeypatch.delenv(keeper.KEPT, raising=False)
    with keeper.watched(record, log):
        until = time.monotonic() + 60
        while not record.is_file():  # the child is there
            assert time.monotonic() < until
            time.sleep(0.05)
    assert "exit_status" not in record.read_text()
    record.unlink()
    monkeypatch.setenv(keeper.KEPT, "1")
    with keeper.watched(record, log):
        pass
    assert not record.exists()


@pytest.mark.full
@NO_SIGNALS
@pytest.mark.slow
def test_a_run_in_a_terminal_has_its_end_recorded_too(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text(dump_recipe(tiny_recipe(tmp_path, max_steps=100_000, epochs=1000.0)), encoding="utf-8")
    run = RunPaths(tmp_path / "run")
    command = [sys.executable, "-P", "-m", "burnish_engine.cli.main", "train", str(recipe), "--run-dir", str(run.root)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while not (run.state.is_file() and read_state(run).step):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    ended(run.process_end)
    assert summarize(run).status == "interrupted"
    assert summarize(run).process_end.cause == "killed"
