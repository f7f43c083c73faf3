"""The time of a run: how often it evaluates, asks and saves, and what that adds to its steps."""

import pytest
from engine.advise.plan.test_plan import QWEN3_06B, dataset

from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.advise.plan.run_time import RunPace, time_parts
from burnish_engine.contract.facts.data_report import DatasetReport, TaskFit, TaskHint
from burnish_engine.contract.recipe.memory_plan import MemorySection
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_evaluation import EvaluationSection, GuardSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.scoring.recognize import suggested_section

from support.machines.made_up import cpu_machine, gpu_machine

GIB = 2**30
PACE = RunPace(step_s=1.0, look_s=1.0, evaluation_s=1.0, prompts_s=1.0, save_s=1.0, general_text_s=1.0, task_s=1.0)


def recipe(*, every=0, checkpoint_every=0, minutes=0, prompts=(), guard=None, **evaluation):
    return Recipe(
        train=TrainSection(checkpoint_every=checkpoint_every, checkpoint_minutes=minutes),
        evaluation=EvaluationSection(every=every, prompts=list(prompts), **evaluation),
        **({"guard": guard} if guard else {}),
    )


def counts(made, *, done, steps, looks=3):
    return {part.name: part.count for part in time_parts(made, PACE, done=done, steps=steps, looks=looks)}


@pytest.mark.parametrize(
    ("every", "done", "evaluations"),
    [
        (0, -1, 2), (0, 0, 1), (0, 99, 1),
        (10, -1, 11), (10, 0, 10), (10, 9, 10), (10, 10, 10), (10, 11, 9), (10, 99, 1), (10, 100, 1),
        (30, -1, 5), (30, 90, 2), (30, 91, 1), (200, -1, 2),
    ],
)  # fmt: skip
def test_evaluations_come_before_on_the_way_and_at_the_end(every, done, evaluations):
    found = counts(recipe(every=every), done=done, steps=100)
    assert found["evaluations"] == found["prompts"] == evaluations
    assert found.get("steps", 0) == 100 - max(done, 0)


@pytest.mark.parametrize(("patience", "left"), [(0, {-1: 2, 0: 1, 99: 1}), (3, {-1: 11, 0: 10, 99: 1})])
def test_general_text_is_measured_at_both_ends_or_where_early_stopping_may_keep_the_result(patience, left):
    made = recipe(every=10, patience=patience)
    for measure in ("general_text", "task"):
        assert {done: counts(made, done=done, steps=100)[measure] for done in left} == left


def test_saves_come_by_steps_or_by_minutes_whichever_are_more():
    assert counts(recipe(checkpoint_every=25), done=0, steps=100)["saves"] == 4
    assert counts(recipe(minutes=1), done=0, steps=600)["saves"] == 11
    assert counts(recipe(checkpoint_every=25, minutes=1), done=0, steps=600)["saves"] == 24


def test_what_takes_no_time_is_no_part():
    assert [part.name for part in time_parts(recipe(), RunPace(step_s=1.0), done=0, steps=9)] == ["steps"]


def planned(made, machine=None, *, held_out=100):
    facts = dataset().model_copy(update={"validation_rows": held_out, "train_rows": 1000 - held_out})
    return plan_run(made, QWEN3_06B, machine or gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB), dataset=facts)


@pytest.mark.full
@pytest.mark.parametrize("machine", [None, cpu_machine()], ids=["gpu", "cpu"])
def test_a_recipe_with_many_evaluations_takes_so_much_longer(machine):
    few, many = (planned(recipe(every=every), machine) for every in (0, 10))
    assert few.seconds == many.seconds
    one, more = (next(part for part in plan.times if part.name == "evaluations") for plan in (few, many))
    assert more.count > 5 * one.count
    assert many.total_seconds - few.total_seconds == pytest.approx((more.count - one.count) * one.seconds / one.count)


@pytest.mark.full
def test_prompts_count_and_a_run_without_held_out_rows_or_guard_has_no_such_parts():
    asked, silent = planned(recipe(prompts=["Why?"])), planned(recipe())
    assert asked.total_seconds > silent.total_seconds
    bare = recipe(guard=GuardSection(action="off"), general_text=False)
    names = {part.name for part in planned(bare, held_out=0).times}
    assert names == {"steps", "saves"}


@pytest.mark.parametrize("machine", [None, cpu_machine()], ids=["gpu", "cpu"])
def test_a_recipe_without_general_text_is_predicted_shorter(machine):
    measured, without = (planned(recipe(general_text=on), machine) for on in (True, False))
    (part,) = (part for part in measured.times if part.name == "general_text")
    assert measured.seconds == without.seconds
    assert measured.total_seconds - without.total_seconds == pytest.approx(part.seconds)
    assert 0 < part.seconds / part.count < measured.seconds  # far fewer tokens than the run has


@pytest.mark.full
@pytest.mark.parametrize("machine", [None, cpu_machine()], ids=["gpu", "cpu"])
def test_a_score_of_the_task_takes_longer_with_more_rows_and_longer_replies(machine):
    def task_s(**task):
        made = recipe().model_copy(update={"task": TaskSection(metric="exact_match", **task)})
        return sum(part.seconds for part in planned(made, machine).times if part.name == "task")

    assert 0 < task_s(max_rows=8) < task_s(max_rows=80)
    assert task_s(max_tokens=16) < task_s(max_tokens=160)
    assert task_s(max_rows=100) == task_s(max_rows=200)  # there are no more rows than are held out
    assert not [part for part in planned(recipe(), machine).times if part.name == "task"]


@pytest.mark.full
@pytest.mark.parametrize("machine", [None, cpu_machine()], ids=["gpu", "cpu"])
def test_what_preferences_are_compared_with_is_read_once_before_the_first_step(machine):
    times = {}
    for objective in ("dpo", "kto", "orpo"):
        made = recipe().model_copy(update={"preference": PreferenceSection(objective=objective)})
        plan = planned(made, machine)
        times[objective] = {part.name: part.seconds for part in plan.times}
        assert plan.total_seconds == pytest.approx(sum(times[objective].values()))
    assert "reference" not in times["orpo"]
    assert 0.2 < times["dpo"]["reference"] / (times["dpo"]["steps"] / recipe().train.epochs) < 0.6, "a forward pass"
    assert times["kto"]["reference"] == pytest.approx(2 * times["dpo"]["reference"]), "its mismatched replies too"
    left = time_parts(recipe(), RunPace(step_s=1.0, reference_s=5.0), done=0, steps=9)
    assert [part.name for part in left] == ["steps"]


SHARES = [(20, 120, 50), (200, 120, 10), (1, 8192, 1), (3, 500, 0)]


@pytest.mark.parametrize("machine", [None, cpu_machine()], ids=["gpu", "cpu"])
@pytest.mark.parametrize(("prompts", "tokens", "every"), SHARES)
def test_replies_to_fixed_prompts_take_a_small_share_of_the_run_unless_all_are_wanted(machine, prompts, tokens, every):
    """Long replies every step take most of a run where nothing limits them."""
    asked = {"prompts": ["Why?"] * prompts, "sample_tokens": tokens, "every": every}
    limited, whole = (planned(recipe(**asked, **more), machine) for more in ({}, {"sample_share": 0.0}))
    (part,), (full,) = ([one for one in plan.times if one.name == "prompts"] for plan in (limited, whole))
    assert part.seconds <= 0.0501 * limited.total_seconds
    assert part.share == pytest.approx(part.seconds / limited.total_seconds)
    assert (full.count, full.tokens, whole.samples.prompts) == (full.count, tokens, prompts)
    cut = limited.samples != whole.samples
    assert cut == (full.share > 0.05)
    assert cut == any("evaluation.sample_share" in note for note in limited.notes)
    steps = range(limited.steps + 1)
    assert part.count == sum(limited.samples.is_due(step, limited.steps) for step in steps)
    assert limited.samples.is_due(limited.steps, limited.steps)


def test_a_short_run_still_answers_briefly_at_its_end():
    made = recipe(prompts=["Why?"] * 200, every=1).model_copy(update={"train": TrainSection(max_steps=1)})
    samples = planned(made, cpu_machine()).samples
    assert [step for step in range(2) if samples.is_due(step, 1)] == [1]
    assert samples.tokens == 32
    assert 0 < samples.prompts < 200


def test_the_plan_says_how_many_replies_fit_idle_memory():
    def noted(**evaluation):
        notes = planned(recipe(**evaluation)).notes
        return [int(note.split()[1].replace(",", "")) for note in notes if "leaves idle" in note]

    (short,), (long,) = (noted(prompts=["Why?"], sample_tokens=tokens) for tokens in (100, 5000))
    assert 0 < long < short
    assert noted() == []


def test_replies_of_streamed_layers_are_predicted_slower():
    made = recipe(prompts=["Why?"])
    parts = []
    for weights in ("card", "host"):
        pinned = made.model_copy(update={"memory": MemorySection(weights=weights)})
        plan = planned(pinned.model_copy(update={"train": TrainSection(epochs=300)}))
        assert bool(plan.memory_plan.layers_on_host) == (weights == "host")
        parts += [part for part in plan.times if part.name == "prompts"]
    assert parts[1].seconds / parts[1].count > 3 * parts[0].seconds / parts[0].count


def test_without_data_the_time_is_not_known():
    plan = plan_run(Recipe(), QWEN3_06B, cpu_machine())
    assert plan.times == []
    assert plan.total_seconds is None


@pytest.mark.parametrize(("usable_rows", "takes_time"), [(3, True), (0, False)])
def test_a_suggested_score_that_is_left_out_takes_no_time(usable_rows, takes_time):
    section = suggested_section(TaskHint(metric="number", rows=20, says="Numbers."))
    fit = TaskFit(section=section, rows=usable_rows, usable_rows=usable_rows)
    report = DatasetReport(used_rows=9, task=TaskHint(metric="number", rows=20, says="Numbers."), task_fit=fit)
    facts = dataset().model_copy(update={"validation_rows": 20, "report": report})
    plan = plan_run(Recipe(task=section), QWEN3_06B, cpu_machine(), dataset=facts)
    assert ("task" in {part.name for part in plan.times}) == takes_time
