"""Runs through the server: started, followed, commanded, queued, exported; all of it outlives the server."""

import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from burnish_engine.channel.job import Job
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, parse_recipe
from burnish_engine.contract.run.events import RunEnded, StepDone
from burnish_engine.contract.serve.run_requests import StartRequest
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.jobs import actions, trash
from burnish_engine.runs.jobs.lease import holder_of
from burnish_engine.runs.store import create_run, open_run
from burnish_engine.service.run_requests import RunRequests

from support.app.serve import Server, wait_for

LONG = {"max_steps": 0, "epochs": 1000.0, "checkpoint_every": 5}


def with_train(recipe, **values):
    parsed = parse_recipe(recipe)
    return dump_recipe(parsed.model_copy(update={"train": parsed.train.model_copy(update=values)}))


def standing(server, folder):
    return next(run for run in server.result("runs").runs if run.folder == folder).standing


def until(server, folder, *wanted):
    return wait_for(lambda: (found := standing(server, folder)) in wanted and found)


def steps_of(folder):
    return max((event.step for event in read_events(open_run(folder).events) if isinstance(event, StepDone)), default=0)


@pytest.mark.full
def test_what_was_deleted_long_ago_goes_when_a_server_starts(burnish_home):
    old, new = create_run(Recipe(name="old")), create_run(Recipe(name="new"))
    for paths in (old, new):
        trash.discard(paths)
    (entry,) = (old.root.parent / ".trash").glob(f"*-{old.root.name}")
    entry.rename(entry.with_name(f"1000000000000-{old.root.name}"))
    with Server():
        wait_for(lambda: not trash.holds(old.root))
    assert trash.holds(new.root)


def test_a_run_outlives_its_server_is_commanded_killed_and_resumed_and_others_wait(no_runs, recipe):
    import psutil

    with Server() as ended:
        first = ended.result("start", recipe=with_train(recipe, **LONG)).run
        until(ended, first, "running")
        ended.process.kill()
        ended.process.wait()
    server = no_runs
    assert standing(server, first) == "running"
    second, third = (server.result("start", recipe=recipe).run for _ in range(2))
    assert until(server, second, "queued") == "queued"
    waiting = next(run for run in server.result("runs").runs if run.folder == second)
    assert waiting.waits_for == first
    until(server, third, "queued")
    server.result("command", run=third, command="stop")
    assert standing(server, third) == "stopped"  # taken back before it began
    assert "Stop it first" in server.failure("delete", run=first).remedy

    wait_for(lambda: steps_of(first) > 0)
    assert server.result("command", run=first, command="pause").detail
    until(server, first, "paused")
    paused_at = steps_of(first)
    time.sleep(0.5)  # in which several steps would be made
    assert steps_of(first) == paused_at
    server.result("resume", run=first)
    until(server, first, "running")
    wait_for(lambda: steps_of(first) > paused_at)
    server.result("command", run=first, command="suspend")
    until(server, first, "suspended")
    # What waited starts by itself, and its end is told like any other.
    assert until(server, second, "finished", "failed") == "finished"
    whole_run_is_told_and_deleted(server, second, recipe)

    server.result("resume", run=first)
    until(server, first, "running")
    wait_for(lambda: list(open_run(first).checkpoints.glob("*/COMPLETE")))
    pid = next(run for run in server.result("runs").runs if run.folder == first).state.pid
    psutil.Process(pid).kill()
    assert until(server, first, "interrupted")
    assert holder_of("cpu") is None
    server.result("resume", run=first)
    until(server, first, "running")
    server.result("command", run=first, command="stop_now")
    until(server, first, "stopped")


def whole_run_is_told_and_deleted(server, folder, recipe):
    events = list(read_events(open_run(folder).events))
    assert [event.step for event in events if isinstance(event, StepDone)] == list(range(1, 7))
    assert isinstance(events[-1], RunEnded)
    run = next(run for run in server.result("runs").runs if run.folder == folder)
    assert run.model == parse_recipe(recipe).model.path
    assert run.state.loss > 0
    assert "finished" in server.failure("resume", run=folder).what
    assert "finished" in server.failure("command", run=folder, command="pause").what
    server.result("delete", run=folder)
    assert folder not in {run.folder for run in server.result("runs").runs}
    assert not Path(folder).exists()


@pytest.mark.parametrize("anyway", [False, True])
def test_a_run_that_shall_start_anyway_is_not_judged_and_goes_on_saying_so(monkeypatch, recipe, anyway):
    judged, started = [], []
    monkeypatch.setattr(
        actions, "start", lambda _recipe, *, anyway=False: started.append(anyway) or SimpleNamespace(root="run")
    )
    plans = SimpleNamespace(require_fit=lambda *_: judged.append(True))
    child = SimpleNamespace(end_if_idle=lambda: None)
    request = StartRequest(id="1", recipe=recipe, anyway=anyway)
    assert RunRequests(plans, child, child).start(request, Job("1", print)).run == "run"
    assert (bool(judged), started) == (not anyway, [anyway])


def test_what_cannot_fit_is_refused(no_runs, recipe):
    huge = with_train(recipe, micro_batch_tokens=2**24)
    refused = no_runs.failure("start", recipe=huge)
    assert refused.exit_code == 10
    assert "micro_batch_tokens" in refused.what + refused.remedy
    assert no_runs.result("runs").runs == []


def test_mistakes_are_told_before_a_run_is_made(no_runs, recipe):
    parsed = parse_recipe(recipe)
    no_data = dump_recipe(parsed.model_copy(update={"data": parsed.data.model_copy(update={"files": []})}))
    assert "no training files" in no_runs.failure("start", recipe=no_data).what
    assert no_runs.failure("start", recipe="[model]\npath = 'no/such'").exit_code == 2
    assert no_runs.result("runs").runs == []


@pytest.mark.full
def test_data_that_cannot_be_read_fails_the_run_with_its_reason(no_runs, recipe, tmp_path):
    parsed = parse_recipe(recipe)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{broken\n", encoding="utf-8")
    data = parsed.data.model_copy(update={"files": [str(bad)], "validation_files": []})
    folder = no_runs.result("start", recipe=dump_recipe(parsed.model_copy(update={"data": data}))).run
    assert until(no_runs, folder, "failed") == "failed"
    (run,) = no_runs.result("runs").runs
    assert run.state.exit_code == 11
    assert "bad.jsonl" in run.state.message


@pytest.mark.full
def test_a_list_of_many_runs_is_whole(no_runs, finished_run):
    for number in range(200):
        target = user_data_dir() / "runs" / f"run-{number}"
        target.mkdir(parents=True)
        for name in ("recipe.toml", "state.json"):
            shutil.copy(finished_run / name, target / name)
    assert len(no_runs.result("runs").runs) == 200


def job_of(server, run):
    return next(one for one in server.result("runs").runs if one.folder == str(run.root)).export


def exported(server, run):
    wait_for(lambda: (job := job_of(server, run)) and job.status != "running")
    return job_of(server, run)


@pytest.mark.full
def test_an_export_is_forecast_reports_outlives_its_server_and_ends_with_its_proof(warm_server, run):
    server, types = warm_server, ["Q8_0", "Q4_0"]
    forecast = server.result("forecast", run="tuned", quants=types, name="mine", importance=False).forecast
    assert [stage.what for stage in forecast.stages[-2:]] == ["Making Q4_0", "Checking Q4_0"]
    assert forecast.disk_bytes > sum(forecast.sizes.values())
    assert server.failure("forecast", run="nobody").exit_code == 2
    limit = (forecast.sizes["Q4_0"] + forecast.sizes["Q8_0"]) / 2e6
    with Server() as ended:
        ended.result("export", run="tuned", quants=types, name="mine", importance=False, size_limit_mb=limit)
        ended.process.kill()
        ended.process.wait()
    first = job_of(server, run)
    assert (first.status, first.quants) == ("running", types)
    assert "being exported already" in server.failure("export", run="tuned").what
    assert "being exported" in server.failure("delete", run="tuned").what
    shares = []

    def ended():
        job = job_of(server, run)
        shares.append(job.share)
        return job.status != "running" and job

    job = wait_for(ended)
    assert (job.status, job.share, job.exit_code) == ("finished", 1.0, 0), job.message
    assert shares == sorted(shares)
    assert any(0 < share < 1 for share in shares)
    assert job.report.passed
    assert {quant: (run.export / f"mine-{quant}.gguf").stat().st_size for quant in types} == forecast.sizes
    assert job.report.importance_tokens == 0
    assert job.suggested == "mine-Q4_0.gguf"
    assert "Best for" in job.why
    server.result("delete", run="tuned")


@pytest.mark.full
def test_an_export_can_be_canceled(warm_server, run):
    assert warm_server.failure("cancel_export", run="tuned").exit_code == 2
    warm_server.result("export", run="tuned", quants=["Q8_0", "Q6_K", "Q5_0", "Q4_0"])
    wait_for(lambda: job_of(warm_server, run).pid)
    warm_server.result("cancel_export", run="tuned")
    job = exported(warm_server, run)
    assert job.status == "canceled"
    assert not list(run.export.glob("*.gguf"))
    assert not run.export_cancel.exists()


@pytest.mark.full
def test_an_export_whose_process_is_killed_was_interrupted(warm_server, run):
    import psutil

    warm_server.result("export", run="tuned", quants=["Q8_0", "Q6_K", "Q5_0", "Q4_0"])
    pid = wait_for(lambda: job_of(warm_server, run).pid)
    psutil.Process(pid).kill()
    job = exported(warm_server, run)
    assert job.status == "failed"
    assert "interrupted" in job.message
    warm_server.result("export", run="tuned", to="safetensors")
    job = exported(warm_server, run)
    assert (job.status, job.report) == ("finished", None), job.message


@pytest.mark.full
def test_an_export_that_cannot_be_says_why(warm_server, run):
    weights = run.adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    warm_server.result("export", run="tuned")
    job = exported(warm_server, run)
    assert (job.status, job.exit_code) == ("failed", 12)
    assert "adapter" in job.message
    weights.unlink()
    assert "no adapter yet" in warm_server.failure("export", run="tuned").what


@pytest.mark.long
@pytest.mark.parametrize("to", ["adapter", "ollama"])
def test_other_kinds_of_export(warm_server, run, to):
    warm_server.result("export", run="tuned", to=to, quants=["Q8_0"] if to == "ollama" else [])
    job = exported(warm_server, run)
    assert job.status == "finished", job.message
    assert (job.report is not None) == (to == "ollama")


@pytest.mark.full
def test_a_file_that_is_not_there_is_not_handed_over(warm_server, run):
    assert set(warm_server.result("programs").programs) <= {"ollama", "lm_studio"}
    for name in ("no-such.gguf", "../card.json", str(run.card)):
        assert "no file" in warm_server.failure("hand_over", run="tuned", file=name, program="ollama").what
