"""Tries a recipe's rewards on some rows: replies are written as in training, or are the rows' own, and judged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe
from burnish_engine.contract.serve.reward_trial import RewardTrial, TriedRow
from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import ModelSource, open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.sampling import GeneratedReply
from burnish_engine.train.reinforce.prompts import Prompt
from burnish_engine.train.reinforce.rollouts import Rollouts, prepare_rollouts

Doing = Callable[[str], object]
"""A function that is told what is being done."""
TRIED_ROWS = 10
"""Rows of a trial, unless somebody wants more or fewer."""


def try_rewards(
    recipe: Recipe, *, rows: int = TRIED_ROWS, own: bool = False, doing: Doing = lambda _: None
) -> RewardTrial:
    """Let the model reply to the first rows of a run, and judge the replies. With a new adapter the base replies.

    It replies on the CPU while a run has the recipe's GPU.

    Args:
        recipe: recipe that learns from rewards, with absolute paths.
        rows: number of rows.
        own: whether to judge the rows' own replies instead, without loading a model.
        doing: function that is told what is being done.

    Raises:
        UsageError: The recipe has no rewards, or a reward function of the person's own fails.
        DataError: No row can be judged.
    """
    if not recipe.preference.learns_rewards:
        raise UsageError(
            f'The recipe learns by "{recipe.preference.objective}", which has no rewards.',
            'Set preference.objective = "grpo".',
        )
    source = open_model(recipe.model.path)
    tokenizer = load_tokenizer(source)
    doing("reading the data")
    rollouts, left_out = prepare_rollouts(recipe, prepare(recipe, tokenizer).train, tokenizer)
    with closing(rollouts.rewards):
        chosen = rollouts.first(rows)
        doing("judging replies" if own else "writing replies")
        replies = rollouts.own(chosen) if own else _replies(recipe, source, rollouts, chosen, doing)
        tried = rollouts.tried(chosen, replies)
        scores = rollouts.rewards.scores(tried)
    found = [
        TriedRow(
            prompt=one.prompt,
            wanted=one.wanted,
            reply=one.text,
            ended=one.ended,
            tokens=one.tokens,
            rewards={name: float(values[place]) for name, values in scores.parts.items()},
            sum=float(scores.total_N[place]),
        )
        for place, one in enumerate(tried)
    ]
    return RewardTrial(rows=found, left_out=left_out)


def _replies(
    recipe: Recipe, source: ModelSource, rollouts: Rollouts, chosen: list[Prompt], doing: Doing
) -> list[GeneratedReply]:
    """Load the model and let it reply once to each prompt."""
    from burnish_engine.models.generation.generate import generate_replies

    model: Any = _model(recipe, source, doing)
    prompts = [rollouts.prompt_ids(prompt) for prompt in chosen]
    samplings = rollouts.draws(0, len(chosen), 1)
    return generate_replies(model, rollouts.tokenizer, prompts, recipe.reinforce.max_tokens, samplings=samplings)


def _model(recipe: Recipe, source: ModelSource, doing: Doing) -> Any:
    from burnish_engine.models.device.device import choose_device, choose_precision, lease_name
    from burnish_engine.models.generation.load_fast import load_for_generation
    from burnish_engine.models.transformers_path.plain import load_base
    from burnish_engine.runs.jobs.lease import holder_of

    device = choose_device(recipe.devices)
    if device.type != "cpu" and (run := holder_of(lease_name(device))) is not None:
        doing(f"writing replies on the CPU, since the run {run} has the GPU")
        device = choose_device(DevicesSection(kind="cpu"))
    precision = choose_precision(recipe.train.precision, device)
    adapter = Path(recipe.adapter.start) if recipe.adapter.start else None
    fast, _ = load_for_generation(source, adapter, precision, device)
    return fast or load_base(source, precision, device)
