"""Folding events: series, resumes, repeats, bad numbers, and that old states keep showing what they showed."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish_engine.contract.facts.task_score import TaskScore
from burnish_engine.contract.run.columns import numbers
from burnish_engine.contract.run.events import (
    BestKept,
    CheckpointSaved,
    CommandDone,
    EvaluationDone,
    HeldOutPairsDone,
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    RolledBack,
    RunEnded,
    RunMeasurement,
    RunStarted,
    SampleDone,
    StepDone,
    TaskScored,
    Warned,
)
from burnish_engine.contract.run.fold import RunState, fold, fold_all


def numbered(*events, start=0):
    return [event.model_copy(update={"seq": start + n}) for n, event in enumerate(events)]


def started(resumed=None, pid=1):
    return RunStarted(
        run="r", pid=pid, process_created=1.0, device="CPU", precision="fp32", engine="plain",
        resumed_from_step=resumed, total_steps=20,
    )  # fmt: skip


def step(number, loss=2.0):
    return StepDone(
        step=number, epoch=0.1, loss=loss, learning_rate=1e-4, grad_norm=1.0, tokens=100, supervised_tokens=50,
        tokens_per_s=10.0 * number, supervised_tokens_per_s=5, step_s=1, memory_bytes=2**20, eta_s=5,
    )  # fmt: skip


def evaluation(number, loss):
    return EvaluationDone(step=number, loss=loss, tokens=10, seconds=1)


def scored(number, *passed):
    return TaskScored(step=number, score=TaskScore(metric="json", passed=list(passed)), seconds=1)


def sample(number):
    return SampleDone(step=number, prompt="p", reply=f"at {number}", stopped=True)


def run(*events):
    return fold_all(RunState(), numbered(*events))


def test_progress_is_that_of_the_present_phase():
    told = (PhaseChanged(phase="preparing"), PhaseProgress(done=3, total=8))
    assert run(*told).progress.done == 3
    assert run(*told, PhaseProgress(done=5, total=8)).progress.done == 5
    assert run(*told, PhaseChanged(phase="loading")).progress is None
    assert run(*told, RunEnded(outcome="stopped", exit_code=20, step=0, message="", seconds=1.0)).progress is None


def test_steps_become_aligned_columns():
    state = run(started(), step(1, 3.0), step(2, 2.5))
    assert list(state.steps.step.values()) == [1, 2]
    assert list(state.steps.loss.values()) == [3.0, 2.5]
    assert list(state.steps.tokens_per_s.values()) == [10.0, 20.0]
    assert (state.step, state.total_steps, state.last_step.loss) == (2, 20, 2.5)


def test_an_event_read_twice_counts_once():
    events = numbered(started(), step(1), step(2))
    state = fold_all(RunState(), events)
    assert fold_all(state, events) is state


def test_steps_lost_with_a_process_are_cut_when_the_run_goes_on():
    before = run(
        started(), evaluation(0, 3.0), sample(0), *[step(n) for n in range(1, 4)],
        CheckpointSaved(step=3, path="c", seconds=1),
        step(4, 9.0), step(5, 9.0), evaluation(5, 8.0), sample(5),
    )  # fmt: skip
    assert before.saved_step == 3
    after = fold(before, started(resumed=3).model_copy(update={"seq": 100}))
    assert list(after.steps.step.values()) == [1, 2, 3]
    assert list(after.evaluations.step.values()) == [0]
    assert [item.step for item in after.samples.items()] == [0]
    assert (after.step, after.saved_step, len(after.starts)) == (3, 3, 2)
    again = fold(after, step(4, 1.0).model_copy(update={"seq": 101}))
    assert list(again.steps.loss.values()) == [2.0, 2.0, 2.0, 1.0]
    assert list(before.steps.loss.values()) == [2.0, 2.0, 2.0, 9.0, 9.0], "the former state still shows what it showed"


def test_checkpoints_are_listed_without_those_that_were_undone():
    saved = [CheckpointSaved(step=number, path="c", seconds=1) for number in (2, 4, 4, 6)]
    state = run(started(), *saved)
    assert list(state.checkpoints.values()) == [2, 4, 6]
    back = RolledBack(step=7, to_step=4, factor=0.5, reason="r", seq=9)
    assert list(fold(state, back).checkpoints.values()) == [2, 4]
    assert list(fold(state, started(resumed=2).model_copy(update={"seq": 9})).checkpoints.values()) == [2]


def test_a_run_that_starts_from_nothing_again_shows_nothing_of_before():
    before = started(), evaluation(0, 3.0), sample(0), step(1), step(2)
    state = run(*before, started(pid=2), evaluation(0, 2.9), sample(0))
    assert len(state.steps.step) == 0
    assert list(state.evaluations.loss.values()) == [2.9]
    assert len(state.samples) == 1
    assert state.last_step is None
    assert state.saved_step is None


def test_a_repeated_step_replaces_the_former():
    state = run(started(), step(1, 3.0), step(2, 9.0), step(2, 2.0), step(3, 1.0))
    assert list(state.steps.loss.values()) == [3.0, 2.0, 1.0]


def test_bad_numbers_are_kept_and_counted():
    state = run(started(), step(1), step(2, math.nan), step(3, math.inf))
    losses = state.steps.loss.values()
    assert math.isnan(losses[1])
    assert math.isinf(losses[2])
    assert state.bad_steps == (2, 3)
    assert fold_all(state, numbered(step(2), start=9)).bad_steps == (2, 3), "what happened stays marked"
    assert fold(state, started(2).model_copy(update={"seq": 9})).bad_steps == (2,)


def test_a_loss_scale_that_is_being_found_is_no_bad_step():
    skipped = step(1).model_copy(update={"grad_norm": math.inf})
    assert run(started(), skipped).bad_steps == (1,)
    assert run(started().model_copy(update={"precision": "fp16"}), skipped).bad_steps == ()


def test_a_run_that_went_back_shows_what_counts_and_where():
    back = RolledBack(step=3, to_step=1, factor=0.5, reason="Step 3 was bad.")
    state = run(started(), step(1, 3.0), evaluation(1, 3.0), step(2, 2.5), evaluation(2, 9.0), step(3, math.nan), back)
    assert list(state.steps.step.values()) == [1]
    assert list(state.evaluations.step.values()) == [1]
    assert (state.rollbacks, state.bad_steps) == ((back.model_copy(update={"seq": 6}),), (3,))
    again = fold(state, started(1).model_copy(update={"seq": 50}))
    assert again.rollbacks == state.rollbacks, "it is still so after a restart"


def test_a_run_that_went_back_to_the_beginning_keeps_what_the_untrained_model_was_worth():
    back = RolledBack(step=2, to_step=0, factor=0.5, reason="Step 2 was bad.")
    state = run(started(), evaluation(0, 3.0), sample(0), step(1), evaluation(1, 9.0), step(2), started(), back)
    assert list(state.evaluations.step.values()) == [0]
    assert [item.step for item in state.samples.items()] == [0]
    assert state.rollbacks


def test_engines_that_began_are_told_from_processes():
    back = RolledBack(step=9, to_step=6, factor=0.5, reason="Step 9 was bad.")
    resumed = run(started(), *map(step, range(1, 6)), started(3, pid=2), *map(step, range(4, 10)), started(6, pid=2))
    state = fold(resumed, back.model_copy(update={"seq": 90}))
    assert (len(state.starts), state.processes, state.begins) == (3, 2, (0, 3, 6))
    again = fold(state, started(3, pid=3).model_copy(update={"seq": 91}))
    assert (again.processes, again.begins) == (3, (0, 3)), "of what begins at step 6, no step counts any more"


def test_the_peak_of_memory_is_that_since_the_prediction():
    plan = PlanMade(memory_bytes=1, memory_free_bytes=1, tokens_per_s=1, seconds=1, fits=True)
    high, low = (step(1).model_copy(update={"process_bytes": held}) for held in (9, 5))
    ended = RunEnded(outcome="finished", exit_code=0, step=1, measured=RunMeasurement(process_bytes=6))
    assert run(high, low).peak_bytes == 9
    assert run(high, plan).peak_bytes == 0
    assert run(high, plan, low, ended).peak_bytes == 6


def test_the_best_step_that_one_process_kept_is_not_the_result_of_the_next():
    kept = BestKept(step=1, loss=1.0, at_step=2, stopped_early=False)
    before = run(started(), step(1), step(2), CheckpointSaved(step=2, path="c", seconds=1), kept)
    assert before.best.loss == 1.0
    assert fold(before, started(2, pid=2).model_copy(update={"seq": 50})).best is None


def test_what_is_saved_is_what_the_run_went_on_from():
    saved = CheckpointSaved(step=3, path="c", seconds=1)
    before = run(started(), step(1), step(2), step(3), saved, step(4))
    assert before.saved_step == 3
    assert fold(before, started(3, pid=2).model_copy(update={"seq": 50})).saved_step == 3
    assert fold(before, started(1, pid=2).model_copy(update={"seq": 50})).saved_step == 1, "the newest was damaged"
    assert fold(before, started(None, pid=2).model_copy(update={"seq": 50})).saved_step is None


def test_phases_and_ends():
    ended = RunEnded(outcome="failed", exit_code=13, step=4, message="It diverged.")
    state = run(started(), PhaseChanged(phase="training"), step(1), ended)
    assert (state.phase, state.ended.message) == ("", "It diverged.")
    loading = fold(state, PhaseChanged(phase="loading", seq=50))
    assert loading.ended is None, "a phase after the end comes from a new process"
    assert fold(loading, started(1).model_copy(update={"seq": 51})).phase == "loading"


def test_warnings_and_refused_commands():
    refused = CommandDone(id="1", name="pause", accepted=False, detail="It is paused already.")
    state = run(Warned(code="data", message="One."), Warned(code="x", message="Two."), refused)
    assert [warning.message for warning in state.warnings.items()] == ["One.", "Two."]
    assert state.refused.detail == "It is paused already."
    assert fold(state, CommandDone(id="2", name="pause", accepted=True, seq=9)).refused is None
    assert fold(state, started(pid=2).model_copy(update={"seq": 9})).refused is None, "nobody asked the new process"


@pytest.mark.full
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(allow_nan=False))))
@settings(max_examples=60, deadline=None)
def test_a_column_behaves_as_an_unshared_list(moves):
    """Whatever was appended to or cut from whichever view, every view shows its own numbers."""
    views = [(numbers(), [])]
    for which, value in moves:
        column, plain = views[which % len(views)]
        views.append((column.append(value), [*plain, value]) if which < 4 else (column.cut(1), plain[:1]))
    for column, plain in views:
        assert list(column.values()) == plain
        assert len(column) == len(plain)


@pytest.mark.full
@pytest.mark.parametrize("size", [1000, 64_000])
def test_folding_a_step_costs_the_same_in_a_long_run(size):
    import sys

    state = run(started(), *[step(n) for n in range(1, size)])
    longer = fold(state, step(size).model_copy(update={"seq": size + 1}))
    assert longer.steps.loss._data is state.steps.loss._data, "nothing was copied"
    assert sys.getsizeof(longer) < 1000


def test_figures_of_preferences_are_columns_and_missing_ones_are_no_numbers():
    figures = {"margin": 0.5, "accuracy": 1.0, "kl": None, "sft_loss": 2.5}
    pairs = [step(1).model_copy(update=figures), step(2)]
    held_out = EvaluationDone(step=2, loss=0.7, tokens=9, seconds=0.1, margin=0.25, kl_to_base=0.125)
    state = fold_all(RunState(), numbered(*pairs, held_out))
    assert state.steps.margin.values()[0] == 0.5
    assert state.steps.sft_loss.values()[0] == 2.5
    assert [math.isnan(value) for value in state.steps.margin.values()] == [False, True]
    assert math.isnan(state.steps.kl.values()[0])
    assert list(state.evaluations.margin.values()) == [0.25]
    assert list(state.evaluations.kl_to_base.values()) == [0.125]


def pairs_at(number, accuracy):
    return HeldOutPairsDone(step=number, pairs=9, accuracy=accuracy, chosen_loss=1.0)


def test_figures_of_the_result_are_those_of_the_step_that_was_kept():
    told = [started()]
    for number, loss in ((2, 0.5), (4, 0.4), (6, 0.6)):
        figures = {"margin": loss * 10, "accuracy": None if number == 2 else 0.5 + number / 100}
        told += [step(number), evaluation(number, loss).model_copy(update=figures), pairs_at(number, number / 10)]
    last, kept = run(*told), run(*told, BestKept(step=4, loss=0.4, at_step=6, stopped_early=True))
    assert [state.of_result(state.evaluations.accuracy) for state in (last, kept)] == [0.56, 0.54]
    assert kept.of_result(kept.evaluations.margin) == 4.0
    assert [state.held_out_pairs.step for state in (last, kept)] == [6, 4]
    first = run(*told, BestKept(step=2, loss=0.5, at_step=6, stopped_early=True))
    assert first.of_result(first.evaluations.accuracy) is None
    unknown = run(*told, BestKept(step=3, loss=0.5, at_step=6, stopped_early=True))
    assert (unknown.of_result(unknown.evaluations.margin), unknown.held_out_pairs) == (None, None)
    assert run(started()).of_result(run(started()).evaluations.margin) is None


def test_measured_pairs_that_were_undone_do_not_count():
    state = run(started(), step(2), pairs_at(2, 0.5), started(resumed=1, pid=2), step(2))
    assert state.held_out_pairs is None
    again = run(started(), step(2), pairs_at(2, 0.5), pairs_at(2, 0.75))
    assert again.held_out_pairs.accuracy == 0.75


@pytest.mark.parametrize(("whole", "known"), [(30.0, 30.0), (0.0, 20.0)])
def test_the_predicted_time_of_a_run_is_that_of_its_steps_where_no_more_is_known(whole, known):
    plan = PlanMade(memory_bytes=1, memory_free_bytes=2, tokens_per_s=1, seconds=20, total_seconds=whole, fits=True)
    assert plan.run_s == known


def test_the_score_of_the_task_is_that_before_training_and_of_the_result():
    begun = run(started(), scored(0, False, False), step(1), scored(1, True, False))
    assert (begun.task.before.right, begun.task.after.right) == (0, 1)
    on = fold_all(begun, numbered(step(2), start=5))
    assert on.task is None  # the result so far is not scored
    kept = fold_all(on, numbered(BestKept(step=1, loss=1.0, at_step=2, stopped_early=True), start=6))
    assert kept.task.after.right == 1


def test_scores_of_steps_that_were_undone_are_gone():
    state = run(started(), scored(0, False), step(1), step(2), scored(2, True), started(resumed=1))
    assert [one.step for one in state.task_scores] == [0]
    again = fold_all(state, numbered(step(2), scored(2, False), scored(2, True), start=6))
    assert [one.step for one in again.task_scores] == [0, 2]
    assert again.task.after.right == 1
