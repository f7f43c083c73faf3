"""A run's curves, axis, marks and tables, from its events."""

import math
import random

import numpy as np
import pytest
from app.facts.run_events import a_step, events, numbered
from app.facts.train_scenes import TRAIN_SCENES

from burnish_app.curves.curve import Curve
from burnish_app.curves.marks import run_marks
from burnish_app.curves.run_axis import START, run_axis
from burnish_app.curves.run_curves import run_curves
from burnish_app.curves.tables import csv_text, curve_table, tab_text
from burnish_engine.contract.run.events import RunStarted
from burnish_engine.contract.run.fold import RunState, fold_all


def state_of(lines):
    return fold_all(RunState(), lines)


def steps(numbers, *, begin=0.0, took=2.0, tokens=100):
    """Return steps of equal length, with a clock that began at `begin`."""
    chance = random.Random(1)
    for at, number in enumerate(numbers, 1):
        yield a_step(number, 100, chance).model_copy(
            update={"tokens": tokens, "step_s": took, "t": begin + took * at, "seq": number}
        )


def test_the_axis_counts_tokens_and_time_up_to_each_step():
    axis = run_axis(state_of(steps([1, 2, 3], begin=1000)))
    assert list(axis.x("step", [0, 1, 3])) == [0, 1, 3]
    assert list(axis.x("tokens", [0, 1, 3])) == [0, 100, 300]
    assert list(axis.x("time", [0, 1, 2.5])) == [0, 2, 5]
    assert axis.step("tokens", 250) == 2.5
    assert axis.nearest(2.4) == 2
    assert list(axis.steps_at([0.0, 1003.0, 9999.0])) == [0, 1.5, 3]


def test_each_curve_has_its_own_figures_over_the_steps():
    lines = [one.model_copy(update={"tokens_per_s": 700.0 + one.seq}) for one in steps([1, 2, 4])]
    curves = run_curves(state_of(lines))
    for name in ("loss", "learning_rate", "grad_norm", "tokens_per_s"):
        curve = getattr(curves, name)
        assert list(curve.steps) == [1, 2, 4], name
        assert list(curve.values) == pytest.approx([getattr(one, name) for one in lines]), name


def test_the_night_between_two_processes_is_no_time_of_the_run():
    first = list(steps([1, 2], begin=1000))
    again = RunStarted(
        run="r", pid=2, process_created=2, device="CPU", precision="fp32", engine="plain", resumed_from_step=2,
        total_steps=9, seq=3,
    )  # fmt: skip
    later = [step.model_copy(update={"seq": step.seq + 1}) for step in steps([3, 4], begin=90_000)]
    assert list(run_axis(state_of([*first, again, *later])).seconds) == [0, 2, 4, 6, 8]


def test_a_clock_that_was_set_back_does_not_turn_the_axis_around():
    made = list(steps([1, 2, 3], begin=1000))
    made[1] = made[1].model_copy(update={"t": 900.0})
    assert np.all(np.diff(run_axis(state_of(made)).seconds) >= 0)


def test_a_run_without_steps_has_an_axis_and_empty_curves():
    curves = run_curves(RunState())
    assert curves.axis is START
    assert len(curves.loss) == len(curves.memory) == 0
    assert curves.predicted_memory is None


def test_curves_hold_what_the_events_say():
    lines = events(240)
    state, curves = state_of(lines), run_curves(state_of(lines))
    assert len(curves.loss) == len(curves.grad_norm) == len(curves.learning_rate) == 240
    assert curves.held_out.at(150) == (100, pytest.approx(state.evaluations.loss.values()[1]))
    assert curves.held_out.at(-1) is None
    assert curves.memory.values[-1] == pytest.approx(state.last_step.held_bytes / 2**30)
    assert curves.predicted_memory == pytest.approx(state.plan.memory_bytes / 2**30)


def marks_of(lines):
    return {(mark.kind, mark.step) for mark in run_marks(state_of(lines))}


def test_checkpoints_bad_steps_rollbacks_and_the_best_evaluation_are_marked():
    found = marks_of(TRAIN_SCENES["troubled"][1])
    assert {("checkpoint", 100), ("rollback", 100), ("bad", 130), ("bad", 132), ("best", 150)} <= found
    assert not {step for kind, step in found if kind == "spike"}


def test_one_evaluation_alone_is_not_called_the_best():
    assert not {step for kind, step in marks_of(events(20)) if kind == "best"}


def test_a_loss_far_above_those_before_is_a_spike():
    lines = events(200)
    lines = [
        line.model_copy(update={"loss": 6.0}) if getattr(line, "step", 0) in (90, 91) and line.type == "step" else line
        for line in lines
    ]
    assert {step for kind, step in marks_of(numbered(lines)) if kind == "spike"} == {90, 91}


def test_a_spike_is_found_before_a_thousand_ordinary_steps():
    losses = {40: 6.0}
    lines = [step.model_copy(update={"loss": losses.get(step.step, 2.0)}) for step in steps(range(1, 1001))]
    assert marks_of(lines) == {("spike", 40)}


def test_a_table_joins_curves_of_different_steps():
    curves = {"loss": Curve.of([1, 2], [0.5, math.nan]), "held out": Curve.of([0, 2], [0.9, 0.7])}
    table = curve_table(run_axis(state_of(steps([1, 2]))), curves)
    assert table.names == ("step", "tokens", "time_s", "loss", "held out")
    assert [table.value(row, 0) for row in range(table.rows)] == [0, 1, 2]
    assert (table.value(0, 3), table.value(1, 4)) == (None, None)
    lines = csv_text(table).splitlines()
    assert lines == ["step,tokens,time_s,loss,held out", "0,0,0,,0.9", "1,100,2,0.5,", "2,200,4,nan,0.7"]


def test_names_with_commas_are_quoted_and_copies_are_separated_by_tabs():
    assert csv_text(curve_table(START, {'a, "b"': Curve.of([1], [2])})).splitlines()[0].endswith('"a, ""b"""')
    assert tab_text(["a", "b"], [["1", "2"]]) == "a\tb\n1\t2\n"
