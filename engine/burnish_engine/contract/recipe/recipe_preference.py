"""The schema of the recipe's section `preference`."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from burnish_engine.contract.recipe.recipe_section import Section, setting

Objective = Literal["sft", "dpo", "orpo", "simpo", "kto"]
LossType = Literal["sigmoid", "hinge", "ipo", "robust", "kto", "apo_zero_unpaired"]
PREFERENCE_USES: dict[Objective, tuple[str, ...]] = {
    "sft": (),
    "dpo": ("beta", "loss_type", "label_smoothing", "rpo_alpha"),
    "orpo": ("beta",),
    "simpo": ("beta", "label_smoothing", "rpo_alpha", "simpo_gamma"),
    "kto": ("beta", "loss_type", "desirable_weight", "undesirable_weight"),
}
"""The settings of the section that each objective uses."""
OBJECTIVES_OF: dict[str, tuple[Objective, ...]] = {
    "preference": ("dpo", "orpo", "simpo", "sft"),
    "kto": ("kto", "sft"),
}
"""Shape of a dataset's rows to the objectives that can learn from them, the usual one first."""
LOSS_TYPES: dict[Objective, tuple[LossType, ...]] = {
    "dpo": ("sigmoid", "hinge", "ipo", "robust"),
    "kto": ("sigmoid", "kto", "apo_zero_unpaired"),
}
"""The losses of each objective that has a choice."""
_USUAL_SETTINGS: dict[Objective, dict[str, float]] = {"dpo": {"rpo_alpha": 1.0}, "simpo": {"beta": 2.0}}
"""Usual settings of objectives that are not the schema's defaults. SimPO's beta: Meng et al. 2024. The usual loss
beside DPO's, with weight 1: Pang et al. 2024, "Iterative Reasoning Preference Optimization"; without it both may
become unlikely, and the embedded model then ends its replies early (`assets/guide/preference-tour.md`)."""

_LEAST_SIMPO_BETA = 1.0  # Meng et al. 2024 search from 2.0 up; with the usual 0.1 of dpo pairs hardly count
LARGEST_WEIGHT = 1000.0
"""Largest weight of good or bad replies."""


class PreferenceSection(Section):
    """Learning from pairs of a chosen and a rejected reply, or from replies labeled good or bad. Names are TRL's."""

    objective: Objective = setting(
        "sft",
        "sft: learn replies as they stand; of a pair, the chosen one. dpo: prefer the chosen reply more than the base "
        "model does (Rafailov et al. 2023). orpo: learn the chosen reply and raise its odds over the rejected one's "
        "(Hong et al. 2024). simpo: prefer it by its mean log-probability, with a margin (Meng et al. 2024). kto: "
        "from replies labeled good or bad, each for itself (Ethayarajh et al. 2024). dpo and kto compare "
        "with a reference, the model as training begins, and so need an adapter; orpo and simpo have no reference.",
    )
    beta: float = setting(
        0.1,
        "dpo and kto: how closely the model stays to the reference; smaller strays farther. orpo: weight of the odds "
        "ratio. simpo: scale of the reward, usually 2.0 to 10.",
        gt=0.0,
        le=1000.0,
    )
    loss_type: LossType = setting(
        "sigmoid",
        "dpo: loss of a pair. sigmoid: the original. hinge: nothing to learn beyond a margin (Zhao et al. 2023). ipo: "
        "squared distance of the mean log-probability ratio to 1 / (2 beta) (Azar et al. 2023). robust: unbiased "
        "where the share `label_smoothing` of the labels is wrong (Chowdhury et al. 2024). kto: sigmoid and kto "
        "are the original; apo_zero_unpaired: the same without the KL estimate and its time (D'Oosterlinck et al. "
        "2024).",
    )
    label_smoothing: float = setting(
        0.0,
        "dpo with sigmoid or robust, and simpo: expected share of pairs whose labels are swapped.",
        unit="share",
        ge=0.0,
        lt=0.5,
    )
    rpo_alpha: float = setting(
        0.0,
        "dpo and simpo: weight of the usual loss of the chosen reply, added to that of the pairs; it keeps the chosen "
        "reply likely. 0: none.",
        ge=0.0,
        le=100.0,
    )
    simpo_gamma: float = setting(0.5, "simpo: margin that the rewards should differ by.", ge=0.0, le=100.0)
    desirable_weight: float = setting(
        1.0,
        "kto: weight of the replies labeled good. With n good and m bad ones, desirable_weight n / (undesirable_weight "
        "m) should lie between 1 and 4/3.",
        gt=0.0,
        le=LARGEST_WEIGHT,
    )
    undesirable_weight: float = setting(1.0, "kto: weight of the replies labeled bad.", gt=0.0, le=LARGEST_WEIGHT)

    @property
    def is_active(self) -> bool:
        """Whether preferences are learned, rather than replies as they stand."""
        return self.objective != "sft"

    @property
    def learns_pairs(self) -> bool:
        """Whether both replies of a pair are learned from."""
        return self.objective in ("dpo", "orpo", "simpo")

    @property
    def sequences(self) -> int:
        """Sequences of up to `data.max_length` tokens that a row has and one pass holds: two of a pair, else one."""
        return 2 if self.learns_pairs else 1

    @property
    def learns_labels(self) -> bool:
        """Whether replies labeled good or bad are learned from."""
        return self.objective == "kto"

    @property
    def needs_reference(self) -> bool:
        """Whether the loss compares with the log-probabilities of a reference: the model as training begins."""
        return self.objective in ("dpo", "kto")

    @property
    def estimates_kl(self) -> bool:
        """Whether the loss compares rewards with an estimate of the divergence from the reference."""
        return self.objective == "kto" and self.loss_type != "apo_zero_unpaired"

    @property
    def sft_weight(self) -> float:
        """Weight of the chosen reply's mean cross entropy in the loss."""
        return 1.0 if self.objective == "orpo" else self.rpo_alpha if self.objective in ("dpo", "simpo") else 0.0

    @model_validator(mode="after")
    def _loss_is_of_the_objective(self) -> PreferenceSection:
        known = LOSS_TYPES.get(self.objective)
        if known and self.loss_type not in known:
            raise ValueError(
                f'loss_type = "{self.loss_type}" is not one of objective = "{self.objective}": set it to one of '
                f"{', '.join(known)}"
            )
        return self

    @model_validator(mode="after")
    def _smooths_what_can_be(self) -> PreferenceSection:
        if self.objective == "dpo" and self.label_smoothing and self.loss_type in ("hinge", "ipo"):
            raise ValueError(
                f'label_smoothing ({self.label_smoothing:g}) does not apply to loss_type = "{self.loss_type}": set it '
                'to 0, or loss_type to "sigmoid" or "robust"'
            )
        return self


def usual_preference(objective: Objective) -> PreferenceSection:
    """Return the usual settings of an objective."""
    return PreferenceSection.model_validate({"objective": objective, **_USUAL_SETTINGS.get(objective, {})})


def shape_to_read(objective: Objective, shape: str) -> str:
    """Return the recipe's `data.shape` for an objective.

    Preferences that are learned as they stand are named, so that nobody is asked again what to learn from them; all
    else is recognized.

    Args:
        objective: what is learned.
        shape: shape of the dataset.
    """
    return shape if objective == "sft" and shape in OBJECTIVES_OF else "auto"


def preference_notes(section: PreferenceSection) -> list[str]:
    """List the changed settings that the objective ignores, and a beta that is another objective's, as sentences."""
    usual = PreferenceSection()
    idle = [
        f"preference.{name}"
        for name in PreferenceSection.model_fields
        if name not in ("objective", *PREFERENCE_USES[section.objective])
        and getattr(section, name) != getattr(usual, name)
    ]
    notes = []
    if idle:
        named = f"{', '.join(idle[:-1])} and {idle[-1]} do" if len(idle) > 1 else f"{idle[0]} does"
        notes.append(f'With preference.objective = "{section.objective}" {named} not apply.')
    if section.objective == "simpo" and section.beta < _LEAST_SIMPO_BETA:
        notes.append(
            f"preference.beta = {section.beta:g} is small for simpo, which hardly tells the replies apart with it: "
            "usual are 2 to 10."
        )
    return notes
