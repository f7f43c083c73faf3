"""`burnish evaluate`: scores a run's models on its held-out rows, whatever its recipe scored."""

from __future__ import annotations

import json as json_module
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from pydantic import ValidationError
from rich.table import Table

from burnish_engine.cli.results.export_bar import ExportBar
from burnish_engine.cli.terminal import out, print_json
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.facts.task_score import METRIC_NAMES, TaskChange, TaskScore
from burnish_engine.contract.files import read_plain
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_section import setting_info
from burnish_engine.contract.recipe.recipe_task import TaskMetric, TaskSection
from burnish_engine.runs.held_out import load_conversations
from burnish_engine.runs.store import open_run, read_recipe, with_own_template
from burnish_engine.scoring.rows_file import load_task_rows
from burnish_engine.scoring.score import TaskRows, choose_rows

if TYPE_CHECKING:
    from burnish_engine.chat.score_models import Answered, Replies

_METRICS = ", ".join(name for name in get_args(TaskMetric) if name != "none")

_OPTIONS = {"max_rows": "rows", "choices": "choice"}  # key of the recipe to its option, where they differ


def _help(key: str) -> str:
    """Return the help of a setting of the recipe's section, with the metric that uses it."""
    field = TaskSection.model_fields[key]
    return f"{field.description} {setting_info(field).use_text('task')}"


def evaluate(
    run: Annotated[str, typer.Argument(help='A run; "last" is the newest.')],
    file: Annotated[
        list[Path] | None, typer.Option(metavar="GGUF", help="Score this file too; may be repeated.")
    ] = None,
    exported: Annotated[bool, typer.Option("--exported", help="Score the run's exported GGUF files too.")] = False,
    metric: Annotated[str, typer.Option(help=f"What makes a reply right: {_METRICS}. Empty: the recipe's.")] = "",
    pattern: Annotated[str, typer.Option(help=_help("pattern"))] = "",
    json_schema: Annotated[Path | None, typer.Option(metavar="FILE", help="json: a file with a JSON Schema.")] = None,
    choice: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help=f"{_help('choices')} May be repeated.")
    ] = None,
    ignore_case: Annotated[
        bool | None, typer.Option("--ignore-case/--no-ignore-case", help=_help("ignore_case"))
    ] = None,
    tolerance: Annotated[float | None, typer.Option(help=_help("tolerance"))] = None,
    relative_tolerance: Annotated[float | None, typer.Option(help=_help("relative_tolerance"))] = None,
    rows: Annotated[int, typer.Option(help="Most rows. 0: the recipe's, else 50.")] = 0,
    max_tokens: Annotated[int, typer.Option(help="Longest reply, tokens. 0: the recipe's, else 128.")] = 0,
    exact: Annotated[
        bool, typer.Option("--exact", help="Make each reply the same to the bit, whatever rows are asked. Slower.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print all rows and replies as one JSON document.")] = False,
) -> int:
    """Score a run's task on held-out rows.

    Base, tuned model and files are compared. Each model answers the same rows greedily. A difference between two is
    called one only where McNemar's exact test finds it beyond chance (5 %).
    """
    from burnish_engine.chat.score_models import check_file
    from burnish_engine.chat.target import exported_files

    paths = open_run(run)
    recipe = with_own_template(paths, read_recipe(paths))
    said: dict[str, Any] = {
        "metric": metric or None, "pattern": pattern or None, "json_schema": _schema_text(json_schema) or None,
        "choices": choice or None, "ignore_case": ignore_case, "tolerance": tolerance,
        "relative_tolerance": relative_tolerance, "max_rows": rows or None, "max_tokens": max_tokens or None,
    }  # fmt: skip
    section = _section(recipe.task, {name: value for name, value in said.items() if value is not None})
    files = _named([*(file or []), *(exported_files(paths) if exported else [])])
    for one in files.values():
        check_file(one)
    task = _rows(paths, recipe, section)
    with ExportBar(quiet=json) as bar:
        replies = _all_replies(paths, recipe, task, files, bar, exact=exact)
    scores = {name: task.score(given) for name, given in replies.items()}
    if json:
        print_json(_document(task, replies, scores))
    else:
        _show(task, scores)
    return ExitCode.DONE


def _named(files: list[Path]) -> dict[str, Path]:
    """Name each file once: as it is called, or by its path where several are called so."""
    distinct = list({file.resolve(): file for file in files}.values())
    names = Counter(file.name for file in distinct)
    return {file.name if names[file.name] == 1 else str(file): file for file in distinct}


def _schema_text(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return read_plain(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}.", "Check the path.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no text in UTF-8.", "Give a file with a JSON Schema.") from None


def _section(of_recipe: TaskSection, said: dict[str, Any]) -> TaskSection:
    """Return the recipe's section with the options; one with another metric begins from the defaults."""
    other = said.get("metric", of_recipe.metric) != of_recipe.metric
    kept = TaskSection() if other else of_recipe
    if not said and not of_recipe.is_active:
        raise UsageError(
            "The run's recipe scores no task, and no metric is given.",
            f'Give --metric ({_METRICS}); the guide explains them on the page "Your own data".',
        )
    try:
        chosen = TaskSection.model_validate({**kept.model_dump(), **said})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = _option(str(first["loc"][0])) if first["loc"] else "The options"
        raise UsageError(
            f"{where}: {first['msg'].removeprefix('Value error, ')}.", "`burnish evaluate --help` shows them all."
        ) from None
    if not chosen.is_active:
        raise UsageError("No metric is given.", f"Give --metric ({_METRICS}).")
    for key in said:
        if setting_info(TaskSection.model_fields[key]).missing("task", {"task": chosen.model_dump()}):
            raise UsageError(f"{_option(key)} does not apply to {chosen.metric}.", f"Leave {_option(key)} out.")
    return chosen


def _option(key: str) -> str:
    """Return the option that sets a key of the recipe's section."""
    return f"--{_OPTIONS.get(key, key).replace('_', '-')}"


def _rows(paths: RunPaths, recipe: Recipe, section: TaskSection) -> TaskRows:
    """Return the rows that training scored where they are scored in the same way, else the first that can be."""
    kept = load_task_rows(paths)
    if kept is not None and section == recipe.task:
        return kept
    from burnish_engine.chat.prompt import chat_ids
    from burnish_engine.chat.run_model import base_model
    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(base_model(recipe))

    def prompt_tokens(messages: list[dict[str, str]]) -> int | None:
        try:
            return len(chat_ids(tokenizer, messages))
        except UsageError:
            return None

    return choose_rows(section, load_conversations(paths), prompt_tokens, recipe.data.max_length)


def _all_replies(
    paths: RunPaths, recipe: Recipe, task: TaskRows, files: dict[str, Path], bar: ExportBar, *, exact: bool
) -> dict[str, Replies]:
    """Answer the rows with the base and the tuned model, then with files."""
    from burnish_engine.chat.device import chat_device
    from burnish_engine.chat.run_model import base_of_whole, trained_model
    from burnish_engine.chat.score_models import both_replies, file_replies, model_replies
    from burnish_engine.chat.torch_chat import TorchChat
    from burnish_engine.models.device.device import choose_precision

    found: dict[str, Replies] = {}
    total = (2 + len(files)) * len(task.rows)

    def answered(name: str) -> Answered:
        begun = len(found) * len(task.rows)
        return lambda done: bar.show(f"Answering with {name}", (begun + done) / total)

    device, busy = chat_device(recipe.devices)
    if busy:
        bar.say("note: the GPU is training, so the CPU answers.")
    precision = choose_precision("auto", device)
    source, adapter = trained_model(paths, recipe)
    if adapter is None:
        base, why = base_of_whole(recipe)
        if base is None:
            bar.say(f"note: {why}")
        else:
            with closing(TorchChat(base, precision=precision, device=device, exact=exact)) as chat:
                found["base"] = model_replies(chat, task, answered("the base"))
    with closing(TorchChat(source, adapter, precision=precision, device=device, exact=exact)) as chat:
        if adapter is not None:
            found["base"], found["tuned"] = both_replies(chat, task, answered("the base and the tuned model"))
        else:
            found["tuned"] = model_replies(chat, task, answered("the tuned model"))
    for name, file in files.items():
        found[name] = file_replies(file, task, answered(name))
    return found


def _show(task: TaskRows, scores: dict[str, TaskScore]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for title in ("", METRIC_NAMES[task.section.metric], "95 % interval", "cut", "difference"):
        table.add_column(title, overflow="fold")
    for name, score in scores.items():
        low, high = score.interval
        former = {"base": "", "tuned": "base"}.get(name, "tuned")
        change = ""
        if former in scores:
            change = f"{TaskChange(before=scores[former], after=score).verdict_text}, against {former}"
        table.add_row(name, score.figures, f"{low:.0%} to {high:.0%}", str(score.cut or ""), change)
    out.print(table)
    if task.left_out:
        out.note(f"{task.left_out_text}.")
    if any(score.cut for score in scores.values()):
        out.note(
            f"Replies are cut at {task.section.max_tokens} tokens; --max-tokens (task.max_tokens) allows longer ones."
        )
    last, score = list(scores.items())[-1]
    for failure in score.failures[:3]:
        out.dim(f"{last}, row {failure.row}: {failure.why}. Wanted: {failure.wanted!r}; reply: {failure.reply!r}")


def _document(task: TaskRows, replies: dict[str, Replies], scores: dict[str, TaskScore]) -> str:
    rows = [
        {
            "messages": row.messages,
            "wanted": row.wanted,
            "replies": {
                name: {"text": given[place][0], "ended": given[place][1], "right": scores[name].passed[place]}
                for name, given in replies.items()
            },
        }
        for place, row in enumerate(task.rows)
    ]
    models = {
        name: {"right": score.right, "rows": score.rows, "interval": score.interval, "cut": score.cut}
        for name, score in scores.items()
    }
    document = {
        "task": task.section.model_dump(), "left_out": task.left_out, "models": models, "rows": rows,
    }  # fmt: skip
    return json_module.dumps(document, indent=2, ensure_ascii=False)
