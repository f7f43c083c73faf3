"""The stages before the first step: what is done, what is running and for how long, what is to come."""

import random
from dataclasses import replace

from app.facts.run_events import a_step, events, numbered

from burnish_app.wording.run_stages import run_facts, run_stages
from burnish_engine.contract.facts.advice import TimePart
from burnish_engine.contract.run.events import PhaseChanged, PhaseProgress, PlanMade
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.contract.wording.sentences import progress_sentence
from burnish_engine.contract.wording.tables import CHECKS


def begun(*phases, steps=0):
    lines = [PhaseChanged(phase=phase) for phase in phases]
    lines += [a_step(step, 10, random.Random(1)) for step in range(1, steps + 1)]
    timed = [event.model_copy(update={"t": 100.0 + 10 * n}) for n, event in enumerate(numbered(lines))]
    return fold_all(RunState(), timed)


def test_each_stage_has_its_time_and_the_running_one_counts():
    stages = run_stages(begun("loading", "preparing", "checking"), now=125.0)
    assert [(stage.status, stage.time) for stage in stages] == [
        ("done", "10 s"),
        ("done", "10 s"),
        ("now", "5 s"),
        ("waiting", ""),
    ]


def test_the_running_stage_says_how_far_it_is_and_the_next_one_begins_anew():
    state = begun("loading", "evaluating")
    far = fold_all(state, [PhaseProgress(done=12, total=40, seq=98, t=115.0)])
    now = [stage for stage in run_stages(far, now=120.0) if stage.status == "now"]
    assert "12 of 40" in now[0].detail
    later = fold_all(far, [PhaseChanged(phase="sampling", seq=99, t=121.0)])
    assert not any("12 of 40" in stage.detail for stage in run_stages(later, now=122.0))


def test_a_check_is_named_and_counted_from_one():
    state = begun("loading", "preparing", "weights", "checking")
    far = fold_all(state, [PhaseProgress(done=8, total=14, unit="checks", what="leak", seq=98, t=131.0)])
    (now,) = [stage for stage in run_stages(far, now=132.0) if stage.status == "now"]
    assert "9 of 14" in now.detail
    assert CHECKS["leak"] in now.detail
    unknown = fold_all(far, [PhaseProgress(done=9, total=14, unit="checks", what="of a newer version", seq=99)])
    (now,) = [stage for stage in run_stages(unknown, now=132.0) if stage.status == "now"]
    assert now.detail == str(progress_sentence(unknown.progress))


def test_stages_that_only_some_runs_have_appear_when_they_come():
    before = {stage.text for stage in run_stages(begun("loading"), now=101.0)}
    after = {stage.text for stage in run_stages(begun("loading", "preparing", "checking", "evaluating"), now=140.0)}
    assert len(after - before) == 1
    assert run_stages(RunState(), now=0.0)


def test_what_is_known_of_a_run_before_its_first_step_has_its_figures():
    state = fold_all(RunState(), events(0))
    data = state.data.model_copy(update={"truncated_rows": 3, "dropped_rows": 5})
    found = dict(run_facts(replace(state, data=data, plan=state.plan.model_copy(update={"seconds": 7200.0}))))
    assert [found[name] for name in ("Rows", "Of these", "Tokens", "Passes")] == [
        "1,144 to learn from, 60 held out", "3 cut, 5 left out", "310 k, 68 % of them learned", "93 % full",
    ]  # fmt: skip
    assert (found["Steps"], found["Predicted"]) == ("600", "5.9 GiB, 2 h")
    assert run_facts(RunState()) == []


def test_phases_after_a_step_are_not_stages_and_a_new_process_begins_anew():
    assert [event.phase for event in begun("loading", "training", steps=1).beginnings] == ["loading", "training"]
    state = begun("loading", "training", steps=2)
    later = PhaseChanged(phase="evaluating", seq=99, t=500.0)
    assert fold_all(state, [later]).beginnings == state.beginnings
    assert [event.phase for event in fold_all(state, [PhaseChanged(phase="loading", seq=99, t=500.0)]).beginnings] == [
        "loading"
    ]


def test_stages_that_the_plan_counts_are_listed_from_the_beginning_with_their_time():
    """A list that grows while one waits would be a promise that was not kept."""
    times = [
        TimePart(name="checks", count=3, seconds=30.0),
        TimePart(name="evaluations", count=2, seconds=90.0),
        TimePart(name="general_text", count=2, seconds=30.0),
        TimePart(name="prompts", count=2, seconds=40.0),
    ]
    made = PlanMade(memory_bytes=1, memory_free_bytes=1, tokens_per_s=1, seconds=1, times=times, fits=True, seq=50)
    state = fold_all(begun("loading", "preparing"), [made])
    before = run_stages(state, now=115.0)
    assert [stage.time for stage in before if stage.time.startswith("about")] == [
        "about 10 s",
        "about 60 s",
        "about 20 s",
    ]
    phases = ("weights", "checking", "evaluating", "sampling", "training")
    later = fold_all(state, [PhaseChanged(phase=phase, seq=60 + n, t=200.0 + n) for n, phase in enumerate(phases)])
    assert [stage.text for stage in run_stages(later, now=300.0)] == [stage.text for stage in before]


def test_what_is_counted_to_its_end_is_not_shown_as_counting():
    state = begun("loading", "evaluating")
    far = fold_all(state, [PhaseProgress(done=40, total=40, seq=98, t=115.0)])
    assert not any(stage.detail for stage in run_stages(far, now=120.0))
