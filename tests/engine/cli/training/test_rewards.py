"""`burnish rewards try` on replies of the model and on the rows' own."""

import json

import pytest
import torch

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.generation.sampling import GeneratedReply
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.store import create_run

from support.models.tiny import make_llama, write_jsonl


@pytest.fixture
def recipe(tmp_path):
    """The file of a recipe over a tiny model that learns from rewards."""
    make_llama(tmp_path / "base")
    write_jsonl(tmp_path / "rows.jsonl", [{"prompt": f"{n} + 1?", "completion": str(n + 1)} for n in range(12)])
    file = tmp_path / "recipe.toml"
    file.write_text(
        '[model]\npath = "./base"\n[data]\nfiles = ["rows.jsonl"]\nmax_length = 64\n[devices]\nkind = "cpu"\n'
        '[preference]\nobjective = "grpo"\n[reinforce]\nmax_tokens = 5\n[task]\nmetric = "number"\n'
        '[[reward]]\nkind = "distance"\n[[reward]]\nkind = "length"\ntokens = 4\nweight = 0.5\n'
    )
    return file


def tried(capsys, *arguments):
    assert main(["rewards", "try", *arguments, "--json"]) == ExitCode.DONE
    return json.loads(capsys.readouterr().out)


def test_the_model_replies_to_some_rows_as_in_training_and_each_reward_is_shown(recipe, capsys):
    found = tried(capsys, str(recipe), "--rows", "3")
    assert len(found) == 3
    for one in found:
        assert one["reply"] != one["wanted"]
        assert one["sum"] == pytest.approx(one["rewards"]["distance"] + 0.5 * one["rewards"]["length"])
    assert found == tried(capsys, str(recipe), "--rows", "3")  # the draws are the run's
    assert main(["rewards", "try", str(recipe), "--rows", "2"]) == ExitCode.DONE
    assert "length" in capsys.readouterr().out


def test_the_model_replies_on_the_cpu_while_a_run_has_the_gpu(recipe, capsys, monkeypatch):
    recipe.write_text(recipe.read_text().replace('kind = "cpu"', 'kind = "auto"'))
    monkeypatch.setattr(
        "burnish_engine.models.device.device.choose_device",
        lambda devices: torch.device("cpu" if devices.kind == "cpu" else "cuda"),
    )
    run = create_run(Recipe(), recipe.parent / "run")
    lease.acquire("cuda-0", run)
    try:
        assert len(tried(capsys, str(recipe), "--rows", "1")) == 1
    finally:
        lease.release(run)


def test_the_rows_own_replies_are_judged_without_loading_a_model(recipe, capsys, monkeypatch):
    monkeypatch.setattr("burnish_engine.models.generation.load_fast.load_for_generation", None)
    assert {one["rewards"]["distance"] for one in tried(capsys, str(recipe), "--own")} == {1.0}


def test_rows_that_are_left_out_are_told_beside_the_document(recipe, capsys):
    rows = [{"prompt": f"{n} + 1?", "completion": str(n + 1)} for n in range(12)]
    write_jsonl(
        recipe.parent / "rows.jsonl", [*rows, *[{"prompt": f"Why {n}?", "completion": "none"} for n in range(9)]]
    )
    assert main(["rewards", "try", str(recipe), "--own", "--json"]) == ExitCode.DONE
    printed = capsys.readouterr()
    assert all(one["wanted"] != "none" for one in json.loads(printed.out))
    assert "has no number" in printed.err


def test_a_recipe_without_rewards_is_refused(recipe, capsys):
    recipe.write_text('[model]\npath = "./base"\n[data]\nfiles = ["rows.jsonl"]\n')
    assert main(["rewards", "try", str(recipe)]) == ExitCode.USAGE
    assert "grpo" in capsys.readouterr().err


@pytest.fixture
def questions(recipe):
    """The recipe over rows without replies, with rewards that judge a reply alone."""
    write_jsonl(recipe.parent / "rows.jsonl", [{"prompt": f"{n} + 1?"} for n in range(5)])
    text = recipe.read_text().replace('kind = "distance"', 'kind = "format"\npattern = "."')
    recipe.write_text(text.replace("max_tokens = 5", "max_tokens = 40"))
    return recipe


def test_a_teacher_writes_rows_that_can_be_learned_and_they_are_shown(questions, capsys, monkeypatch):
    """Random weights seldom end a reply, so the made-up teacher does."""

    def replies(target, chats, samplings, **_):
        assert target.endswith("base")
        assert [sampling.temperature for sampling in samplings[0]] == [0.0, 1.0, 1.0]
        found = [[GeneratedReply("", True, 1), GeneratedReply("no end", False, 4), GeneratedReply("It is.", True, 3)]]
        return found * (len(chats) - 1) + [[GeneratedReply("", True, 0)] * 3]

    monkeypatch.setattr("burnish_engine.chat.teacher.write_replies", replies)
    file = questions.parent / "taught.jsonl"
    arguments = ["rewards", "write", str(questions), "--tries", "3", "--out", str(file)]
    assert main(arguments) == ExitCode.DONE
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 4
    assert rows[0]["messages"] == [
        {"role": "user", "content": "0 + 1?"}, {"role": "assistant", "content": "It is."}
    ]  # fmt: skip
    shown = capsys.readouterr().out
    assert "left out" in shown
    assert "It is." in shown
    assert main(arguments) == ExitCode.USAGE  # the file is there


@pytest.mark.parametrize("wrong", ["folder", "function"])
def test_what_is_wrong_is_said_before_a_reply_is_written(questions, capsys, monkeypatch, wrong):
    monkeypatch.setattr("burnish_engine.chat.teacher.write_replies", None)
    if wrong == "function":
        (questions.parent / "own.py").write_text("def reward(prompt, reply, wanted):\n    return 1 / 0\n")
        with questions.open("a") as file:
            file.write('[[reward]]\nkind = "python"\nfile = "own.py"\n')
    file = questions.parent / ("none/taught.jsonl" if wrong == "folder" else "taught.jsonl")
    assert main(["rewards", "write", str(questions), "--out", str(file)]) == ExitCode.USAGE
    assert ("no folder" if wrong == "folder" else "ZeroDivisionError") in capsys.readouterr().err


@pytest.mark.full
def test_a_model_on_this_machine_is_the_teacher(questions, capsys):
    file = questions.parent / "taught.jsonl"
    code = main(["rewards", "write", str(questions), "--least", "0", "--out", str(file)])
    assert code == (ExitCode.DONE if file.exists() else ExitCode.DATA)


def test_rewards_that_need_the_rows_own_reply_cannot_filter(recipe, capsys):
    text = recipe.read_text()
    recipe.write_text(text[: text.index('[[reward]]\nkind = "length"')])
    assert main(["rewards", "write", str(recipe), "--out", str(recipe.parent / "taught.jsonl")]) == ExitCode.USAGE
    assert "distance" in capsys.readouterr().err
