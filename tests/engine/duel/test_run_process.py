"""One run of a duel as a process: where the device is busy, where it was stopped, where it cannot be started."""

import threading
import time

import pytest

from burnish_engine.contract.errors import SetupError, StoppedError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.process_end import ProcessEnd
from burnish_engine.duel import run_process
from burnish_engine.runs.jobs import actions, lease
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.store import create_run, read_state, write_state

from support.runs.tiny_runs import tiny_recipe


@pytest.fixture
def run(tmp_path):
    """A run that could be made: (folder, recipe, log)."""
    recipe = tmp_path / "r.toml"
    recipe.write_text(dump_recipe(tiny_recipe(tmp_path, max_steps=60, rows=20, epochs=60.0)), encoding="utf-8")
    return RunPaths(tmp_path / "run"), recipe, tmp_path / "log"


def nobody(state, status):
    pass


@pytest.mark.full
@pytest.mark.slow
def test_a_run_waits_in_the_queue_is_stopped_from_outside_and_goes_on(run, tmp_path):
    paths, recipe, log = run
    other = create_run(tiny_recipe(tmp_path), tmp_path / "other")
    lease.acquire("cpu", other)
    seen, errors = [], []

    def carried_out():
        try:
            run_process.run_one(paths, recipe, log, lambda state, status: seen.append((status, state.step)))
        except StoppedError as error:
            errors.append(error)

    def wait_for(condition):
        deadline = time.monotonic() + 300
        while not condition() and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)

    thread = threading.Thread(target=carried_out)
    thread.start()
    wait_for(lambda: seen and seen[-1][0] == "queued")
    lease.release(other)
    wait_for(lambda: seen and seen[-1] >= ("running", 3))
    actions.command(paths, "stop")
    thread.join(300)
    assert "queued" in {status for status, _ in seen}
    assert 0 < read_state(paths).step < 60
    assert "was stopped at step" in str(errors[0])
    run_process.run_one(paths, recipe, log, nobody)
    assert read_state(paths).status == "finished"
    run_process.discard_checkpoints(paths)
    assert not paths.checkpoints.exists()
    assert (paths.adapter / "adapter_model.safetensors").is_file()
    before = log.read_text(encoding="utf-8")
    run_process.run_one(paths, recipe, log, nobody)  # it is over: no process is started
    assert log.read_text(encoding="utf-8") == before


@pytest.mark.full
@pytest.mark.slow
def test_a_run_that_cannot_be_started_says_what_its_process_said(run, tmp_path):
    paths, recipe, log = run
    recipe.write_text("nonsense", encoding="utf-8")
    paths.root.mkdir()
    (paths.root / "half").touch()  # of a process that was killed while it made the folder
    with pytest.raises(SetupError, match=r"could not be started: .*not valid TOML"):
        run_process.run_one(paths, recipe, log, nobody)


@pytest.mark.parametrize(("code", "kind"), [(11, "DataError"), (10, "DoesNotFitError"), (None, "SetupError")])
def test_a_failure_has_the_runs_own_kind_and_words(run, code, kind):
    paths, _, log = run
    create_run(tiny_recipe(paths.root.parent), paths.root)
    failed = {"status": "failed", "exit_code": code, "message": "Row 3 is odd." if code else ""}
    write_state(paths, read_state(paths).model_copy(update=failed))
    log.write_text("last\nwords\n", encoding="utf-8")
    with pytest.raises(Exception, match="Row 3 is odd" if code else "last words") as raised:
        run_process._refuse_failure(paths, log)
    assert type(raised.value).__name__ == kind


def test_a_run_that_was_killed_is_told_with_its_cause(run):
    paths, _, log = run
    create_run(tiny_recipe(paths.root.parent), paths.root)
    pid, created = own_identity()
    gone = {"status": "running", "pid": pid, "process_created": created - 100, "heartbeat": 1000.0}
    write_state(paths, read_state(paths).model_copy(update=gone))
    paths.process_end.write_text(ProcessEnd(exit_status=-9, memory_kills=1, t=1001.0).model_dump_json())
    with pytest.raises(SetupError, match=r"interrupted.*memory was full"):
        run_process._refuse_failure(paths, log)


@pytest.mark.full
@pytest.mark.slow
def test_the_end_of_its_process_is_recorded(run):
    paths, recipe, log = run
    run_process.run_one(paths, recipe, log, nobody)
    until = time.monotonic() + 60  # the record follows the end
    while "exit_status" not in paths.process_end.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert ProcessEnd.model_validate_json(paths.process_end.read_bytes()).exit_status == 0


def test_a_diverged_run_is_over(run):
    paths, recipe, log = run
    create_run(tiny_recipe(paths.root.parent), paths.root)
    write_state(paths, read_state(paths).model_copy(update={"status": "failed", "exit_code": 13}))
    run_process.run_one(paths, recipe, log, nobody)
    assert not log.exists()
