"""Prepare a duel without writing anything: read the recipes, refuse unfair ones, and predict the cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.recipe.sweep import SweepSetting, expand, value_text
from burnish_engine.contract.run.duels import DuelJudge
from burnish_engine.contract.units import plural
from burnish_engine.duel.measures.energy import meter_for
from burnish_engine.duel.sides.differences import differences, refuse_unfair, require_factor
from burnish_engine.duel.sides.spec import DuelOptions, Side
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.effects import factor_name

_LETTERS = "ABCDEFGH"


@dataclass(frozen=True)
class DuelForecast:
    """Forecast of a duel that can begin.

    Attributes:
        state: state of the duel at its start.
        recipes: recipe of each side.
        plans: predicted cost of one run of each side.
    """

    state: DuelState
    recipes: list[Recipe]
    plans: list[RunPlan]


def forecast_duel(files: Sequence[Path], options: DuelOptions, command: str) -> DuelForecast:
    """Read the recipes of a duel and forecast it.

    Args:
        files: recipe files.
        options: options of the comparison.
        command: command line that asked for the duel.

    Raises:
        UsageError: The recipes cannot be compared, or not fairly.
        BurnishError: A recipe, its model or its data cannot be used.
    """
    if not 2 <= len(files) <= len(_LETTERS):
        raise UsageError(
            f"A duel compares 2 to {len(_LETTERS)} recipes, not {len(files)}.",
            "Name them: `burnish duel a.toml b.toml`.",
        )
    recipes = [load_recipe(file) for file in files]
    return forecast_recipes(recipes, _names(files), [file.name for file in files], options, command)


def forecast_factors(file: Path, tried: Sequence[SweepSetting], options: DuelOptions, command: str) -> DuelForecast:
    """Forecast a duel of all combinations of some settings' values.

    Args:
        file: recipe that the settings change.
        tried: factors, each with two values.
        options: options of the comparison.
        command: command line that asked for the duel.

    Raises:
        UsageError: A setting cannot be a factor, or the recipes cannot be compared.
        BurnishError: The recipe, its model or its data cannot be used.
    """
    names, recipes = factor_sides(load_recipe(file), tried)
    return forecast_recipes(recipes, names, [file.name] * len(names), options, command, tried=tried)


def factor_sides(recipe: Recipe, tried: Sequence[SweepSetting]) -> tuple[list[str], list[Recipe]]:
    """Return the name and the recipe of each side: every combination of the factors' values.

    Args:
        recipe: recipe that the settings change.
        tried: factors, each with two values.

    Raises:
        UsageError: A setting cannot be a factor, or a value is invalid.
    """
    for factor in tried:
        require_factor(factor.key)
        if len(factor.values) != 2:
            raise UsageError(
                f"{factor.key} has {plural(len(factor.values), 'value')}, and a factor of a duel has two.",
                "Give two; a sweep takes any number.",
            )
    cells, parts = expand(recipe, tried), [factor_name(factor.key) for factor in tried]
    names = [
        ", ".join(f"{part} {value_text(value)}" for part, value in zip(parts, cell.values, strict=True))
        for cell in cells
    ]
    return names, [cell.recipe for cell in cells]


def forecast_recipes(
    recipes: Sequence[Recipe],
    names: Sequence[str],
    files: Sequence[str],
    options: DuelOptions,
    command: str,
    *,
    tried: Sequence[SweepSetting] = (),
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> DuelForecast:
    """Forecast a duel of recipes.

    Args:
        recipes: recipes with absolute paths.
        names: name of each side, all different.
        files: name of each side's file.
        options: options of the comparison.
        command: command line that asked for the duel, or would.
        tried: factors whose combinations the recipes are.
        progress: callback given what is being done, how much of it is done, and of how much.

    Raises:
        UsageError: The recipes cannot be compared, or not fairly.
        BurnishError: A recipe, its model or its data cannot be used.
    """
    if not 2 <= len(recipes) <= len(_LETTERS):
        raise UsageError(
            f"A duel compares 2 to {len(_LETTERS)} recipes, not {len(recipes)}.",
            "Name them: `burnish duel a.toml b.toml`.",
        )
    for name, recipe in zip(names, recipes, strict=True):
        _refuse_unmeasurable(name, recipe)
    judge = judge_of(recipes, names)
    found = differences(recipes, [factor.key for factor in tried])
    if not options.anyway:
        refuse_unfair(found, names)
    if not any(one.kind == "compared" for one in found) and not options.anyway:
        own = ", ".join(one.key for one in found)
        differ = f"differ only in what a duel sets itself ({own})" if own else "are the same"
        raise UsageError(
            f"{' and '.join(names)} {differ}: there is nothing to compare.",
            "Change what the duel shall be about (optimizer, rank, engine, ...), or add --anyway: equal sides show how "
            "often this method finds a difference where there is none.",
        )
    plans = [_planned(recipe, progress) for recipe in recipes]
    sides = [
        Side(letter=_LETTERS[place], name=name, file=file, rate=recipe.train.learning_rate, run_s=made.total_seconds)
        for place, (name, file, recipe, made) in enumerate(zip(names, files, recipes, plans, strict=True))
    ]
    meter = meter_for(recipes[0].devices)
    state = DuelState(
        created=time.time(),
        options=options,
        sides=sides,
        seed=recipes[0].train.seed,
        every=max(1, max(made.steps or 1 for made in plans) // options.evaluations),
        tried=list(tried),
        differences=found,
        command=command,
        judge=judge,
        energy=meter.source if meter else "",
    )
    return DuelForecast(state, list(recipes), plans)


def judge_of(recipes: Sequence[Recipe], names: Sequence[str]) -> DuelJudge:
    """Choose the measure that decides a duel: the held-out loss, or of objectives with losses of their own, pairs.

    Args:
        recipes: recipes of the sides.
        names: name of each side.

    Raises:
        UsageError: The sides share no measure.
    """
    sections = [recipe.preference for recipe in recipes]
    if all(section == sections[0] for section in sections):
        return "held_out_loss"
    if all(section.learns_pairs for section in sections):
        return "pair_error"
    learned = [f"{name} by {section.objective}" for name, section in zip(names, sections, strict=True)]
    raise UsageError(
        f"The sides share no measure: {' and '.join(learned)}. Each objective has a loss of its own, and only those "
        "that learn from pairs see the same tokens in the same steps and can be measured on the same held-out pairs.",
        "Compare dpo, orpo and simpo with each other, or give all recipes the same [preference].",
    )


def _refuse_unmeasurable(name: str, recipe: Recipe) -> None:
    data = recipe.data
    if not data.files:
        raise UsageError(
            f"The recipe {name} names no training files (data.files is empty).",
            'Add some, such as files = ["conversations.jsonl"] under [data].',
        )
    if not data.validation_files and data.validation_share == 0.0:
        raise UsageError(
            f"The recipe {name} holds no rows out (data.validation_share = 0 and no data.validation_files), and a duel "
            "is judged by the held-out loss.",
            "Name held-out files, or set data.validation_share = 0.05 in all recipes.",
        )


def _planned(recipe: Recipe, progress: Callable[[str, int, int], None]) -> RunPlan:
    """Predict a run, with its dataset read."""
    from burnish_engine.data.prepare import inspect_dataset
    from burnish_engine.models.checkpoint.source import open_model
    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(open_model(recipe.model.path))
    return plan_recipe(recipe, dataset=inspect_dataset(recipe, tokenizer, progress=progress).facts)


def _names(files: Sequence[Path]) -> list[str]:
    """Name the sides after their files, with the folder where file names are equal, else with numbers."""
    stems = [file.stem for file in files]
    if len(set(stems)) == len(stems):
        return stems
    longer = [f"{file.resolve().parent.name}/{file.stem}" for file in files]
    if len(set(longer)) == len(longer):
        return longer
    return [f"{stem} {letter}" for stem, letter in zip(stems, _LETTERS, strict=False)]
