"""What came of a run, read from its folder: its course in stretches, with energy and events."""

import json

import pytest

from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.events import StepDone
from burnish_engine.duel.measures.outcome import outcome_of
from burnish_engine.duel.sides.spec import RunSpec
from burnish_engine.runs.store import create_run

SPEC = RunSpec(side=0, phase="seeds", seed=1, rate=1e-3)


def run_folder(folder, losses, began=1000.0):
    """A run of these losses: a step a second, of 100 tokens, and memory that grows until step 50."""
    paths = create_run(parse_recipe(""), folder)
    events = [
        StepDone(
            seq=step, t=began + step, step=step, epoch=0.0, loss=loss, learning_rate=1e-3, grad_norm=1.0, tokens=100,
            supervised_tokens=50, tokens_per_s=100.0, supervised_tokens_per_s=50.0, step_s=1.0,
            memory_bytes=min(step, 50) * 10**6, eta_s=1.0,
        )
        for step, loss in enumerate(losses, start=1)
    ]  # fmt: skip
    paths.events.write_text("".join(f"{event.model_dump_json()}\n" for event in events), encoding="utf-8")
    return paths


def test_the_course_is_what_steps_took_until_then(tmp_path):
    losses = [4.0 - 0.01 * step + 0.02 * (step % 3) for step in range(1, 101)]
    losses[59] = 9.0  # a spike
    paths = run_folder(tmp_path / "run", losses)
    energy = tmp_path / "energy.jsonl"
    energy.write_text("".join(f"{json.dumps([999.0 + t, 200.0 * t])}\n" for t in range(110)))
    found = outcome_of(SPEC, paths, energy)
    assert len(found.course) <= 40
    assert found.instability.total == 1
    last = found.course[-1]
    assert (last.step, last.tokens, last.seconds, last.memory_bytes) == (100, 10_000, 100.0, 50 * 10**6)
    assert last.joules == pytest.approx(found.joules) == pytest.approx(20_000)
    for one in found.course:
        assert one.tokens == 100 * one.step
        assert one.tokens_per_s == pytest.approx(100.0)
        assert one.memory_bytes == min(one.step, 50) * 10**6
        assert one.joules == pytest.approx(200.0 * one.step)
        assert one.events == (one.step >= 60)


def test_what_was_not_measured_is_left_empty(tmp_path):
    found = outcome_of(SPEC, run_folder(tmp_path / "run", [4.0, 3.0, 2.0]), tmp_path / "none.jsonl")
    assert [(one.step, one.joules) for one in found.course] == [(1, None), (2, None), (3, None)]
    assert found.joules is None
