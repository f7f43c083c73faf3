"""`burnish rewards`: tries a recipe's rewards on replies of its model, and lets a teacher write rows by them."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from burnish_engine.cli.terminal import err, out, print_json
from burnish_engine.contract.errors import DataError, ExitCode
from burnish_engine.contract.files import must_be_new, write_atomic
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.serve.reward_trial import RewardTrial
from burnish_engine.contract.units import plural

if TYPE_CHECKING:
    from burnish_engine.train.reinforce.taught_rows import TaughtRow

app = typer.Typer(help="Try the rewards of a recipe, and let a teacher write rows.", no_args_is_help=True)
_SHOWN = 160  # characters of a text
_SHOWN_ROWS = 10


@app.callback()
def group() -> None:
    """Try the rewards of a recipe, and let a teacher write rows."""


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


@app.command("write")
def write_rows(
    recipe: Annotated[Path, typer.Argument(help="The recipe (TOML) whose data asks and whose rewards judge.")],
    out_file: Annotated[Path, typer.Option("--out", help="Write the rows here (JSON lines); never overwritten.")],
    teacher: Annotated[
        str, typer.Option(help="Model that replies: a folder, a run, a .gguf file, a name. Empty: the recipe's base.")
    ] = "",
    tries: Annotated[int, typer.Option(min=1, max=64, help="Tries at each question; the best one is kept.")] = 4,
    rows: Annotated[int, typer.Option(min=0, help="Most questions; 0: all.")] = 0,
    least: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the highest reward that a reply needs.")
    ] = 0.5,
) -> int:
    """Let a teacher write replies to rows that have none, and keep those that the rewards like.

    The rows need no reply: {"prompt": ...} will do. Read what was written, then name the file in data.files.
    """
    parsed = load_recipe(recipe)
    must_be_new(out_file)
    from burnish_engine.chat.teacher import write_replies
    from burnish_engine.data.rows.open_questions import open_questions
    from burnish_engine.train.reinforce import taught_rows

    questions = open_questions(parsed.data, most=rows)
    chats, asked = questions.chats, [chat[-1]["content"] for chat in questions.chats]
    if questions.left_out:
        out.note(f"{plural(questions.left_out, 'row')} cannot be read or ask nothing, and are left out.")
    with err.status("trying the rewards"):
        taught_rows.try_rewards(parsed, asked[0])
    samplings = taught_rows.tries(parsed, len(chats), tries)
    with err.status("loading the teacher") as status:
        written = write_replies(
            teacher or parsed.model.path,
            chats,
            samplings,
            together=parsed.train.micro_batch_tokens,
            progress=lambda done, total: status.update(f"writing replies: {done:,} of {total:,} rows"),
        )
    chosen = taught_rows.choose_rows(parsed, asked, written, least)
    kept = [{"messages": [*chats[row.question], _reply(row.reply)]} for row in chosen if row.is_kept]
    _show_taught(asked, chosen)
    if not kept:
        raise DataError(
            f"None of {len(chosen)} replies earned {least:g} of the highest reward.",
            "Lower --least, raise --tries, or choose another teacher.",
        )
    write_atomic(out_file, "".join(dumps(row, ensure_ascii=False) + "\n" for row in kept))
    out.print(f"{len(kept)} of {len(chosen)} rows were written to {out_file}. Read them before they are learned.")
    return ExitCode.DONE


def _reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _show_taught(asked: Sequence[str], chosen: Sequence[TaughtRow]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("asked", "reply"):
        table.add_column(name, overflow="fold")
    table.add_column("reward", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in chosen[:_SHOWN_ROWS]:
        verdict = "kept" if row.is_kept else "left out"
        table.add_row(asked[row.question][-_SHOWN:].strip(), row.reply[:_SHOWN], f"{row.reward:.3f}", verdict)
    out.print(table)


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
    return dumps([row.model_dump(exclude={"tokens"}) for row in trial.rows], ensure_ascii=False, indent=2)
