"""The table of a comparison as text."""

import math

from burnish_app.wording.comparison_text import best_place, best_sentence, comparison_rows, difference_text
from burnish_engine.contract.facts.task_score import TaskChange, TaskScore
from burnish_engine.contract.run.comparison import ComparedRun, DifferenceRow, RunsComparison


def outcome(loss, *, tokens=500, **measured):
    return ComparedRun(
        run="r", standing="finished", step=10, total_steps=10, held_out_loss=loss, held_out_tokens=tokens,
        **measured,
    )  # fmt: skip


def comparison(*outcomes, rows=()):
    return RunsComparison(folders=["f"] * len(outcomes), outcomes=list(outcomes), rows=list(rows))


def row(found, label):
    return next(one for one in comparison_rows(found) if one.label == label)


def test_the_best_of_what_differs_is_marked():
    found = comparison(
        outcome(1.5, tokens_per_s=10.0, memory_bytes=2**31, accuracy=0.25),
        outcome(1.25, tokens_per_s=30.0, memory_bytes=2**30, accuracy=0.75),
        outcome(None, tokens_per_s=30.0, memory_bytes=2**32),
    )
    assert row(found, "Held-out loss").best == {1}
    assert row(found, "Held-out loss").cells == ("1.5000", "1.2500", "–")
    assert row(found, "Tokens/s").best == {1, 2}
    assert row(found, "Memory, peak").best == {1}
    assert row(found, "Preferred, held out").best == {1}
    assert row(comparison(outcome(1.5), outcome(1.5)), "Held-out loss").best == frozenset()
    assert row(comparison(outcome(math.nan), outcome(1.5)), "Held-out loss").best == frozenset()


def test_losses_on_other_rows_are_not_ranked():
    found = comparison(outcome(1.5), outcome(1.25, tokens=400))
    assert row(found, "Held-out loss").best == frozenset()
    assert row(found, "Held-out loss").hint
    assert best_sentence(["a", "b"], found) == ""
    assert best_place(found) is None
    unmeasured = comparison(outcome(None), outcome(None))
    assert row(unmeasured, "Held-out loss").hint == ""


def scored(right, *, rows=10):
    score = TaskScore(metric="json", passed=[n < right for n in range(rows)])
    return outcome(1.5).model_copy(update={"task": TaskChange(before=score, after=score)})


def test_scores_are_ranked_where_they_are_of_the_same_rows():
    found = row(comparison(scored(4), scored(9), outcome(1.5)), "Score of the task")
    assert found.best == {1}
    assert found.cells[2] == "–"
    assert row(comparison(scored(4), scored(9, rows=20)), "Score of the task").best == frozenset()
    labels = [one.label for one in comparison_rows(comparison(outcome(1.5)))]
    assert "Score of the task" not in labels


def test_the_best_is_told_with_its_lead():
    text = best_sentence(["a", "b", "c"], comparison(outcome(1.5), outcome(1.25), outcome(2.0)))
    assert text.startswith("b ")
    assert "0.250" in text
    assert best_sentence(["a", "b"], comparison(outcome(1.5), outcome(None))) == ""


def test_differences_stand_in_groups_with_names_for_people():
    rows = [
        DifferenceRow(group="recipe", key="train.learning_rate", values=[1e-4, 3e-4]),
        DifferenceRow(group="versions", key="torch", values=["2.9", None]),
    ]
    labels = [one.label for one in comparison_rows(comparison(outcome(1.0), outcome(1.0), rows=rows))]
    assert labels.index("Recipe") < labels.index("Learning rate") < labels.index("Versions") < labels.index("Torch")


def test_values_read_as_people_write_them():
    assert difference_text("train.learning_rate", 3e-4) == "0.0003"
    assert difference_text("train.pack", False) == "off"
    assert difference_text("train.optimizer", "adamw") == "AdamW"
    assert difference_text("training rows", 12345) == "12,345"
    assert difference_text("data.files", ["/a", "/b"]) == "/a, /b"
    assert difference_text("x", None) == "–"


def test_blind_votes_are_a_row_where_there_are_any():
    found = RunsComparison(folders=["/a", "/b"], outcomes=[outcome(1.0), outcome(1.1)], rows=[])
    assert not [row for row in comparison_rows(found) if "votes" in row.label]
    voted = outcome(1.0).model_copy(update={"votes": "tuned 5, base 1"})
    (row,) = [
        row
        for row in comparison_rows(found.model_copy(update={"outcomes": [voted, outcome(1.1)]}))
        if "votes" in row.label
    ]
    assert row.cells == ("tuned 5, base 1", "–")
