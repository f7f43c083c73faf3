"""Causes of failures with the action that leads on: every exit code and every cause of death has one."""

from typing import get_args

import pytest
from app.facts.run_events import OVERFIT, events, numbered
from app.facts.run_summaries import summary

from burnish_app.wording.causes import (
    CURES,
    CureAction,
    FailureCause,
    failure_cause,
    path_text,
    run_failure,
    unopened_text,
    unread_text,
)
from burnish_app.wording.run_text import describe_run
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.run.events import RunEnded
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.contract.run.process_end import ProcessEnd

NO_FAILURES = {ExitCode.DONE, ExitCode.STOPPED, ExitCode.FIDELITY}
"""A run does not end with the last one: it is of exports."""


def failed(code, folded=()):
    return failure_cause(summary("failed", exit_code=code), fold_all(RunState(), list(folded)))


def interrupted(**end):
    run = summary("interrupted")
    return run.model_copy(update={"process_end": ProcessEnd(t=1.0, **end)}) if end else run


def test_the_table_is_whole():
    assert set(CURES) == set(get_args(FailureCause))
    assert {cure.action for cure in CURES.values()} <= set(get_args(CureAction))
    assert all(cure.title and cure.text for cure in CURES.values())


@pytest.mark.parametrize("code", [code for code in ExitCode if code not in NO_FAILURES])
def test_every_exit_code_of_a_failed_run_has_its_cause(code):
    assert (failed(code) == "bug") == (code is ExitCode.BUG)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ExitCode.DOES_NOT_FIT, "fit"), (ExitCode.NO_SPACE, "folder"), (ExitCode.DRIVER, "resume"),
        (ExitCode.DATA, "data"), (ExitCode.ENVIRONMENT, "model"), (ExitCode.USAGE, "recipe"),
        (ExitCode.DIVERGED, "recipe"),
    ],
)  # fmt: skip
def test_the_primary_action_follows_the_exit_code(code, action):
    assert CURES[failed(code)].action == action


@pytest.mark.parametrize(
    ("end", "cause", "action"),
    [
        ({"exit_status": -9, "memory_kills": 1}, "machine_memory", "fit"),
        ({"exit_status": -9}, "killed", "resume"),
        ({"exit_status": -15}, "asked", "resume"),
        ({"exit_status": -11}, "crash", "resume"),
        ({"exit_status": 15}, "disk", "folder"),
        ({"exit_status": 3}, "ended", "resume"),
    ],
)
def test_a_death_that_was_seen_names_its_cause_and_leads_on(end, cause, action):
    run = interrupted(**end)
    assert failure_cause(run, RunState()) == cause
    assert CURES[cause].action == action
    told = describe_run(run, fold_all(RunState(), events(240)))
    assert told.headline == CURES[cause].title
    assert "Step 200 is safe" in told.detail


def test_what_nobody_saw_and_what_is_no_failure_has_no_cause():
    assert failure_cause(interrupted(), RunState()) is None
    for status in ("running", "finished", "stopped", "not responding"):
        assert failure_cause(summary(status, exit_code=15), RunState()) is None


@pytest.mark.parametrize(
    ("check", "cause"),
    [(data, "guard_data") for data in ("no_targets", "padding", "end_token")] + [("overfitting", "guard")],
)
def test_what_the_guard_found_has_its_cure(check, cause):
    found = OVERFIT.model_copy(update={"check": check})
    assert failed(ExitCode.DIVERGED, numbered([*events(5), found])) == cause


def test_the_exit_code_may_come_from_the_events_alone():
    ended = RunEnded(outcome="failed", exit_code=15, step=3, message="No space.")
    state = fold_all(RunState(), numbered([*events(3), ended]))
    assert failure_cause(summary("failed", exit_code=None), state) == "disk"


def test_the_facts_of_a_failure_are_collected():
    run = interrupted(exit_status=-9)
    facts = run_failure(run, fold_all(RunState(), events(240)))
    assert "support-desk" in facts.what
    assert "SIGKILL" in facts.process_end
    assert facts.step.startswith("240")
    assert "4090" in facts.device
    assert facts.recipe.endswith("recipe.toml")


def test_paths_are_shown_whatever_they_hold():
    assert path_text("/a\0b\nc") == r"/a\x00b\nc"
    assert len(path_text("/" + "x" * 5000)) < 100
    assert path_text("/data/rows.jsonl") == "/data/rows.jsonl"


def test_some_paths_are_named_with_their_reasons_and_the_others_counted():
    _, remedy = unopened_text({f"/data/{number}": "no such file" for number in range(5)})
    assert "/data/0: no such file." in remedy
    assert "2 paths" in remedy
    _, remedy = unopened_text({"/data/0": "no such file"})
    assert "more" not in remedy, "each is named"


def test_where_the_unread_file_is_kept_is_said():
    assert "workbench-unread-1.json" in unread_text("it is damaged", "workbench-unread-1.json")[1]
    assert unread_text("it is damaged", "")[1]
