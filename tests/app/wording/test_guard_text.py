"""Text about the guard's verdict, about what was done against trouble, and about stopping early."""

from dataclasses import replace

import pytest
from app.facts.run_events import OVERFIT, events
from app.facts.train_scenes import SHIFTED, TRAIN_SCENES

from burnish_app.wording.guard_text import (
    EarlyStoppingSettings,
    bad_steps_text,
    best_so_far,
    early_stopping_text,
    guard_verdict,
    read_early_stopping,
)
from burnish_engine.contract.run.events import BestKept, EvaluationDone, GuardReported, RolledBack, RunEnded
from burnish_engine.contract.run.fold import RunState, fold, fold_all


def state(*lines, steps=240):
    return fold_all(
        RunState(), [*events(steps), *(e.model_copy(update={"seq": 9000 + n}) for n, e in enumerate(lines))]
    )


def test_a_healthy_run_says_so_with_what_was_checked():
    assert guard_verdict(RunState()) is None
    before, later = guard_verdict(state(steps=10)), guard_verdict(state())
    assert before.status == later.status == "success"
    assert "6 checks" in before.sentence
    assert "8 checks" in later.sentence
    assert "It is training" in later.sentence
    assert "It is training" not in before.sentence
    assert "Frozen weights stay as they are" in later.checked


def test_a_verdict_says_what_the_adapter_reaches():
    text = "40.0 % of the layers' weights (attention 100 %, experts 0 %)"
    well = next(event for event in reversed(events(240)) if isinstance(event, GuardReported))
    assert text in guard_verdict(state(well.model_copy(update={"coverage": text}))).sentence


@pytest.mark.parametrize(("event", "status"), [(OVERFIT, "warning"), (SHIFTED, "error")])
def test_what_is_wrong_comes_with_cause_and_remedy(event, status):
    found = guard_verdict(state(event))
    assert (found.status, found.sentence, found.cause, found.remedy) == (
        status,
        event.sentence,
        event.cause,
        event.remedy,
    )


def test_steps_that_were_undone_are_not_told_twice():
    troubled = fold_all(RunState(), TRAIN_SCENES["troubled"][1])
    assert bad_steps_text(troubled) == "", "those are the rollback's"
    alone = fold_all(RunState(), TRAIN_SCENES["bad_loss"][1])
    assert bad_steps_text(alone).startswith("1 step without a usable gradient (step 132)")
    back = RolledBack(step=150, to_step=100, factor=0.5, reason="")
    around = replace(alone, bad_steps=(100, 101, 150, 151), rollbacks=(back,))
    assert "(step 100, 151)" in bad_steps_text(around), "the one that was gone back to, and the one after"
    many = bad_steps_text(replace(alone, bad_steps=tuple(range(1, 7))))
    assert "6 steps" in many
    assert "5 ..." in many
    assert "..." not in bad_steps_text(replace(alone, bad_steps=tuple(range(1, 6))))


def evaluation(step, loss):
    return EvaluationDone(step=step, loss=loss, tokens=9, seconds=1)


def test_stopping_early_is_told_as_it_comes_nearer():
    patient = EarlyStoppingSettings(patience=3)
    assert early_stopping_text(state(), EarlyStoppingSettings()) == ""
    assert "once 3 checks in a row bring no lower" in early_stopping_text(fold(RunState(), evaluation(0, 2.6)), patient)
    lines = [evaluation(210, 1.3), evaluation(220, 1.31), evaluation(230, 1.32)]
    assert "1.300 at step 210. It stops early after 3" in early_stopping_text(state(lines[0]), patient)
    assert early_stopping_text(state(*lines), patient).endswith(
        "2 of 3 checks without a better one; then it stops early."
    )
    assert best_so_far(state(*lines), EarlyStoppingSettings(3, min_improvement=0.5))[0] == 100, (
        "what is hardly better is not better"
    )
    kept = BestKept(step=210, loss=1.3, at_step=240, stopped_early=True)
    told = early_stopping_text(state(*lines, kept), patient)
    assert told.startswith("It stopped early at step 240")
    assert "that of step 210" in told
    ended = RunEnded(outcome="finished", exit_code=0, step=240, message="The run stopped early.")
    assert early_stopping_text(state(*lines, kept, ended), patient) == "", "it ended with these words"
    whole = kept.model_copy(update={"stopped_early": False})
    assert early_stopping_text(state(*lines, whole), patient).startswith("The result is that of step 210")


def test_the_settings_come_from_the_run_s_frozen_recipe(tmp_path):
    assert read_early_stopping(str(tmp_path)) == EarlyStoppingSettings()
    (tmp_path / "recipe.toml").write_text("[evaluation]\npatience = 4\nmin_improvement = 0.01\n", encoding="utf-8")
    assert read_early_stopping(str(tmp_path)) == EarlyStoppingSettings(4, 0.01)
    (tmp_path / "recipe.toml").write_text("[evaluation", encoding="utf-8")
    assert read_early_stopping(str(tmp_path)) == EarlyStoppingSettings()
