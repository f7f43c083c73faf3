"""Text about a run in each status, and the actions that the status allows."""

import math
from typing import get_args

import pytest
from app.facts.run_events import FAILED, FINISHED, events
from app.facts.run_summaries import summary
from app.facts.train_scenes import TRAIN_SCENES

from burnish_app.state.time_left import Remaining
from burnish_app.wording.run_text import (
    RUN_STATUS_TEXT,
    describe_run,
    exchange_text,
    layers_text,
    plan_text,
    slower_text,
)
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.contract.run.events import (
    ExchangeMeasured,
    LayersPlaced,
    PhaseChanged,
    RunMeasurement,
    RunStarted,
    StepDone,
)
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.contract.run.state import ObservedStatus


def step_of(seconds):
    return StepDone(
        step=1, epoch=0, loss=1, learning_rate=0, grad_norm=1, tokens=9, supervised_tokens=9, tokens_per_s=9,
        supervised_tokens_per_s=9, step_s=seconds, memory_bytes=0, process_bytes=0, eta_s=0, seq=1,
    )  # fmt: skip


def words(status, folded=(), **changes):
    return describe_run(summary(status, **changes), fold_all(RunState(), list(folded)))


@pytest.mark.parametrize("status", get_args(ObservedStatus))
def test_every_status_has_a_text(status):
    told = words(status, events(5))
    assert told.headline
    assert RUN_STATUS_TEXT[status]


def test_an_interrupted_run_says_what_is_safe_and_can_be_resumed():
    told = words("interrupted", events(240))
    assert told.headline == "Interrupted"
    assert "Step 200 is safe. 40 later steps would be repeated." in told.detail
    assert "killed" in told.detail
    assert told.actions == ("resume",)
    assert told.status == "attention"


def test_slower_work_is_said_with_its_reason():
    assert slower_text(None) == slower_text(Remaining.about(60.0)) == ""
    alone, crowded = (Remaining(60.0, 60.0, 4.2, is_crowded=one) for one in (False, True))
    assert "4 times" in slower_text(alone)
    assert "processor" in slower_text(crowded)
    assert "processor" not in slower_text(alone)


@pytest.mark.full
def test_what_was_predicted_stands_beside_what_was_measured():
    before, during, after = (events(steps, ended=end) for steps, end in ((0, None), (240, None), (600, FINISHED)))
    assert plan_text(RunState()) == ""
    assert plan_text(fold_all(RunState(), before)) == "Memory: predicted 5.9 GiB   ·   Time: predicted 65 s"
    assert "predicted 5.9 GiB, measured 6.1 GiB" in plan_text(fold_all(RunState(), during))
    assert "Time: predicted 65 s, took 66 s" in plan_text(fold_all(RunState(), after))


@pytest.mark.full
def test_the_whole_process_is_what_counts_as_measured():
    """The context and the kernels were predicted too; torch's tensors alone would look better than it was."""
    held = [
        event.model_copy(update={"process_bytes": 7 * 2**30}) if event.type == "step" else event for event in events(9)
    ]
    assert "predicted 5.9 GiB, measured 7.0 GiB" in plan_text(fold_all(RunState(), held))
    end = FINISHED.model_copy(update={"measured": RunMeasurement(process_bytes=8 * 2**30)})
    assert "measured 8.0 GiB" in plan_text(fold_all(RunState(), events(600, ended=end)))


def test_an_interrupted_run_without_a_checkpoint_does_not_claim_a_safe_step():
    assert "No step was saved" in words("interrupted", events(20)).detail


def test_finished_and_interrupted_are_told_apart_from_not_responding():
    told = {status: words(status, events(240)) for status in ("finished", "interrupted", "not responding")}
    assert len({(item.headline, item.actions) for item in told.values()}) == 3
    assert "resume" not in told["not responding"].actions, "two processes must not own one run"


def test_a_finished_run_says_whether_it_learned():
    assert "fell from 2.610 to 1.186" in words("finished", events(600, ended=FINISHED)).detail
    later = [event.model_copy(update={"loss": 3.0}) for event in events(100) if event.type == "evaluation"]
    worse = [*events(0), later[-1]]
    assert "rose" in words("finished", worse).detail
    diverged = [*events(0), later[-1].model_copy(update={"loss": math.nan})]
    for losses in (events(0), diverged):
        assert not {"fell", "rose"} & set(words("finished", losses).detail.split())


def test_a_failed_run_says_why():
    told = words("failed", events(131, ended=FAILED), message="")
    assert "learning_rate" in told.problem
    assert "Step 100 is safe" in told.detail
    assert words("failed").problem, "even where it left no word"


def test_a_queued_run_says_for_whom_it_waits():
    assert words("queued", waits_for="/a/b/other-run").headline == "Waiting for other-run"


def test_pause_and_suspend_say_what_they_do_with_the_memory():
    assert "keeps its memory" in words("paused").detail
    assert "memory is free" in words("suspended").detail


def test_scenes_cover_what_the_train_page_shows():
    assert {run.standing for run, _ in TRAIN_SCENES.values()} >= set(get_args(ObservedStatus)) - {"created", "stopped"}


def test_a_run_on_another_machine_says_what_it_waits_for_and_that_it_may_go_on():
    waits = words("running", message="Waits in the cluster's queue (Priority).")
    assert waits.detail == "Waits in the cluster's queue (Priority)."
    assert words("running", [], where="cluster").headline == "Not begun yet"
    left = words("interrupted", events(240), message="Nobody follows the job; it may continue.")
    assert left.detail.startswith("Nobody follows the job; it may continue.")
    assert left.actions == ("resume",)


def text_of(activations, weights):
    return layers_text(RunState(layers=LayersPlaced(activations=activations, weights=weights)))


def test_layers_are_counted_by_place_and_by_what_they_do_with_activations():
    plan = "offloaded:10,narrow:17,products:1"
    line, meant = text_of(plan, "card:20,host:8")
    weights, activations = line.split("·")
    assert [word for word in weights.split() if word.isdigit()] == ["20", "8"]
    assert [word for word in activations.split() if word.isdigit()] == ["10", "17", "1"]
    assert [part.split(":")[0] for part in meant.splitlines()[:3]] == ["products", "offloaded", "narrow"]
    assert plan in meant


def test_layers_by_turns_are_counted_together_and_weights_are_on_the_card_unless_said():
    line, _ = text_of("offloaded:1,narrow:1,offloaded:1,narrow:1", "card")
    weights, activations = line.split("·")
    assert "4" in weights
    assert [word for word in activations.split() if word.isdigit()] == ["2", "2"]


def test_layers_that_gpus_share_are_counted_apart_from_those_on_each_card():
    weights, _, _ = text_of("rotated:28", "ranks:24,card:4")[0].partition("   ")
    assert weights.index("24") < weights.index("GPU") < weights.index("4 on the card")


@pytest.mark.parametrize("level", LEVEL_NAMES)
def test_every_level_has_words(level):
    assert all(text_of(f"{level}:3", "host:3"))


@pytest.mark.parametrize("plan", [("folded:3", "card"), ("narrow:3", "moon")])
def test_of_a_plan_of_a_later_version_nothing_is_said(plan):
    assert text_of(*plan) == ("", "")


def test_without_a_plan_and_on_the_cpu_nothing_is_said():
    assert layers_text(RunState()) == ("", "")
    here = RunStarted(run="a", pid=1, process_created=1, device="CPU", precision="fp32", engine="fast", total_steps=9)
    placed = LayersPlaced(activations="narrow:3", weights="card")
    assert layers_text(RunState(layers=placed, starts=(here,))) == ("", "")


def test_an_exchange_stands_beside_its_prediction_and_the_step_it_is_part_of():
    measured = ExchangeMeasured(gpus=4, form="bf16", gradient_bytes=2**20, measured_ms=12.5, expected_ms=0.5)
    line, meant = exchange_text(fold_all(RunState(), [measured, step_of(0.5)]))
    assert [part for part in line.split() if part[0].isdigit()] == ["4", "12", "0.50", "2.5"]
    assert "bf16" in meant
    assert "step" not in exchange_text(fold_all(RunState(), [measured]))[0]
    exact = measured.model_copy(update={"form": "exact"})
    assert "of a step" not in exchange_text(fold_all(RunState(), [exact, step_of(0.5)]))[0], "there are several"
    assert exchange_text(RunState()) == ("", "")


def test_a_run_that_goes_on_alone_says_no_more_what_an_exchange_took():
    measured = ExchangeMeasured(gpus=2, form="whole", gradient_bytes=2**20, measured_ms=12.5)
    again = PhaseChanged(phase="loading", seq=1)
    assert exchange_text(fold_all(RunState(), [measured]))[0]
    assert exchange_text(fold_all(RunState(), [measured, again])) == ("", "")


def test_a_job_that_waits_in_a_queue_can_be_stopped_and_says_that_it_left_it():
    """Elsewhere a run has no step and no phase until it begins there; one that began tells what is saved alone."""
    waiting = words("running", where="slurm", message="Waits in the cluster's queue (Resources).", step=0, phase="")
    assert "queue" in waiting.detail
    assert "stop" in waiting.actions
    assert waiting.headline != words("running", where="", step=0, phase="").headline
    message = "It was taken out of the cluster's queue before it began."
    assert message in words("stopped", where="slurm", message=message, step=0, phase="").detail
    assert message not in words("stopped", events(5), where="slurm", message=message).detail
