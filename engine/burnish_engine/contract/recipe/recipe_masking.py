"""The schema of the recipe's section `masking`."""

from __future__ import annotations

from typing import Literal

from burnish_engine.contract.recipe.recipe_section import Section, setting, unless, when

Masking = Literal["off", "magma", "skip_update"]
_IS_MAGMA, _IS_MASKED = when("kind", "magma"), unless("kind", "off")


class MaskingSection(Section):
    """Experimental: matrices sit out steps by chance (Joo et al. 2026, arXiv 2602.15322)."""

    kind: Masking = setting(
        "off",
        "magma: a matrix's step is scaled by how its momentum and gradient have agreed, and half of the matrices, "
        "drawn anew for each step, do not move. skip_update: those that move go the further for it. Published for "
        "pretraining; a duel shows whether it helps here.",
        label="Masking method",
        choices={"off": "off", "magma": "Magma", "skip_update": "SkipUpdate"},
        note={
            "magma": "Experimental. It helped in our two small duels; only one of your own shows it here.",
            "skip_update": "Experimental: published for pretraining. A duel shows whether it helps here.",
        },
    )
    probability: float = setting(
        0.5, "Chance of a matrix to move in a step.", label="Update probability", used_if=_IS_MASKED, ge=1e-3, le=1.0
    )
    temperature: float = setting(
        2.0,
        "Magma: the cosine of momentum and gradient is divided by it.",
        label="Temperature",
        used_if=_IS_MAGMA,
        ge=1e-3,
        le=1e3,
    )
    decay: float = setting(
        0.9, "Magma: of the running mean of the scale.", label="Decay of the scale", used_if=_IS_MAGMA, ge=0.0, le=1.0
    )
    start: float = setting(
        0.5,
        "Magma: the scale to begin with, which the paper does not say.",
        label="Scale at the start",
        used_if=_IS_MAGMA,
        gt=0.0,
        le=1.0,
    )
    momentum: Literal["before", "after"] = setting(
        "before",
        "Magma: the momentum before the step or after it; the paper does not say.",
        label="Momentum of the step",
        used_if=_IS_MAGMA,
    )
    share: Literal["matrix", "pair"] = setting(
        "matrix",
        "What sits out together: every matrix for itself, or the two of a module's adapter.",
        label="Masked together",
        used_if=_IS_MASKED,
    )
    blocks: Literal["layers", "all"] = setting(
        "layers",
        "What may sit out. layers: matrices of attention and feed-forward, as in the paper, and their adapters; "
        "routers, convolutions, embeddings, head and vectors always move. all: every tensor.",
        label="Matrices that may be masked",
        choices={"layers": "attention and feed-forward", "all": "everything"},
        used_if=_IS_MASKED,
    )
    rate: float = setting(
        1.0,
        "Times the learning rate: in the mean, matrices move 0.25 to 0.31 of the way with magma.",
        label="Learning rate factor",
        used_if=_IS_MASKED,
        gt=0.0,
        le=100.0,
    )

    @property
    def is_active(self) -> bool:
        """Whether masking changes any step; otherwise the optimizer alone takes the steps."""
        always = self.probability == self.rate == 1.0
        wholly = self.kind == "skip_update" or self.start == self.decay == 1.0
        return self.kind != "off" and not (always and wholly)
