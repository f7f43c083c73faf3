"""`burnish rewards`: tries a recipe's rewards on replies of its model, before anything is trained."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from burnish_engine.cli.terminal import err, out, print_json
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import load_recipe

if TYPE_CHECKING:
    from burnish_engine.models.generation.sampling import GeneratedReply
    from burnish_engine.scoring.rewards import TriedReply
    from burnish_engine.train.reinforce.prompts import Prompt
    from burnish_engine.train.reinforce.reward_sum import Scores
    from burnish_engine.train.reinforce.rollouts import Rollouts

app = typer.Typer(help="Try the rewards of a recipe.", no_args_is_help=True)
_SHOWN = 160  # characters of a text


@app.callback()
def group() -> None:
    """Try the rewards of a recipe."""


@app.command("try")
def try_rewards(
    recipe: Annotated[Path, typer.Argument(help="The recipe (TOML), with preference.objective = grpo.")],
    rows: Annotated[int, typer.Option(min=1, max=1000, help="Training rows to try, the first of a run.")] = 10,
    own: Annotated[
        bool, typer.Option("--own", help="Judge the rows' own replies instead; no model is loaded.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print all replies and rewards as one JSON document.")] = False,
) -> int:
    """Let the model reply to some rows, and show what each reward says.

    The replies are drawn as in training. With a new adapter the base is what replies.
    """
    parsed = load_recipe(recipe)
    if not parsed.preference.learns_rewards:
        raise UsageError(
            f'The recipe {recipe} learns by "{parsed.preference.objective}", which has no rewards.',
            'Set preference.objective = "grpo".',
        )
    from burnish_engine.models.checkpoint.source import open_model
    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

    source = open_model(parsed.model.path)
    with err.status("reading the data"):
        rollouts = _rollouts(parsed, load_tokenizer(source))
    with closing(rollouts.rewards):
        chosen = rollouts.first(rows)
        with err.status("writing replies"):
            replies = rollouts.own(chosen) if own else _replies(parsed, source, rollouts, chosen)
        tried = rollouts.tried(chosen, replies)
        scores = rollouts.rewards.scores(tried)
    if json:
        print_json(_document(tried, scores))
    else:
        _show(tried, scores)
    return ExitCode.DONE


def _rollouts(recipe: Recipe, tokenizer: Any) -> Rollouts:
    from burnish_engine.data.prepare import prepare
    from burnish_engine.train.reinforce.rollouts import prepare_rollouts

    found, left_out = prepare_rollouts(recipe, prepare(recipe, tokenizer).train, tokenizer)
    if left_out:
        err.note(left_out)  # the output may be a document
    return found


def _replies(recipe: Recipe, source: Any, rollouts: Rollouts, chosen: list[Prompt]) -> list[GeneratedReply]:
    """Load the model and let it reply once to each prompt."""
    from burnish_engine.models.device.device import choose_device, choose_precision
    from burnish_engine.models.generation.generate import generate_replies
    from burnish_engine.models.generation.load_fast import load_for_generation
    from burnish_engine.models.transformers_path.plain import load_base

    device = choose_device(recipe.devices)
    precision = choose_precision(recipe.train.precision, device)
    adapter = Path(recipe.adapter.start) if recipe.adapter.start else None
    fast, _ = load_for_generation(source, adapter, precision, device)
    model = fast or load_base(source, precision, device)
    prompts = [rollouts.prompt_ids(prompt) for prompt in chosen]
    samplings = rollouts.draws(0, len(chosen), 1)
    return generate_replies(model, rollouts.tokenizer, prompts, recipe.reinforce.max_tokens, samplings=samplings)


def _show(tried: list[TriedReply], scores: Scores) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("asked", "wanted", "reply"):
        table.add_column(name, overflow="fold")
    for name in (*scores.parts, "sum"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, one in enumerate(tried):
        values = [values[place] for values in scores.parts.values()]
        reply = one.text[:_SHOWN] + ("" if one.ended else " (cut)")
        figures = [f"{value:.3f}" for value in [*values, scores.total_N[place]]]
        table.add_row(one.prompt[-_SHOWN:].strip(), one.wanted[:_SHOWN], reply, *figures)
    out.print(table)
    means = ", ".join(f"{name} {values.mean():.3f}" for name, values in scores.parts.items())
    spread = scores.total_N.std()
    out.print(f"mean: {means}, sum {scores.total_N.mean():.3f} ± {spread:.3f}")
    if len(tried) > 1 and not spread:
        out.note("All replies have the same reward: nothing could be learned from these.")


def _document(tried: list[TriedReply], scores: Scores) -> str:
    from json import dumps

    found = [
        {
            "prompt": one.prompt,
            "wanted": one.wanted,
            "reply": one.text,
            "ended": one.ended,
            "rewards": {name: float(values[place]) for name, values in scores.parts.items()},
            "sum": float(scores.total_N[place]),
        }
        for place, one in enumerate(tried)
    ]
    return dumps(found, ensure_ascii=False, indent=2)
