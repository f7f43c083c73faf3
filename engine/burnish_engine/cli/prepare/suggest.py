"""`burnish suggest`: proposes a model and a recipe for this machine, dataset and target, with reasons."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.table import Table
from rich.text import Text

from burnish_engine.cli.prepare.targets import (
    DEFAULT_CONTEXT,
    ContextOption,
    KindOption,
    QuantOption,
    RamOption,
    target_section,
)
from burnish_engine.cli.terminal import duration, err, out, print_json, styled
from burnish_engine.contract.errors import DataError, ExitCode, UsageError
from burnish_engine.contract.facts.advice import RunPlan, Suggestion
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.files import must_be_new, write_atomic
from burnish_engine.contract.paths import is_address
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.recipe_preference import Objective
from burnish_engine.contract.units import memory_size, plural
from burnish_engine.contract.wording.sentences import fit_sentence


def suggest(
    model: Annotated[
        str, typer.Option(help='"embedded", a folder, or a name from `burnish models`. Empty: one is proposed.')
    ] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Training file or hf://datasets/OWNER/NAME; may be given more than once."),
    ] = None,
    validation: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Held-out file; may be given more than once.")
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What to learn of preferences: dpo, kto, orpo, simpo, or sft for good replies as they stand; grpo: "
            "from rewards for own replies. Empty: the usual one for the rows.",
        ),
    ] = "",
    target: KindOption = "laptop",
    ram_gib: RamOption = 0.0,
    context: ContextOption = DEFAULT_CONTEXT,
    quant: QuantOption = "",
    recipe_file: Annotated[Path | None, typer.Option("--out", help="Write the recipe here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Propose a model and a recipe, with a reason for every choice.

    They fit this machine, the data, and the target: the device that the result will run on.
    """
    from burnish_engine.advise.facts.catalog import catalog, fetched_models
    from burnish_engine.advise.suggest.suggest import TrainingGoal, chosen_model
    from burnish_engine.advise.suggest.suggest import suggest as make
    from burnish_engine.hardware.probe import probe

    if objective and objective not in get_args(Objective):
        raise UsageError(f"{objective} is no objective.", f"Give --objective one of {', '.join(get_args(Objective))}.")
    wanted = cast("Objective | None", objective or None)
    section = target_section(target, ram_gib, context, quant)
    if recipe_file is not None:
        must_be_new(recipe_file, "recipe")
    here = fetched_models(catalog())
    folder = Path(model).is_dir() and model != "embedded"
    chosen = chosen_model(str(Path(model).absolute()) if folder else model, catalog(), here) if model else None
    files, held_out = [_absolute(name) for name in data or []], [_absolute(name) for name in validation or []]
    counted_with = chosen.path if chosen and chosen.here else "embedded"
    dataset = _facts(files, held_out, counted_with, wanted) if files else None
    wish = TrainingGoal(
        target=section, data=files, validation=held_out, dataset=dataset, model=chosen, objective=wanted
    )
    result = make(probe(), catalog(), wish, here=here)
    undecided = _mixed_notes(dataset) if dataset else []
    notes = list(undecided)
    if dataset and counted_with != result.model:
        notes.append(
            "Rows were measured with the embedded model's tokenizer; with the suggested model lengths differ a little."
        )
    result = result.model_copy(update={"warnings": [*result.warnings, *notes]})
    if recipe_file is not None:
        write_atomic(recipe_file, result.recipe)
    if json:
        print_json(result.model_dump_json(indent=2))
    else:
        _show(result, _what_next(result.model, recipe_file, here, undecided=bool(undecided)))
    return ExitCode.DONE if result.plan.fits else ExitCode.DOES_NOT_FIT


def _absolute(name: str) -> str:
    if is_address(name):
        return name
    if not Path(name).exists():
        raise UsageError(f"There is no file {name}.", "Check the path.")
    return str(Path(name).absolute())


def _facts(files: list[str], held_out: list[str], model: str, objective: Objective | None) -> DatasetFacts:
    """Measure the data for an objective; recognized preferences are measured again for their usual one."""
    from burnish_engine.advise.suggest.objective import proposed_objective
    from burnish_engine.data.profile import profile_dataset

    try:
        with err.status("reading the data") as status:

            def profile(aim: Objective) -> DatasetFacts:
                def show(what: str, done: int, total: int) -> None:
                    status.update(Text(f"{what}: {done:,} of {total:,} rows"))

                return profile_dataset(files, held_out, model, objective=aim, progress=show)

            found = profile("sft" if objective in (None, "grpo") else objective)
            usual = None if objective else proposed_objective(found.shape)
            return profile(usual) if usual else found
    except DataError as error:
        if "data." in error.remedy:
            error.remedy += " `burnish recipe new` writes a recipe to set that in."
        raise


def _mixed_notes(dataset: DatasetFacts) -> list[str]:
    """Say of preferences among rows of other shapes that the recipe has to be completed before it trains on them."""
    from burnish_engine.advise.suggest.objective import proposed_objective
    from burnish_engine.data.rows.shapes import preferences_among, undecided_preferences

    if proposed_objective(dataset.shape) is not None:
        return []
    wants = (
        "The suggested settings are for replies as they stand; preferences want a far lower train.learning_rate, and "
        "a data.max_length that holds the rejected or bad replies too."
    )
    return [f"{undecided_preferences('The dataset', shape)} {wants}" for shape in preferences_among(dataset.shape)]


def _what_next(model: str, recipe_file: Path | None, here: Collection[str], *, undecided: bool) -> str:
    """Say how the recipe gets written and trained, with everything that has to come first."""
    if recipe_file is None:
        return "Write it with --out recipe.toml"
    fetched = model == "embedded" or model in here or Path(model).is_dir()
    first = "say in it what to learn (above), then: " if undecided else ""
    fetch = "" if fetched else f"burnish models fetch {typed(model)}   and   "
    return f"Wrote {recipe_file}. {first.capitalize() or 'Then: '}{fetch}burnish train {typed(recipe_file)}"


def _show(result: Suggestion, what_next: str) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(style="bold", overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for choice in result.choices:
        table.add_row(choice.key, choice.value, choice.reason)
    out.print(table, soft_wrap=False)
    out.print(_summary(result.plan))
    for problem in result.plan.problems:
        out.problem(problem)
    for warning in result.warnings:
        out.note(warning)
    out.print(what_next)


def _summary(plan: RunPlan) -> Text:
    time = f", about {duration(plan.total_seconds)}" if plan.total_seconds is not None else ""
    steps = f" in {plural(plan.steps, 'step')}" if plan.steps else ""
    verdict = "[bold]{}[/]" if plan.fits else "[bold red]{}[/]"
    memory = f"{memory_size(plan.memory_bytes)} of {memory_size(plan.memory_free_bytes)} free"
    speed = f"{plan.tokens_per_s:,.0f} tokens/s{time}{steps}"
    return styled(verdict + " {} on {}, {}.", fit_sentence(plan), memory, plan.device, speed)
