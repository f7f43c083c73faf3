"""A duel as sentences."""

import pytest
from app.page_scenes.several_scenes import a_duel, duel_runs, verdicts

from burnish_app.wording.duel_text import (
    amount_text,
    conclusion_text,
    conditions_text,
    difference_text,
    plan_text,
    progress_text,
    result_text,
    share_done,
    time_left_text,
)
from burnish_engine.contract.run.duels import DuelCheck


def test_a_plan_says_runs_and_time():
    text = plan_text(a_duel("planned"))
    assert "12 to 28 runs" in text
    assert "4 h" in text
    assert "about" not in plan_text(a_duel("planned").model_copy(update={"seconds": None}))
    assert plan_text(a_duel("planned").model_copy(update={"runs": (6, 6)})).startswith("6 runs")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("made", "share"), [(0, 0.0), (6, 0.5), (12, 12 / 28)])
def test_progress_is_counted_in_the_least_number_of_runs_until_it_is_passed(tmp_path, made, share):
    duel = a_duel("running", made=duel_runs(tmp_path, made))
    assert share_done(duel) == pytest.approx(share)
    assert str(made) in progress_text(duel)


def test_a_run_is_told_by_the_measure_that_decides_the_duel(tmp_path):
    (made,) = duel_runs(tmp_path, 1)
    by_loss, by_pairs = a_duel("running"), a_duel("running", judge="pair_error")
    preferring = made.model_copy(update={"held_out_loss": 0.5, "preferred": 0.75})
    assert result_text(by_loss, preferring) == "0.5000"
    assert "75 %" in result_text(by_pairs, preferring)
    assert result_text(by_pairs, made) != result_text(by_pairs, made.model_copy(update={"ended": "diverged"}))


def test_the_time_left_follows_the_runs_that_were_made(tmp_path):
    assert time_left_text(a_duel("running")) == ""
    duel = a_duel("running", made=duel_runs(tmp_path, 6))
    assert "2 h 10 min" in time_left_text(duel)  # 6 of 1,300 s
    assert time_left_text(duel.model_copy(update={"status": "stopped"})) == ""


def test_a_verdict_has_its_interval_and_names_the_better_side():
    loss, speed, *_, equal = verdicts()
    assert conclusion_text(loss).startswith("rank 32")
    assert "+0.0121" in difference_text(loss)
    assert "%" in difference_text(speed)
    assert conclusion_text(verdicts(won=False)[0]) == "Not distinguishable"
    assert difference_text(equal) == "0 events"
    assert amount_text("share", -0.0001) == "0"
    amounts = [amount_text(form, 0.125) for form in ("nats", "share", "points", "count")]
    assert amounts == ["+0.1250", "+12.5", "+12.5", "+0.1"]
    nothing = loss.model_copy(update={"difference": None})
    assert difference_text(nothing) == ""


def test_conditions_that_differ_are_named():
    same, other = DuelCheck(what="device", verdict="same"), DuelCheck(what="data", verdict="differs")
    assert "data" not in conditions_text(a_duel("finished", checks=[same]))
    assert "data" in conditions_text(a_duel("finished", checks=[same, other]))
