"""The schemas of the recipe's sections `evaluation` and `guard`."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from burnish_engine.contract.recipe.recipe_section import Section, Step, setting, unless


class EvaluationSection(Section):
    """Evaluation of the run on held-out rows."""

    every: int = setting(
        0, "Evaluate after this many steps. 0: before the first step and after the last.", label="Evaluate every",
        unit="steps", zero="start and end", step=Step(10), ge=0, le=10**9,
    )  # fmt: skip
    max_rows: int = setting(
        200, "Most held-out rows to use. 0: all.", label="Held-out rows used", unit="rows", zero="all", step=Step(50),
        ge=0, le=10**9,
    )  # fmt: skip
    prompts: list[str] = setting(
        list, "Fixed prompts answered at each evaluation, to read how the model changes.",
        label="Sample prompts (asked as it learns)", long=True,
    )  # fmt: skip
    general_text: bool = setting(
        True,
        "Measure what the model forgets: its loss on a general text of about 2,000 tokens that comes with Burnish, "
        "before the first step and at the end (with `patience`, at each evaluation).",
        label="Measure forgetting",
    )
    sample_tokens: int = setting(
        120, "Longest reply to a fixed prompt.", label="Longest reply", unit="tokens", ge=1, le=8192
    )
    sample_share: float = setting(
        0.05,
        "Most of the run's time that replies to the fixed prompts may take, as predicted before it. Where all would "
        "take more, they are made at fewer evaluations, then shorter, then to fewer prompts. 0: no limit.",
        label="Time for sample prompts", unit="share", zero="no limit", used_if=unless("prompts", []), ge=0.0, le=0.9,
    )  # fmt: skip
    patience: int = setting(
        0,
        "Early stopping: end after this many evaluations in a row without a better held-out loss. The adapter of the "
        "best evaluation is kept. 0: train all steps and keep the last one. Needs `every`.",
        label="Patience (stop early after)", unit="evaluations", zero="off",
        note={0: "off: train all steps, keep the last."},
        ge=0, le=10_000,
    )  # fmt: skip
    min_improvement: float = setting(
        0.0, "Early stopping: a loss is better only if it is lower by more than this.", label="Minimum improvement",
        unit="nats", used_if=unless("patience", 0), ge=0.0, le=100.0,
    )  # fmt: skip

    @model_validator(mode="after")
    def _patience_has_evaluations(self) -> EvaluationSection:
        if self.patience and not self.every:
            raise ValueError(
                f"patience ({self.patience}) counts evaluations, and every = 0 makes none on the way: set every, "
                "such as every = 50"
            )
        return self


_IS_GUARDED = unless("action", "off")


class GuardSection(Section):
    """The guard against runs that do not really train, and what it does about them."""

    action: Literal["stop", "warn", "off"] = setting(
        "stop",
        "At a sign that the run does not train what it should (no gradient, labels shifted, an adapter without effect "
        "and the like). stop: end with exit code 13. warn: say so and continue. off: do not look.",
        label="If it is not",
        choices={"stop": "end the run", "warn": "say so and continue", "off": "do not check"},
        note={
            "warn": "A run that does not train will use the machine to its end.",
            "off": "Nothing will tell a run that trains from one that does not.",
        },
    )
    probes: bool = setting(
        True,
        "Also measure on a few rows: before training, after warmup and at the end. Together about as long as three "
        "steps of some hundred tokens, and reading all weights three times.",
        label="Probes (measure on a few rows)", used_if=_IS_GUARDED,
    )  # fmt: skip
    troubles: int = setting(
        3,
        "This many skipped or spiking steps within `window` steps are trouble: the run goes back to its last good "
        "checkpoint and on at half the learning rate, once; the next time it ends with exit code 13.",
        label="Bad steps that are trouble", unit="steps", used_if=_IS_GUARDED, ge=1, le=1000,
    )  # fmt: skip
    window: int = setting(
        20, "Steps in which `troubles` are counted.", label="Counted within", unit="steps", used_if=_IS_GUARDED, ge=1,
        le=10_000,
    )  # fmt: skip
    rollback: bool = setting(True, "false: trouble ends the run at once.", label="Roll back once", used_if=_IS_GUARDED)
