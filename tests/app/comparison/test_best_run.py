"""Differences to the best run: only between runs measured on the same rows."""

import pytest
from app.facts.run_summaries import summary

from burnish_app.comparison.best_run import delta_text, deltas_to_best


def run(name, held_out, loss):
    return summary("finished", folder=f"/runs/{name}", held_out=held_out, evaluation_loss=loss)


@pytest.mark.full
def test_runs_are_compared_within_their_held_out_rows_only():
    runs = [run("a", "x", 2.0), run("b", "x", 1.5), run("c", "y", 0.5), run("d", "y", 0.75), run("e", "z", 3.0)]
    assert deltas_to_best(runs) == {"/runs/a": 0.5, "/runs/b": 0.0, "/runs/c": 0.0, "/runs/d": 0.25}


def test_runs_without_a_loss_or_with_unknown_rows_are_left_out():
    runs = [run("a", "x", None), run("b", "x", 1.5), run("c", "", 1.0), run("d", "", 2.0)]
    assert deltas_to_best(runs) == {}


def test_the_best_is_named_and_others_have_a_sign():
    assert delta_text(0.0) == "best"
    assert delta_text(0.25) == "+0.250"
    assert delta_text(0.00001) == "+0.000"
    assert delta_text(None) == ""
