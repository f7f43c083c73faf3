"""Runs that learn from rewards for their own replies, on both engines, from recipe and files to events and adapter."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import (
    EvaluationDone,
    GuardReported,
    PhaseChanged,
    PlanMade,
    RewardsGiven,
    RunStarted,
    StepDone,
    TaskScored,
    Warned,
)
from burnish_engine.runs.card import read_card
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import create_run, read_state
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.run import run_training

from support.models.tiny import make_llama, write_jsonl
from support.runs.tiny_runs import commanding, losses, of_kind, tiny_recipe, trained

VOWELS = "def reward(prompt, reply, wanted):\n    return sum(letter in 'aeiou' for letter in reply) / 8\n"
"""A graded reward that random weights earn in different amounts."""


@pytest.fixture
def made(tmp_path):
    """Make a run that learns from a reward: (settings of [reinforce], rewards, of [train]) -> its paths."""
    count = iter(range(99))

    def make(rewards=None, rows=12, every=0, action="stop", task=None, reinforce=None, **train):
        settings = {"max_steps": 4, "epochs": 40.0, "warmup_share": 0.0, "learning_rate": 2e-2, "checkpoint_every": 2}
        document = tiny_recipe(tmp_path, **settings | train).model_dump()
        file = tmp_path / "vowels.py"
        file.write_text(VOWELS)
        data = [{"prompt": f"Lamp {number}?", "completion": f"It is {number}."} for number in range(rows + 6)]
        document["data"]["files"] = [str(write_jsonl(tmp_path / "asked.jsonl", data[:rows]))]
        document["data"]["validation_files"] = [str(write_jsonl(tmp_path / "asked held.jsonl", data[rows:]))]
        document["adapter"]["dropout"] = 0.0
        document["preference"]["objective"] = "grpo"
        document["reinforce"] |= {"groups": 3, "replies": 4, "max_tokens": 8, **(reinforce or {})}
        document["reward"] = rewards or [{"kind": "python", "file": str(file)}]
        document["task"] |= task or {"metric": "regex", "pattern": "[aeiou]", "max_tokens": 6, "max_rows": 4}
        document["evaluation"]["every"] = every
        document["guard"]["action"] = action
        return create_run(Recipe.model_validate(document), tmp_path / f"run {next(count)}")

    return make


def rewards_of(paths):
    """Everything that events say of rewards but the time."""
    untimed = {"t", "seq", "written_s", "judged_s"}
    return [event.model_dump(exclude=untimed) for event in of_kind(paths, RewardsGiven)]


SEVERAL = {"updates": 2, "kl_weight": 0.2, "ratio": "sequence", "clip_low": 0.002, "clip_high": 0.002}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("reinforce", [{}, SEVERAL], ids=["one step", "several steps"])
def test_both_engines_learn_from_the_same_replies_with_the_same_figures(made, reinforce):
    fast, plain = (made(reinforce=reinforce, engine=f'"{engine}"') for engine in ("fast", "plain"))
    for paths in (fast, plain):
        assert run_training(paths).exit_code == ExitCode.DONE, read_state(paths).message
    assert [of_kind(paths, RunStarted)[0].engine for paths in (fast, plain)] == ["fast", "plain"]
    listed = read_state(fast)
    assert (listed.reward, listed.loss) == (of_kind(fast, RewardsGiven)[-1].reward, None)
    for ours, theirs in zip(of_kind(fast, StepDone), of_kind(plain, StepDone), strict=True):
        assert (ours.tokens, ours.supervised_tokens, ours.epoch) == (
            theirs.tokens, theirs.supervised_tokens, theirs.epoch
        )  # fmt: skip
        assert [ours.loss, ours.grad_norm] == pytest.approx([theirs.loss, theirs.grad_norm], rel=2e-3, abs=2e-4)
    for ours, theirs in zip(of_kind(fast, RewardsGiven), of_kind(plain, RewardsGiven), strict=True):
        assert (ours.step, ours.parts, ours.best) == (theirs.step, theirs.parts, theirs.best)
        assert [ours.entropy, ours.kl or 0.0] == pytest.approx([theirs.entropy, theirs.kl or 0.0], rel=1e-3, abs=1e-5)
        assert (ours.kl is None) == (not reinforce)
        assert ours.dropped_groups < ours.groups == 3
        assert ours.best_group.reward >= ours.worst_group.reward
        for group in (ours.best_group, ours.worst_group):
            rewards = [one.reward for one in group.replies]
            assert rewards == sorted(rewards, reverse=True)
            assert len(rewards) == 3
    if reinforce:
        assert len(of_kind(fast, RewardsGiven)) == 2
        assert any(event.clipped > 0 for event in of_kind(fast, RewardsGiven))


def test_a_reward_is_learned_kept_and_found_to_be_a_trick_where_the_score_does_not_follow(made, tmp_path):
    """The reward pays for vowels, the score asks for the row's own number, which is never learned."""
    make_llama(tmp_path / "base", initializer_range=0.1, tie_word_embeddings=False)  # some tokens are likelier
    number = {"metric": "number", "max_tokens": 6, "max_rows": 4}
    several = {"groups": 4, "replies": 16, "max_tokens": 4, "kl_bound": 9.0}
    paths = made(
        max_steps=20, every=5, checkpoint_every=0, reinforce=several, task=number, learning_rate=3e-2,
        micro_batch_tokens=1024,
    )  # fmt: skip
    assert run_training(paths).exit_code == ExitCode.DONE
    given = of_kind(paths, RewardsGiven)
    before, after = (np.mean([event.reward for event in part]) for part in (given[:5], given[-5:]))
    assert after > before + 0.1
    assert [event.step for event in given] == list(range(1, 21))
    assert [event.step for event in of_kind(paths, TaskScored)] == [0, 5, 10, 15, 20]
    assert of_kind(paths, EvaluationDone)[-1].kl_to_base > 0.01
    reports = of_kind(paths, GuardReported)
    assert {report.check for report in reports if report.check} == {"reward_tricked"}
    assert {"reward_constant", "groups_equal", "length_runs", "entropy_collapses"} <= set(reports[-1].passed)
    card, run = read_card(paths), read_run(paths.events)
    assert card.circumstances.rewards == f"vowels.py {hashlib.sha256(VOWELS.encode()).hexdigest()}"
    assert card.result.task.after == of_kind(paths, TaskScored)[-1].score
    assert run.rewards.last == given[-1]
    assert of_kind(paths, PlanMade)[0].total_seconds > 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("reinforce", [{}, SEVERAL], ids=["one step", "several steps"])
def test_a_stopped_run_continues_to_the_bits_of_the_uninterrupted_one(made, reinforce):
    whole, cut = (made(max_steps=6, reinforce=reinforce) for _ in range(2))
    assert run_training(whole).exit_code == ExitCode.DONE
    stopped = run_training(cut, listener=commanding(cut, 3, "stop"))
    at = 4 if reinforce else 3  # the steps on the same replies are made first
    assert (stopped.exit_code, stopped.step) == (ExitCode.STOPPED, at)
    assert run_training(cut).exit_code == ExitCode.DONE
    assert losses(cut) == losses(whole)
    assert rewards_of(cut) == rewards_of(whole)
    assert trained(cut) == trained(whole)


def test_a_stop_while_replies_are_written_is_heeded_and_they_are_written_again(made):
    whole, cut = (made(max_steps=3, micro_batch_tokens=128) for _ in range(2))
    run_training(whole)

    def stop(event):
        if isinstance(event, PhaseChanged) and event.phase == "writing" and of_kind(cut, StepDone):
            send(cut, "stop")

    outcome = run_training(cut, listener=stop)
    assert (outcome.exit_code, outcome.step) == (ExitCode.STOPPED, 1)
    assert run_training(cut).exit_code == ExitCode.DONE
    assert rewards_of(cut) == rewards_of(whole)
    assert trained(cut) == trained(whole)


def test_a_reward_that_never_differs_ends_the_run_and_says_so(made):
    paths = made(rewards=[{"kind": "tags", "tags": ["think"]}], max_steps=9)
    outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DIVERGED
    assert "same reward" in outcome.message
    assert [event.dropped_groups for event in of_kind(paths, RewardsGiven)] == [3, 3, 3]
    assert [event.grad_norm for event in of_kind(paths, StepDone)] == [0.0] * 3  # nothing was changed
    assert any("own replies get no reward by tags" in one.message for one in of_kind(paths, Warned))


def test_rows_that_a_reward_cannot_judge_are_left_out_and_told(made):
    paths = made(rewards=[{"kind": "distance"}, {"kind": "length", "tokens": 4, "weight": 0.5}], max_steps=1)
    recipe = paths.recipe
    text = (paths.root.parent / "asked.jsonl").read_text()
    (paths.root.parent / "asked.jsonl").write_text(text + '{"prompt": "Cat?", "completion": "None."}\n')
    assert recipe.exists()
    assert run_training(paths).exit_code == ExitCode.DONE
    assert any("1 row: the row's own reply cannot be compared with" in one.message for one in of_kind(paths, Warned))
    assert set(of_kind(paths, RewardsGiven)[0].parts) == {"distance", "length"}


def test_a_failing_function_ends_the_run_before_it_trains(made, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("def reward(prompt, reply, wanted):\n    return wanted[99]\n")
    outcome = run_training(made(rewards=[{"kind": "python", "file": str(file)}]))
    assert outcome.exit_code == ExitCode.USAGE
    assert "IndexError in line 2" in outcome.message


def test_memory_that_runs_out_while_writing_costs_no_bit(made, monkeypatch):
    whole, short = (made(max_steps=2) for _ in range(2))
    run_training(whole)
    real, failed = FastEngine.replies, []

    def replies(engine, prompts, longest, samplings=()):
        if samplings and not failed:
            failed.append(True)
            raise MemoryError
        return real(engine, prompts, longest, samplings)

    monkeypatch.setattr(FastEngine, "replies", replies)
    assert run_training(short).exit_code == ExitCode.DONE
    assert failed
    assert trained(short) == trained(whole)
