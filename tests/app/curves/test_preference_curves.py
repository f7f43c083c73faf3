"""The curves of preferences: there in runs that learn from them, and in no other."""

from dataclasses import fields

import pytest
from app.facts.run_events import events, preferring

from burnish_app.curves.preference_curves import preference_curves
from burnish_engine.contract.run.fold import RunState, fold_all


def curves(lines):
    return preference_curves(fold_all(RunState(), lines))


def test_a_run_that_learns_replies_has_none():
    found = curves(events(120))
    assert [field.name for field in fields(found) if len(getattr(found, field.name))] == []


def test_a_run_on_pairs_has_a_value_at_each_step_and_evaluation():
    found = curves(preferring(120))
    assert {len(one) for one in (found.margin, found.accuracy, found.chosen, found.rejected)} == {120}
    assert {len(one) for one in (found.held_out_margin, found.held_out_accuracy, found.kl_to_base)} == {2}
    assert len(found.kl) == 0


def test_accuracy_is_in_percent():
    found = curves(preferring(120))
    assert found.accuracy.values.max() <= 100
    assert found.held_out_accuracy.values[0] == pytest.approx(50, abs=10)
