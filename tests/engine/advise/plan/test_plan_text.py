"""A plan tells which held-out rows a score of the task finds, and refuses a chosen score that finds none."""

import pytest

from burnish_engine.advise.plan.plan_text import task_notes
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.data_report import DatasetReport, TaskFit, TaskHint
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.recognize import suggested_section

from support.machines.advice import CHATS

NUMBER = TaskSection(metric="number")
HINT = TaskHint(metric="number", rows=20, says="Numbers.")


def known(section=NUMBER, *, task=None, sampled_rows=0, **fit):
    report = DatasetReport(
        used_rows=9, task=task, sampled_rows=sampled_rows,
        task_fit=TaskFit(**{"section": section, "rows": 0, "usable_rows": 0, **fit}),
    )  # fmt: skip
    return CHATS.model_copy(update={"report": report})


def test_a_chosen_metric_that_scores_no_row_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="too odd"):
        task_notes(NUMBER, known(left_out={"too odd": 7}))


def test_a_suggested_one_is_left_out_of_the_run_and_said():
    section = suggested_section(HINT)
    (note,) = task_notes(section, known(section, task=HINT, left_out={"too long": 7}))
    assert "too long" in note
    with pytest.raises(UsageError):
        task_notes(TaskSection(metric="exact_match"), known(TaskSection(metric="exact_match"), task=HINT))


def test_facts_of_a_sample_refuse_nothing():
    assert len(task_notes(NUMBER, known(sampled_rows=100))) == 1


def test_facts_of_another_score_refuse_only_where_no_row_could_be_scored():
    other = TaskSection(metric="choice")
    assert task_notes(NUMBER, known(other, usable_rows=3)) == []
    with pytest.raises(UsageError):
        task_notes(NUMBER, known(other))


def test_rows_that_are_not_scored_and_replies_that_would_be_cut_are_said():
    left_out, cut = task_notes(NUMBER, known(rows=5, usable_rows=5, long_replies=2, left_out={"it has no number": 3}))
    assert "3 not scored: it has no number" in left_out
    assert "2 of 5" in cut


def test_nothing_is_said_where_nothing_is_scored_or_known():
    assert task_notes(TaskSection(), known()) == []
    assert task_notes(NUMBER, None) == []
    assert task_notes(NUMBER, known(rows=5, usable_rows=5)) == []
