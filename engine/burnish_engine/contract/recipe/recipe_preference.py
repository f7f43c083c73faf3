"""The schema of the recipe's section `preference`."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from burnish_engine.contract.recipe.recipe_section import Section, setting, unless, when

Objective = Literal["sft", "dpo", "orpo", "simpo", "kto", "grpo"]
LossType = Literal["sigmoid", "hinge", "ipo", "robust", "kto", "apo_zero_unpaired"]
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

LARGEST_WEIGHT = 1000.0
"""Largest weight of good or bad replies."""


class PreferenceSection(Section):
    """Learning from pairs of a chosen and a rejected reply, or from replies labeled good or bad. Names are TRL's."""

    objective: Objective = setting(
        "sft",
        "sft: learn replies as they stand; of a pair, the chosen one. dpo: prefer the chosen reply more than the base "
        "model. orpo: learn it, raise its odds. simpo: prefer it by mean log-probability. kto: replies labeled good "
        "or bad. dpo and kto need an adapter. grpo: rewards for own replies ([reinforce]).",
        label="Objective (what is learned)",
        choices={
            "sft": "learn replies (SFT)",
            "dpo": "prefer replies (DPO)",
            "orpo": "learn and prefer (ORPO)",
            "simpo": "prefer per token (SimPO)",
            "kto": "good and bad (KTO)",
            "grpo": "try and be rewarded (GRPO)",
        },
    )
    beta: float = setting(
        0.1,
        "dpo and kto: how closely the model stays to the reference; smaller strays farther. orpo: weight of the odds "
        "ratio. simpo: scale of the reward, usually 2.0 to 10.",
        label="Beta (of the objective)", used_if=unless("objective", "sft", "grpo"), gt=0.0, le=1000.0,
    )  # fmt: skip
    loss_type: LossType = setting(
        "sigmoid",
        "Loss of a pair (dpo: sigmoid, hinge, ipo or robust) or of a reply (kto: sigmoid or kto, which are the "
        "original, or apo_zero_unpaired). robust is unbiased where the share `label_smoothing` of the labels is wrong.",
        label="Loss function",
        choices={"ipo": "IPO", "kto": "KTO", "apo_zero_unpaired": "APO-zero"},
        note={
            "sigmoid": "The usual one.",
            "hinge": "Learns nothing more from a pair that differs by a margin.",
            "ipo": "Aims at a fixed difference between the two replies of a pair.",
            "robust": "For pairs of which a known share is labeled the wrong way around.",
            "apo_zero_unpaired": "Faster: does not estimate how far the model has gone from what it was.",
        },
        used_if=when("objective", "dpo", "kto"),
    )
    label_smoothing: float = setting(
        0.0, "dpo with sigmoid or robust, and simpo: expected share of pairs whose labels are swapped.",
        label="Label smoothing (swapped labels)", unit="share", used_if=when("objective", "dpo", "simpo"), ge=0.0,
        lt=0.5,
    )  # fmt: skip
    rpo_alpha: float = setting(
        0.0,
        "Weight of the usual loss of the chosen reply, added to that of the pairs; it keeps the chosen reply likely. "
        "0: none.",
        label="SFT weight (learns the chosen reply)", zero="off", used_if=when("objective", "dpo", "simpo"), ge=0.0,
        le=100.0,
    )  # fmt: skip
    simpo_gamma: float = setting(
        0.5, "Margin that the rewards should differ by.", label="SimPO's margin", used_if=when("objective", "simpo"),
        ge=0.0, le=100.0,
    )  # fmt: skip
    desirable_weight: float = setting(
        1.0,
        "Weight of the replies labeled good. With n good and m bad ones, desirable_weight n / (undesirable_weight m) "
        "should lie between 1 and 4/3.",
        label="Weight of good replies", used_if=when("objective", "kto"), gt=0.0, le=LARGEST_WEIGHT,
    )  # fmt: skip
    undesirable_weight: float = setting(
        1.0, "Weight of the replies labeled bad.", label="Weight of bad replies", used_if=when("objective", "kto"),
        gt=0.0, le=LARGEST_WEIGHT,
    )  # fmt: skip

    @property
    def is_active(self) -> bool:
        """Whether preferences are learned, rather than replies as they stand or from rewards."""
        return self.objective not in ("sft", "grpo")

    @property
    def learns_rewards(self) -> bool:
        """Whether the model learns from rewards for replies of its own (reinforcement)."""
        return self.objective == "grpo"

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

    @property
    def notes(self) -> list[str]:
        """The sentence on a beta that is another objective's; Meng et al. 2024 search from 2.0 up."""
        if self.objective != "simpo" or self.beta >= 1.0:
            return []
        return [
            f"preference.beta = {self.beta:g} is small for simpo, which hardly tells the replies apart with it: "
            "usual are 2 to 10."
        ]

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
