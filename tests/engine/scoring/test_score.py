"""Which rows are scored, and what a score keeps."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.rows_file import load_task_rows, save_task_rows, scored_tokens
from burnish_engine.scoring.score import choose_rows


def chat(asked, wanted, **extra):
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": wanted, **extra}]


LABELS = [chat(f"Is {n} even?", "yes" if n % 2 == 0 else "no") for n in range(6)]


def test_the_first_rows_that_can_be_scored_are_taken():
    chats = [
        chat("a", "no number"),
        [{"role": "user", "content": "unanswered"}],
        chat("b", "4", tool_calls=[]),
        chat("c", "  "),
        chat("d", "5"),
        chat("e", "6"),
        chat("f", "7"),
    ]
    rows = choose_rows(TaskSection(metric="number", max_rows=2), chats)
    assert [row.wanted for row in rows.rows] == ["5", "6"]
    assert sorted(rows.left_out.values()) == [1, 3]


def test_long_prompts_are_left_out():
    chats = [chat("x" * 50, "1"), chat("short", "2")]
    rows = choose_rows(TaskSection(metric="number"), chats, lambda turns: len(turns[-1]["content"]), longest=49)
    assert [row.wanted for row in rows.rows] == ["2"]
    assert rows.prompt_tokens == 5


def test_turns_that_a_template_refuses_are_left_out():
    refused = [chat("odd", "1"), chat("fine", "2")]
    rows = choose_rows(
        TaskSection(metric="number"), refused, lambda turns: 5 if turns[-1]["content"] == "fine" else None, 9
    )
    assert [row.wanted for row in rows.rows] == ["2"]
    assert sum(rows.left_out.values()) == 1


def test_no_row_at_all_is_an_error_that_says_why():
    for chats in ([], [chat("a", "b")]):
        with pytest.raises(UsageError, match=r"task\.metric"):
            choose_rows(TaskSection(metric="number"), chats)


def test_the_choices_of_the_rows_are_kept_with_them():
    rows = choose_rows(TaskSection(metric="choice", max_rows=1), LABELS)
    assert rows.section.choices == ["yes", "no"]
    assert rows.score([("yes or no", True)]).right == 0  # "no" is known although its row is not scored


def test_a_score_counts_right_and_cut_replies_and_keeps_wrong_ones():
    rows = choose_rows(TaskSection(metric="choice"), LABELS)
    replies = [("yes", True), ("No.", True), ("no", True), ("x" * 999, False), ("yes", True), ("yes", True)]
    score = rows.score(replies)
    assert score.passed == [True, True, False, False, True, False]
    assert (score.right, score.rows, score.cut) == (3, 6, 1)
    assert [failure.row for failure in score.failures] == [3, 4, 6]
    assert max(len(failure.reply) for failure in score.failures) < 999
    assert score.failures[0].asked == "Is 2 even?"


def test_a_reply_that_was_cut_is_not_right():
    rows = choose_rows(TaskSection(metric="choice", max_tokens=3), LABELS[:1])
    assert rows.reasons([("yes", True)]) == [""]
    (why,) = rows.reasons([("yes yes yes", False)])
    assert "3" in why


@pytest.mark.parametrize(
    ("reply", "is_right"),
    [
        ("<think>\nyes or no?\n</think>\n\nyes", True),
        ("yes or no?</think>yes", True),  # the template opened them
        ("<think>yes or no?</think>no", False),
        ("<think>yes", False),
    ],
)
def test_thoughts_before_a_reply_do_not_count(reply, is_right):
    rows = choose_rows(TaskSection(metric="choice"), LABELS)
    assert rows.score([(reply, True)] + [("", True)] * 5).passed[0] == is_right


def test_a_pattern_may_ask_for_thoughts():
    rows = choose_rows(TaskSection(metric="regex", pattern="^<think>.+</think>"), LABELS[:1])
    assert rows.score([("<think>x</think>yes", True)]).right == 1


def test_a_row_whose_reply_has_thoughts_is_scored_and_one_with_thoughts_before_is_not():
    thoughtful = chat("Is 0 even?", "yes", reasoning_content="0 = 2 x 0")
    rows = choose_rows(TaskSection(metric="exact_match"), [thoughtful, [*thoughtful, *LABELS[1]]])
    assert [row.wanted for row in rows.rows] == ["yes"]
    assert sum(rows.left_out.values()) == 1


def test_the_rows_survive_their_file(tmp_path):
    paths = RunPaths(tmp_path)
    assert load_task_rows(paths) is None
    assert scored_tokens(paths) == 0
    rows = choose_rows(TaskSection(metric="choice", max_tokens=7), LABELS)
    save_task_rows(paths, rows)
    assert load_task_rows(paths) == rows
    assert scored_tokens(paths) == 6 * 7
    paths.task_rows.write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError):
        load_task_rows(paths)
    assert scored_tokens(paths) == 0


def test_rows_of_one_label_survive_their_file_too(tmp_path):
    rows = choose_rows(TaskSection(metric="choice"), LABELS[::2])
    save_task_rows(RunPaths(tmp_path), rows)
    assert load_task_rows(RunPaths(tmp_path)) == rows
