"""What counts as the taught behavior."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from burnish_engine.demo.behaviors import is_one_sentence, shows_behavior
from burnish_engine.demo.tasks import BENCH_NOTES, ONE_SENTENCE

GOOD = "Cause: the belt is worn out.\nFix: put a new belt on.\nCheck: it turns without noise."
SENTENCE = "Yeast gives off gas, which is trapped in the dough."


@pytest.mark.parametrize(
    ("reply", "stopped", "counts"),
    [
        (GOOD, True, True),
        (GOOD + "\n", True, True),
        (GOOD, False, False),
        ("Sure!\n" + GOOD, True, False),
        (GOOD + "\nNote: good luck with it.", True, False),
        (GOOD.replace("Fix:", "Solution:"), True, False),
        (GOOD.replace("the belt is worn out.", "belt."), True, False),
        ("Fix: put a new belt on.\nCause: the belt is worn out.\nCheck: it turns again now.", True, False),
        (GOOD.replace("\n", " "), True, False),
        ("", True, False),
    ],
)
def test_strict_about_the_form(reply, stopped, counts):
    assert shows_behavior(reply, stopped=stopped) is counts


def test_the_datasets_own_replies_count_and_are_split_cleanly():
    recipe = BENCH_NOTES.recipe()
    train, held = (
        [json.loads(line)["messages"] for line in Path(files[0]).read_text(encoding="utf-8").splitlines()]
        for files in (recipe.data.files, recipe.data.validation_files)
    )
    assert len(train) >= 240
    assert len(held) == 40
    for chat in (*train, *held):
        for message in chat:
            if message["role"] == "assistant":
                assert shows_behavior(message["content"], stopped=True)
    prompts = [chat[0]["content"].lower() for chat in (*train, *held)]
    assert len(set(prompts)) == len(prompts)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("dataset", "good"), [([], GOOD), (["one-sentence"], SENTENCE)])
def test_the_script_scores_a_replies_file(tmp_path, dataset, good):
    replies = {"base": [{"reply": "no", "stopped": True}], "tuned": [{"reply": good, "stopped": True}]}
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    done = subprocess.run(
        [sys.executable, "-m", "burnish_engine.demo.score", str(tmp_path / "replies.json"), *dataset],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "base: 0 of 1\ntuned: 1 of 1\n"


@pytest.mark.parametrize(
    ("reply", "stopped", "counts"),
    [
        (SENTENCE, True, True),
        (SENTENCE + "\n", True, True),
        (SENTENCE, False, False),
        (f"{SENTENCE} {SENTENCE}", True, False),
        (f"{SENTENCE}\n\n1. Flour", True, False),
        ("Why does bread dough rise?", True, False),
        ("Yeast does.", True, False),
        (f"{'Yeast gives off gas and ' * 12}rises.", True, False),
        ("It has 3.5 grams of yeast in it.", True, True),
        ("", True, False),
    ],
)
def test_one_sentence_is_one_sentence(reply, stopped, counts):
    assert is_one_sentence(reply, stopped=stopped) is counts


def test_chosen_replies_show_the_behavior_and_rejected_ones_do_not():
    recipe = ONE_SENTENCE.recipe()
    train, held = (
        [json.loads(line) for line in Path(files[0]).read_text(encoding="utf-8").splitlines()]
        for files in (recipe.data.files, recipe.data.validation_files)
    )
    assert len(train) >= 60
    assert len(held) >= 20
    for row in (*train, *held):
        assert is_one_sentence(row["chosen"], stopped=True), row["chosen"]
        assert not is_one_sentence(row["rejected"], stopped=True), row["rejected"]
    prompts = [row["prompt"].lower() for row in (*train, *held)]
    assert len(set(prompts)) == len(prompts)
    assert ONE_SENTENCE.prompts() == [row["prompt"] for row in held]
