"""Chooses what is learned from preferences, and the settings that go with the objective. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe_preference import (
    OBJECTIVES_OF,
    Objective,
    PreferenceSection,
    shape_to_read,
    usual_preference,
)

RATE_SHARE: dict[Objective, float] = {
    "sft": 1.0,
    "dpo": 1 / 60,
    "kto": 1 / 60,
    "simpo": 1 / 60,
    "orpo": 1 / 4,
    "grpo": 1 / 30,
}
"""Peak learning rate of an objective by that of learning replies as they stand (`settings.learning_rate`), which for
models of 7 and 8 billion parameters (width 4096) is 3e-4.

There, adapters are trained by DPO with 5e-6 (TRL's `trl/scripts/dpo.py`; Zephyr's QLoRA recipe of the alignment
handbook), by KTO with settings like DPO's (TRL's `trl/scripts/kto.py`), and by ORPO with 8e-5 (TRL's
`examples/scripts/orpo.py`). For SimPO, Meng et al. 2024 give 3e-7 to 1e-6 for whole models, where DPO takes 5e-7; an
adapter takes ten times as much in TRL's examples of DPO and ORPO, as Schulman and Thinking Machines Lab (2025) find,
also for rewards: DAPO (Yu et al. 2025) trains whole models with 1e-6."""

_REASONS: dict[Objective, str] = {
    "dpo": "The rows are pairs of a better and a worse reply, and DPO prefers the better one more than the model does "
    "now.",
    "kto": "The rows are replies labeled good or bad, and KTO learns from each by itself.",
    "orpo": "Learns the chosen replies and prefers them at once, without a reference: for a model that does not reply "
    "well yet.",
    "simpo": "Prefers the chosen replies by their mean log-probability, without a reference, so that long ones have no "
    "advantage.",
    "sft": "Learns good replies as they stand; the others are not used.",
    "grpo": "Learns from rewards for replies of its own.",
}
_YOURS = "You chose it. "


@dataclass(frozen=True)
class ChosenObjective:
    """The objective of a suggestion, and how a recipe says it."""

    preference: PreferenceSection  # preference section of the recipe
    shape: str = "auto"
    """The recipe's `data.shape`; named where preferences are learned as they stand, so that nobody is asked."""
    is_wish: bool = False  # whether a person chose the objective


def proposed_objective(shape: str) -> Objective | None:
    """Return the usual objective of a dataset's rows; None where they are no preferences, or not all of one kind.

    Args:
        shape: `DatasetFacts.shape`.
    """
    return next(iter(OBJECTIVES_OF.get(shape, ())), None)


def usual_section(objective: Objective, dataset: DatasetFacts | None = None) -> PreferenceSection:
    """Return an objective's usual settings; labels that are not about as many good as bad are evened out.

    Args:
        objective: what is learned.
        dataset: facts that `inspect` found with this objective; None: not inspected.
    """
    values = usual_preference(objective).model_dump()
    report = dataset.report if dataset is not None else None
    for finding in report.findings if report is not None and objective == "kto" else []:
        values |= {one.key.partition(".")[2]: one.value for one in finding.actions if finding.kind == "labels"}
    return PreferenceSection.model_validate(values)


def choose_objective(
    objective: Objective | None, dataset: DatasetFacts | None, *, section: PreferenceSection | None = None
) -> ChosenObjective:
    """Decide what is learned: what a person wishes, else the usual objective of the rows.

    Args:
        objective: wish of the person; None: propose one.
        dataset: facts that `inspect` found; None: not inspected.
        section: the person's own settings of the objective; None: the usual ones.
    """
    shape = dataset.shape if dataset is not None else ""
    chosen = objective or proposed_objective(shape) or "sft"
    return ChosenObjective(
        section or usual_section(chosen, dataset),
        shape=shape_to_read(chosen, shape),
        is_wish=objective is not None and objective != proposed_objective(shape),
    )


def objective_choices(choice: ChosenObjective) -> list[tuple[str, str, str]]:
    """List the choices that go with the objective as (key, value, reason); none where rows are no preferences."""
    section, usual = choice.preference, PreferenceSection()
    if not (section.is_active or choice.shape != "auto"):
        return []
    reason = _REASONS[section.objective]
    choices = [("preference.objective", str(section.objective), _YOURS + reason if choice.is_wish else reason)]
    if section.objective == "simpo" and section.beta != usual.beta:
        choices.append(
            ("preference.beta", f"{section.beta:g}", "SimPO's rewards are means per token, which are small.")
        )
    if section.rpo_alpha:
        why = "Adds the usual loss of the chosen replies, which keeps them likely."
        choices.append(("preference.rpo_alpha", f"{section.rpo_alpha:g}", why))
    for name in ("desirable_weight", "undesirable_weight"):
        value, why = getattr(section, name), "Evens out that more replies are labeled the other way."
        if value != getattr(usual, name):
            choices.append((f"preference.{name}", f"{value:g}", why))
    return choices


def rate_reason(objective: Objective, hidden_size: int) -> str:
    """Say why the learning rate is what it is.

    Args:
        objective: what is learned.
        hidden_size: hidden size of the model.
    """
    if objective == "sft":
        return f"What LoRA wants at a width of {hidden_size:,}; wider models want less."
    less = f"{1 / RATE_SHARE[objective]:.0f} times less than learning replies as they stand would take"
    name = objective.upper().replace("SIMPO", "SimPO")
    return f"What {name} wants of an adapter at a width of {hidden_size:,}: {less}."
