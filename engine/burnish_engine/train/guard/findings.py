"""The guard's findings: its checks, ordered so that a cause precedes its effects, and a text for each finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from burnish_engine.contract.wording.tables import CHECKS, Check

_ORDER = {check: place for place, check in enumerate(CHECKS)}


@dataclass(frozen=True)
class GuardFinding:
    """A sign that something is wrong.

    Attributes:
        check: check that found it.
        sentence: observation, with the measured value.
        cause: likely cause.
        remedy: advice to the user.
        stops: whether such a run is useless; otherwise the finding is a warning.
    """

    check: Check
    sentence: str
    cause: str
    remedy: str
    stops: bool = True


def foremost(findings: Iterable[GuardFinding]) -> GuardFinding | None:
    """Return the finding that explains the others: one that stops a run first, then by the order of `CHECKS`."""
    return min(findings, key=lambda finding: (not finding.stops, _ORDER[finding.check]), default=None)


_REPORT = "Nothing in a recipe does this: please report it with the run's folder."
_SETUP = "Set Burnish up again; if it stays, report it with the run's folder, or set train.engine to the other engine."


def no_targets(where: str) -> GuardFinding:
    """Report that micro-batches have no supervised token."""
    return GuardFinding(
        "no_targets",
        f"Nothing is learned: {where} no token that the loss counts.",
        "All labels are masked: the replies were not found in the rendered rows, or were cut off.",
        'Look at `burnish inspect` (the learned part is marked); set data.learn = "everything", or raise '
        "data.max_length.",
    )


def unwritten(says: str, remedy: str) -> GuardFinding:
    """Report that the chat template leaves out something that rows say."""
    return GuardFinding(
        "unwritten", says, "The chat template takes rows of another form than these.", remedy, stops=False
    )


def coverage(reached: str, planned: str) -> GuardFinding:
    """Report that the adapter covers other layers than the plan announced."""
    return GuardFinding(
        "coverage",
        f"The adapter reaches {reached}; planned were {planned}.",
        "The model that was loaded has other layers than its config.json says, or names them otherwise.",
        "Name the layers to train in adapter.targets; please report it with the model's name.",
        stops=False,
    )


def padding(counted: int, real: int, what: str) -> GuardFinding:
    """Report that more tokens are counted than the rows have."""
    return GuardFinding(
        "padding",
        f"Padding is counted as tokens: {what} {counted:,} where the rows have {real:,}.",
        "Fill tokens behind the rows have labels, so that the model learns to write them and the loss looks low.",
        _REPORT,
    )


def padded_rows(rows: int, token: int, run: int) -> GuardFinding:
    """Report that rows end in many supervised copies of one token."""
    return GuardFinding(
        "padding",
        f"Padding is counted as tokens: {rows} of the first rows end in up to {run} learned copies of token {token}.",
        "The rows were padded before they were given to Burnish, or the template repeats its end token.",
        "Take the fill tokens out of the rows, or choose another data.template.",
    )


def fewer_tokens(counted: int, real: int, step: int) -> GuardFinding:
    """Report that a step learned from fewer tokens than its rows have."""
    return GuardFinding(
        "labels",
        f"Step {step} learned from {counted:,} tokens where its rows have {real:,}.",
        "Labels were lost between the rows and the step.",
        _REPORT,
    )


def shifted(how: str, evidence: str) -> GuardFinding:
    """Report that labels are shifted against the next token."""
    return GuardFinding(
        "labels",
        f"The labels are shifted by one: {evidence}.",
        f"Each position is taught {how} instead of the next token: the labels were shifted twice or not at all.",
        _REPORT,
    )


def other_labels(evidence: str) -> GuardFinding:
    """Report that the loss or the labels do not belong to the rows' next tokens."""
    return GuardFinding(
        "labels",
        f"The loss is not that of the rows' next tokens: {evidence}.",
        "Labels or logits are taken from other positions than the rows say.",
        _SETUP,
    )


def leak(evidence: str) -> GuardFinding:
    """Report that documents of one pass see each other."""
    return GuardFinding(
        "leak",
        f"Documents of one pass see each other: {evidence}.",
        "The boundaries between packed rows are lost on their way into attention.",
        "Set train.pack = false, and report it with the run's folder.",
    )


def end_token(rows: int) -> GuardFinding:
    """Report that no row teaches the token that ends a reply."""
    return GuardFinding(
        "end_token",
        f"The token that ends a reply is never a target: none of the first {rows} whole rows teaches it.",
        "The template does not write it, or its label is masked; a model trained so does not stop by itself.",
        "Choose a data.template that ends replies, or correct the tokenizer's end-of-sequence token.",
        stops=False,
    )


def end_token_lost(count: int) -> GuardFinding:
    """Report that the rows teach the end of a reply but the micro-batches do not."""
    return GuardFinding(
        "end_token",
        f"The token that ends a reply is never a target: the first passes hold it {count} times, always without a "
        "label.",
        "Its labels are taken away between the rows and the passes; a model trained so does not stop by itself.",
        _REPORT,
    )


def not_finite(loss: float, precision: str, *, fresh: bool) -> GuardFinding:
    """Report that the loss before any training is not finite.

    Args:
        loss: the loss.
        precision: compute precision.
        fresh: whether the base model alone gives this loss, without anything that was trained before.
    """
    what = "base model overflows" if fresh else "base model, or what was trained of it before, overflows"
    return GuardFinding(
        "not_finite",
        f"Before any training the loss of a few rows is {loss}.",
        f"The {what} in {precision}, or its weights are damaged.",
        'Set train.precision = "bf16" or "fp32", or download the model again.',
    )


def zero_gradient(where: str) -> GuardFinding:
    """Report that the gradient is exactly 0."""
    return GuardFinding(
        "zero_gradient",
        f"There is no gradient: its norm is exactly 0 {where}.",
        "What is trained has no part in the loss, or the gradient is thrown away before the step.",
        _SETUP,
    )


def detached(names: list[str], of: int) -> GuardFinding:
    """Report that some trained layers get no gradient."""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return GuardFinding(
        "detached",
        f"{len(names)} of {of} trained parts get no gradient at all, first {shown}; the others do.",
        "These layers are cut off from the loss: they will not learn.",
        "Leave them out of adapter.targets, or set train.engine to the other engine; please report it.",
    )


def learning_rate(steps: int) -> GuardFinding:
    """Report that the learning rate was 0 in all steps."""
    return GuardFinding(
        "learning_rate",
        f"The learning rate was 0 in all of the {steps} steps so far.",
        "The schedule gives no step a learning rate, so nothing can change.",
        "Set train.learning_rate, train.warmup_share and train.final_share anew (`burnish recipe check`).",
    )


def unchanged(steps: int, names: list[str], of: int) -> GuardFinding:
    """Report that steps did not change the trained weights."""
    which = "What is trained" if len(names) == of else f"{len(names)} of {of} trained parts (first {names[0]})"
    return GuardFinding(
        "unchanged",
        f"{which} did not change in {steps} steps, although there is a gradient.",
        "The optimizer does not reach these weights, or its steps are too small for their numbers to change.",
        "Raise train.learning_rate; if it is no smaller than usual, report it with the run's folder.",
    )


def base_changed(names: list[str]) -> GuardFinding:
    """Report that frozen weights of the base model changed."""
    return GuardFinding(
        "base_changed",
        f"Frozen weights of the base model changed while training: {', '.join(names[:3])}"
        f"{f' and {len(names) - 3} more' if len(names) > 3 else ''}.",
        "Something wrote into memory that is not its own, or the memory is faulty. The adapter belongs to a base that "
        "nobody has.",
        "Resume from a checkpoint and see whether it happens again; if so, report it, or test the memory.",
    )


def zero_loss(where: str) -> GuardFinding:
    """Report that the loss is exactly 0."""
    return GuardFinding(
        "zero_loss",
        f"The loss is exactly 0 {where}.",
        "The loss counts nothing, or the rows are known by heart to the last digit.",
        "Look at `burnish inspect`; with very few rows, lower train.epochs.",
    )


def constant_loss(loss: float, steps: int) -> GuardFinding:
    """Report that the loss did not change over several steps."""
    return GuardFinding(
        "constant_loss",
        f"The loss was {loss:.6g}, to six digits, in {steps} steps in a row.",
        "The steps do not see the rows, or change nothing.",
        "Raise train.learning_rate; if it is no smaller than usual, report it with the run's folder.",
    )


def same_output(rows: int, steps: int, *, stops: bool) -> GuardFinding:
    """Report that the trained model gives the same logits as its base."""
    return GuardFinding(
        "same_output",
        f"After {steps} steps the trained model gives the same logits as its base, to the last digit, on {rows} rows.",
        "The adapter is not used when the model computes, or it changed by less than the precision shows.",
        "Raise train.learning_rate or train more steps; if both are as usual, report it with the run's folder.",
        stops=stops,
    )


def overfitting(before: float, now: float, training: tuple[float, float]) -> GuardFinding:
    """Report that the held-out loss rises while the training loss falls."""
    return GuardFinding(
        "overfitting",
        f"The held-out loss rises ({before:.3f} to {now:.3f}) while the training loss falls ({training[0]:.3f} to "
        f"{training[1]:.3f}).",
        "The model learns the training rows by heart.",
        "Train fewer epochs, or set evaluation.patience to keep the best adapter.",
        stops=False,
    )


def swapped_labels(accuracy: float, steps: int) -> GuardFinding:
    """Report that rewards disagree with the labels more often than not."""
    return GuardFinding(
        "swapped_labels",
        f"The chosen reply has the higher reward in {accuracy:.0%} of the pairs of the last {steps} steps, fewer than "
        "half.",
        "What is learned from some pairs is wrong for others: chosen and rejected may be swapped in a part of them.",
        "Look at the rows (`burnish inspect`) and at data.columns: which column holds the chosen reply? Where some "
        'labels are known to be wrong, preference.loss_type = "robust" with label_smoothing expects it.',
        stops=False,
    )


def flat_margin(before: float, now: float) -> GuardFinding:
    """Report that the margin between chosen and rejected replies does not grow."""
    return GuardFinding(
        "flat_margin",
        f"The margin does not grow: {before:.4g} in the first steps after the warm-up, {now:.4g} in the last ones.",
        "The steps are too small for the preference to be learned, or chosen and rejected replies differ in nothing "
        "that can be learned.",
        "Raise train.learning_rate (for adapters 5e-6 to 5e-5 is usual), or train more steps; then look at the rows.",
        stops=False,
    )


def chosen_falls(before: float, now: float, *, good: bool) -> GuardFinding:
    """Report that chosen replies become less likely on held-out rows."""
    return GuardFinding(
        "chosen_falls",
        f"{'Good' if good else 'Chosen'} replies become less likely on held-out rows: {before:.4g} to {now:.4g} nats.",
        "A preference can be learned by making both replies unlikely, the rejected one more; what the model says "
        "instead is in neither (likelihood displacement).",
        "Raise preference.desirable_weight or preference.beta, or lower train.learning_rate."
        if good
        else "Set preference.rpo_alpha (0.1 to 1 is usual), raise preference.beta, or lower train.learning_rate.",
        stops=False,
    )


def kl_explodes(evidence: str) -> GuardFinding:
    """Report that the model is far from what it began with."""
    return GuardFinding(
        "kl_explodes",
        f"The model has gone far from where it began: {evidence}.",
        "Steps this far unlearn more than they teach, and losses that compare with a reference are flat there.",
        "Raise preference.beta, or lower train.learning_rate and train.epochs; look at the replies to fixed prompts "
        "(evaluation.prompts).",
        stops=False,
    )
