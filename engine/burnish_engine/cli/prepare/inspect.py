"""`burnish inspect`: shows a dataset, and what would be trained on."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from burnish_engine.cli.prepare.dataset_report import report_blocks
from burnish_engine.cli.terminal import Terminal, err, print_json
from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.contract.facts.facts import DatasetFacts, LengthStats
from burnish_engine.contract.plain_text import printable
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.contract.units import plural

_LEARNED = "bold yellow underline"
_BAR_CELLS = 40
_OPTIONS = {
    "data.shape": "--shape", "data.columns": "--column", "data.encoding": "--encoding",
    "data.broken_rows": "--broken-rows",
}  # fmt: skip
"""Key of the recipe to the option of this command."""
_MOST_FILES = 8
_BESIDE_BARS = 32  # terminal cells for the numbers beside the bars


def inspect(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="Files (JSONL, JSON, CSV, TSV, Parquet, Arrow, TXT, Markdown, packed or not), folders, zip archives, "
            "or hf://datasets/OWNER/NAME.",
        ),
    ],
    *,
    model: Annotated[
        str,
        typer.Option(
            help='Model whose tokenizer and template are used: "embedded", a folder, or the name of a fetched model.'
        ),
    ] = "embedded",
    max_length: Annotated[int, typer.Option(help="Longest row, tokens; see --overlong.")] = 1024,
    overlong: Annotated[
        str,
        typer.Option(help="What happens to longer rows: auto (texts fill further rows), truncate, drop or split."),
    ] = "auto",
    shape: Annotated[
        str,
        typer.Option(
            help="Shape of the rows: auto, messages, sharegpt, alpaca, prompt_completion, preference, kto, segments "
            "or text."
        ),
    ] = "auto",
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="MEANING=NAME", help='What a column means, such as "prompt=Frage"; one for each column.'),
    ] = None,
    learn: Annotated[str, typer.Option(help="What is learned: responses, last or everything.")] = "responses",
    objective: Annotated[
        str, typer.Option(help="What is learned of pairs and labeled replies: sft, dpo, orpo, simpo or kto.")
    ] = "sft",
    template: Annotated[str, typer.Option(help="Chat template: auto, a known name, or a .jinja file.")] = "auto",
    encoding: Annotated[str, typer.Option(help="How the letters of text files are stored.")] = "utf-8",
    broken_rows: Annotated[str, typer.Option(help="What happens at a row that cannot be read: stop or drop.")] = "stop",
    whole: Annotated[bool, typer.Option("--whole", help="Look at every row of large data too; takes a while.")] = False,
    validation: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Held-out file; may be given more than once.")
    ] = None,
    micro_batch_tokens: Annotated[
        int, typer.Option(help="Tokens computed in one pass. 0: 2048, or what the longest row needs.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON and nothing else.")] = False,
) -> None:
    """Show what is in a dataset.

    Its format, the shape of its rows, their lengths, problems, and one row as it would be trained on.
    """
    recipe = _recipe(
        data={
            "files": data,
            "validation_files": validation or [],
            "max_length": max_length,
            "overlong": overlong,
            "shape": shape,
            "learn": learn,
            "columns": column or [],
            "template": template,
            "encoding": encoding,
            "broken_rows": broken_rows,
        },
        preference={"objective": objective},
        micro_batch_tokens=micro_batch_tokens,
    )
    from burnish_engine.data.prepare import inspect_dataset
    from burnish_engine.models.checkpoint.source import open_model
    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

    try:
        with err.status("reading the model's tokenizer") as status:
            tokenizer = load_tokenizer(open_model(model))
            facts = inspect_dataset(
                recipe,
                tokenizer,
                whole=whole,
                progress=lambda what, done, total: status.update(Text(f"{what}: {done:,} of {total:,} rows")),
            ).facts
    except DataError as error:
        if options := [name for key, name in _OPTIONS.items() if key in error.remedy]:
            error.remedy += f" Here: {', '.join(options)}."
        raise
    if json:
        print_json(facts.model_dump_json())
    else:
        show_facts(facts, recipe, Terminal(soft_wrap=False))


def show_facts(facts: DatasetFacts, recipe: Recipe, console: Terminal) -> None:
    """Print a dataset's facts.

    Args:
        facts: facts on the dataset.
        recipe: settings that the facts were found with.
        console: terminal to print on.
    """
    console.print(_summary(facts, recipe))
    if facts.dropped:
        console.print(_section("Dropped rows"), _dropped(facts))
    if facts.lengths:
        console.print(_section("Lengths"), _histogram(facts.lengths, recipe.data.max_length, console))
    if facts.report:
        console.print(*report_blocks(facts.report))
    if facts.warnings:
        console.print(_section("Warnings"), *(Padding(Text(f"- {warning}"), (0, 2)) for warning in facts.warnings))
    console.print(*_example(facts, recipe.preference, console))


def _recipe(*, data: dict[str, object], preference: dict[str, object], micro_batch_tokens: int) -> Recipe:
    try:
        learned = PreferenceSection.model_validate(preference)
        rows = DataSection.model_validate(data)
        longest = rows.max_length * learned.sequences  # both halves of a pair are in one pass
        budget = micro_batch_tokens or max(longest, _default_budget())
        train = TrainSection.model_validate({"micro_batch_tokens": budget})
        return Recipe(data=rows, preference=learned, train=train)
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors(include_url=False)]
        raise UsageError(f"These options cannot be: {'; '.join(problems)}.", "See `burnish inspect --help`.") from None


def _problem(detail: Any) -> str:
    """Describe one of pydantic's findings, with the option that it is about."""
    says = str(detail["msg"]).removeprefix("Value error, ")
    option = str(detail["loc"][0]).replace("_", "-") if detail["loc"] else ""
    return f"--{option} {detail['input']}: {says}" if option else says


def _default_budget() -> int:
    return int(TrainSection.model_fields["micro_batch_tokens"].default)


def _summary(facts: DatasetFacts, recipe: Recipe) -> Table:
    used = facts.report.used_rows if facts.report else facts.train_rows + facts.validation_rows
    about = "about " if facts.report and facts.report.sampled_rows else ""
    more = len(facts.files) - _MOST_FILES
    share = facts.supervised_tokens / facts.tokens if facts.tokens else 0.0
    budget = recipe.train.micro_batch_tokens
    rows = {
        "files": "\n".join(facts.files[:_MOST_FILES]) + (f"\nand {more:,} more" if more > 0 else ""),
        "format": f"{facts.format}, shape {facts.shape}",
        "columns": ", ".join(facts.columns),
        "rows": f"{about}{facts.rows:,}: {used:,} used, {facts.rows - used:,} dropped",
        "training": _kept(facts.report.training_rows if facts.report else facts.train_rows, facts.train_rows),
        "held out": _kept(facts.report.held_out_rows if facts.report else facts.validation_rows, facts.validation_rows),
        "tokens": f"{facts.tokens:,}, of which {facts.supervised_tokens:,} learned ({share:.1%})",
        "truncated": f"{plural(facts.truncated_rows, 'row')} longer than {recipe.data.max_length:,} tokens",
        "packing": f"{facts.micro_batches:,} {'pass' if facts.micro_batches == 1 else 'passes'} an epoch, "
        f"{facts.fill:.1%} of {budget:,} tokens filled",
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows.items():
        grid.add_row(Text(name, style="dim"), value)
    return grid


def _kept(rows: int, documents: int) -> str:
    """Describe the number of rows; long ones may be several documents, and weights repeat or omit rows."""
    return plural(rows, "row") + (f" as {documents:,} documents" if documents != rows else "")


def _dropped(facts: DatasetFacts) -> Table:
    from burnish_engine.data.report.findings import row_list_text

    table = Table.grid(padding=(0, 2))
    for reason, count in sorted(facts.dropped.items(), key=lambda item: -item[1]):
        first = row_list_text(facts.dropped_examples.get(reason, []), several=len(facts.files) > 1)
        table.add_row(f"{count:,}", reason, Text(f"first: row {first}", style="dim"))
    return table


def _histogram(lengths: LengthStats, max_length: int, console: Terminal) -> Group:
    line = Text(
        f"mean {lengths.mean:,.0f}, median {lengths.median:,.0f}, 95 % up to {lengths.p95:,.0f}, "
        f"longest {lengths.longest:,} tokens"
    )
    bar = "#" if console.options.ascii_only else "█"
    cells = max(8, min(_BAR_CELLS, console.width - _BESIDE_BARS))
    table = Table.grid(padding=(0, 1))
    most = max((count for _, count in lengths.histogram), default=1)
    cut = lengths.longest > max_length
    for edge, count in lengths.histogram:
        if cut and edge > max_length:
            table.add_row(Text("cut", style="red"), Text("-" * cells, style="red"), Text(f"max_length {max_length:,}"))
            cut = False
        length = -(-count * cells // most)  # rounded up: one row is one cell
        table.add_row(Text(f"up to {edge:,}"), Text(bar * length), Text(f"{count:,}", style="dim"))
    return Group(line, table)


def _example(facts: DatasetFacts, section: PreferenceSection, console: Terminal) -> tuple[Text, Padding]:
    """Render the example row; supervised text is colored and underlined, and in brackets where there is no color."""
    title, marked = "First row as trained", "learned text"
    if section.learns_pairs:
        title, marked = "First pair, the chosen reply before the rejected one", "replies"
    elif section.learns_labels:
        title, marked = "First row, good or bad as labeled", "reply"
    colors = console.is_terminal and not console.no_color and console.color_system is not None
    opening, closing = ("", "") if colors else (("[[", "]]") if console.options.ascii_only else ("⟦", "⟧"))
    text = Text()
    for piece, learned in facts.example:
        if learned:
            text.append(opening).append_text(Text(printable(piece), style=_LEARNED)).append(closing)
        else:
            text.append_text(Text(printable(piece), style="dim"))
    how = "underlined" if colors else f"in {opening}{closing}"
    return _section(f"{title} ({marked} {how})"), Padding(text, (0, 2))


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold")
