"""What counts as the taught behavior."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from burnish_engine.demo.job import demo_recipe
from burnish_engine.demo.score import count, shows_behavior

GOOD = "Cause: the belt is worn out.\nFix: put a new belt on.\nCheck: it turns without noise."


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
    recipe = demo_recipe()
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


def test_the_script_scores_a_replies_file(tmp_path):
    replies = {"base": [{"reply": "no", "stopped": True}], "tuned": [{"reply": GOOD, "stopped": True}]}
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    assert count(replies["tuned"]) == 1
    done = subprocess.run(
        [sys.executable, "-m", "burnish_engine.demo.score", str(tmp_path / "replies.json")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "base: 0 of 1\ntuned: 1 of 1\n"
