"""Three lengths of a run to choose from: a quick look, the suggested one, and the best. Pure functions, no Qt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from burnish_app.look.language import tr
from burnish_engine.contract.recipe.recipe import Recipe

Preset = Literal["quick", "balanced", "best"]
PRESETS: tuple[Preset, ...] = ("quick", "balanced", "best")
PRESET_NAMES: dict[Preset, str] = {"quick": tr("Quick look"), "balanced": tr("Balanced"), "best": tr("Best")}

_QUICK_STEPS = 30
_BEST_EPOCHS = 2.0  # times the suggested ones
_BEST_LOOKS = 20  # evaluations, of which the best is kept
_BEST_PATIENCE = 4  # evaluations without a better one, a fifth of the longest run


@dataclass(frozen=True)
class PresetBasis:
    """The suggestion that presets are made from.

    Attributes:
        suggested: suggested recipe.
        steps: predicted steps of the suggested recipe; None: not known.
        has_held_out: whether rows are held out, without which there is no best evaluation.
    """

    suggested: Recipe
    steps: int | None
    has_held_out: bool


def with_preset(recipe: Recipe, preset: Preset, basis: PresetBasis) -> Recipe:
    """Return the recipe with the values of a preset: how long it trains, and how often it is evaluated.

    Args:
        recipe: recipe to change; all other settings stay.
        preset: preset.
        basis: suggestion that the values come from.
    """
    suggested = basis.suggested
    train: dict[str, object] = {
        "epochs": suggested.train.epochs,
        "max_steps": suggested.train.max_steps,
        "max_tokens": suggested.train.max_tokens,
    }
    evaluation: dict[str, object] = {
        "every": suggested.evaluation.every,
        "patience": suggested.evaluation.patience,
    }
    if preset == "quick":
        train |= {"max_steps": quick_steps(basis.steps)}
        evaluation |= {"every": 0, "patience": 0}
    elif preset == "best" and basis.has_held_out:
        longest = round((basis.steps or 0) * _BEST_EPOCHS)
        every = max(longest // _BEST_LOOKS, 1) if longest else suggested.evaluation.every or 50
        train |= {"epochs": suggested.train.epochs * _BEST_EPOCHS, "max_steps": 0, "max_tokens": 0}
        patience = 0 if recipe.preference.learns_rewards else _BEST_PATIENCE  # its loss is not what it learns
        evaluation |= {"every": every, "patience": patience}
    return recipe.model_copy(
        update={
            "train": recipe.train.model_copy(update=train),
            "evaluation": recipe.evaluation.model_copy(update=evaluation),
        }
    )


def quick_steps(steps: int | None) -> int:
    """Return the steps of a quick look: 30, or a quarter of a run that has few.

    Args:
        steps: predicted steps of the suggested run; None: not known.
    """
    return _QUICK_STEPS if steps is None else min(_QUICK_STEPS, max(steps // 4, 1))


def chosen_preset(recipe: Recipe, basis: PresetBasis) -> Preset | None:
    """Return the preset whose values the recipe has; None: values of its own."""
    for preset in ("balanced", "quick", "best"):
        if (preset != "best" or basis.has_held_out) and with_preset(recipe, preset, basis) == recipe:
            return preset
    return None


def preset_text(preset: Preset, basis: PresetBasis) -> str:
    """Say in a sentence what a preset does.

    Args:
        preset: preset.
        basis: suggestion that its values come from.
    """
    if preset == "quick":
        return tr("{steps} steps: does it learn?").format(steps=quick_steps(basis.steps))
    if preset == "balanced":
        return tr("{epochs:g} epochs.").format(epochs=basis.suggested.train.epochs)
    if not basis.has_held_out:
        return tr("Needs held-out rows, which tell when it is best.")
    if basis.suggested.preference.learns_rewards:
        return tr("{epochs:g} times through the prompts.").format(epochs=basis.suggested.train.epochs * _BEST_EPOCHS)
    return tr("Up to {epochs:g} epochs, while held-out rows gain.").format(
        epochs=basis.suggested.train.epochs * _BEST_EPOCHS
    )
