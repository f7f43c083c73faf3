"""`burnish rewards`: tries a recipe's rewards on replies of its model, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from burnish_engine.cli.terminal import err, out, print_json
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.facts.reward_trial import RewardTrial
from burnish_engine.contract.recipe.recipe_file import load_recipe

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
    from burnish_engine.train.reinforce.trial import try_rewards as tried

    with err.status("reading the data") as status:
        trial = tried(parsed, rows=rows, own=own, doing=status.update)
    if trial.left_out:
        err.note(trial.left_out)  # the output may be a document
    if json:
        print_json(_document(trial))
    else:
        _show(trial)
    return ExitCode.DONE


def _show(trial: RewardTrial) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("asked", "wanted", "reply"):
        table.add_column(name, overflow="fold")
    for name in (*trial.means, "sum"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in trial.rows:
        reply = row.reply[:_SHOWN] + ("" if row.ended else " (cut)")
        figures = [f"{value:.3f}" for value in [*row.rewards.values(), row.sum]]
        table.add_row(row.prompt[-_SHOWN:].strip(), row.wanted[:_SHOWN], reply, *figures)
    out.print(table)
    means = ", ".join(f"{name} {mean:.3f}" for name, mean in trial.means.items())
    out.print(f"mean: {means}, sum {trial.mean:.3f} ± {trial.spread:.3f}")
    if trial.is_flat:
        out.note("All replies have the same reward: nothing could be learned from these.")


def _document(trial: RewardTrial) -> str:
    from json import dumps

    return dumps([row.model_dump(exclude={"tokens"}) for row in trial.rows], ensure_ascii=False, indent=2)
