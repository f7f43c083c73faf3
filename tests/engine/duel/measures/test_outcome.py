"""What came of a run, read from its folder: its course in stretches, with energy and events."""

import json

import pytest

from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.events import EvaluationDone, RunStarted, StepDone
from burnish_engine.duel.measures.outcome import outcome_of
from burnish_engine.duel.sides.spec import RunSpec
from burnish_engine.runs.store import create_run

SPEC = RunSpec(side=0, phase="seeds", seed=1, rate=1e-3)


def step_done(step, loss=2.0, *, rate=1e-3, supervised=50, took=1.0):
    """A step of 100 tokens; memory grows until step 50, and less is held after step 80."""
    return StepDone(
        t=1000.0 + step, step=step, epoch=0.0, loss=loss, learning_rate=rate, grad_norm=1.0, tokens=100,
        supervised_tokens=supervised, tokens_per_s=100.0, supervised_tokens_per_s=50.0, step_s=took,
        memory_bytes=(min(step, 50) - (step > 80)) * 10**6, eta_s=1.0,
    )  # fmt: skip


def run_folder(folder, events):
    paths = create_run(parse_recipe(""), folder)
    events = [event.model_copy(update={"seq": number}) for number, event in enumerate(events)]
    paths.events.write_text("".join(f"{event.model_dump_json()}\n" for event in events), encoding="utf-8")
    return paths


@pytest.mark.full
def test_the_course_is_what_steps_took_until_then(tmp_path):
    losses = [4.0 - 0.01 * step + 0.02 * (step % 3) for step in range(1, 101)]
    losses[59] = 9.0  # a spike
    start, middle, end = (
        EvaluationDone(step=step, loss=loss, tokens=10, seconds=1.0) for step, loss in ((0, 4.0), (50, 2.0), (100, 2.5))
    )
    steps = [step_done(step, loss) for step, loss in enumerate(losses, start=1)]
    paths = run_folder(tmp_path / "run", [start, *steps[:50], middle, *steps[50:], end])
    energy = tmp_path / "energy.jsonl"
    energy.write_text("".join(f"{json.dumps([1000.0 + t, 10.0 * t * t])}\n" for t in range(110)))  # ever more power
    found = outcome_of(SPEC, paths, energy)
    assert len(found.course) <= 40
    assert found.instability.total == 1
    assert found.held_out_loss == 2.5, "the last one, not the best"
    last = found.course[-1]
    assert (last.step, last.tokens, last.seconds, last.memory_bytes) == (100, 10_000, 100.0, 50 * 10**6)
    assert last.joules == pytest.approx(found.joules) == pytest.approx(100_000)
    for one in found.course:
        assert one.tokens == 100 * one.step
        assert one.tokens_per_s == pytest.approx(100.0)
        assert one.memory_bytes == min(one.step, 50) * 10**6
        assert one.joules == pytest.approx(10.0 * one.step**2)
        assert one.events == (one.step >= 60)


def test_what_was_not_measured_is_left_empty(tmp_path):
    found = outcome_of(SPEC, run_folder(tmp_path / "run", map(step_done, (1, 2, 3))), tmp_path / "none.jsonl")
    assert [(one.step, one.joules) for one in found.course] == [(1, None), (2, None), (3, None)]
    assert found.joules is None


def test_the_first_steps_of_every_process_do_not_count_for_the_speed(tmp_path):
    def started(pid, resumed=None):
        return RunStarted(
            run="r", pid=pid, process_created=1.0, device="CPU", precision="fp32", engine="plain",
            resumed_from_step=resumed, total_steps=20,
        )  # fmt: skip

    steps = [step_done(step, took=9.0 if step in (1, 2, 3, 7, 8, 9) else 0.5) for step in range(1, 13)]
    paths = run_folder(tmp_path / "run", [started(1), *steps[:6], started(2, resumed=6), *steps[6:]])
    assert outcome_of(SPEC, paths, tmp_path / "none.jsonl").tokens_per_s == pytest.approx(200.0)


def test_order_and_schedule_tell_runs_apart_but_not_by_the_size_of_the_rate(tmp_path):
    def conditions(name, rate=1e-3, **changes):
        events = [step_done(step, rate=rate * step / 3, **changes) for step in (1, 2, 3)]
        spec = SPEC.model_copy(update={"rate": rate})
        return outcome_of(spec, run_folder(tmp_path / name, events), tmp_path / "none.jsonl").conditions

    usual, faster, other_rows = conditions("a"), conditions("b", rate=2e-3), conditions("c", supervised=49)
    assert usual.schedule
    assert usual == faster
    assert usual.order != other_rows.order
    assert usual.schedule == other_rows.schedule
