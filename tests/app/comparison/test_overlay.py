"""Curves of several runs over one axis: each at its own steps, tokens and times."""

import pytest
from app.facts.run_events import swept

from burnish_app.comparison.overlay import overlay
from burnish_app.curves.run_axis import run_axis
from burnish_app.curves.tables import curve_table
from burnish_engine.contract.run.fold import RunState, fold_all


@pytest.fixture(scope="module")
def states():
    long, short = (fold_all(RunState(), swept(n, rate=2e-4, steps=steps)) for n, steps in ((1, 300), (2, 100)))
    return long, short


@pytest.mark.full
def test_over_steps_each_curve_keeps_its_own(states):
    found = overlay(states, "step")
    assert found.axis.shared
    for state, curve in zip(states, found.held_out, strict=True):
        assert curve.steps.tolist() == list(state.evaluations.step.values())
        assert curve.values.tolist() == list(state.evaluations.loss.values())
    assert found.axis.steps[-1] == 300


@pytest.mark.parametrize("unit", ["tokens", "time"])
def test_over_tokens_and_time_each_run_is_placed_by_its_own(states, unit):
    found = overlay(states, unit)
    assert found.axis.unit == unit
    for state, curve in zip(states, found.loss, strict=True):
        assert curve.steps[-1] == pytest.approx(run_axis(state).column(unit)[-1])
    positions = found.axis.x(unit, found.loss[0].steps)
    assert positions.tolist() == found.loss[0].steps.tolist()


def test_the_table_of_a_shared_axis_has_its_unit_alone(states):
    found = overlay(states, "tokens")
    table = curve_table(found.axis, {"a": found.held_out[0], "b": found.held_out[1]})
    assert table.names == ("tokens", "a", "b")


def test_runs_without_a_step_have_empty_curves(states):
    found = overlay([RunState(), states[1]], "step")
    assert len(found.loss[0]) == len(found.held_out[0]) == 0
    assert len(found.loss[1]) == 100
    assert len(overlay([], "time").axis.steps) == 1
