"""Text about GGUF file types and the figures of a fidelity report. Pure functions, no Qt."""

from __future__ import annotations

from burnish_app.look.language import say, tr
from burnish_app.wording.numbers import percent, plural, sentence_list
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.facts.task_score import TaskScore
from burnish_engine.contract.recipe.recipe_export import GgufType, TargetSection
from burnish_engine.contract.wording.sentences import gain_sentence

_CLOSENESS = (
    (0.002, tr("practically identical to the trained model")),
    (0.02, tr("very close to the trained model")),
    (0.1, tr("close to the trained model")),
    (0.3, tr("noticeably different from the trained model")),
)
"""Pairs of (mean KL divergence in nats, text that holds below it).

Measured on SmolLM2: Q8_0 0.001, Q6_K 0.01, Q4_K_M 0.06, Q4_0 0.3."""
_FAR = tr("far from the trained model")

_SMALL_MODEL = 400_000_000
"""Number of parameters below which 4 bits cost too much quality."""


def recommended_type(target: TargetSection, parameters: int | None, widths_fill_blocks: bool) -> GgufType:
    """Return the file type to recommend for a target.

    Args:
        target: device that the file shall run on.
        parameters: number of the model's weights; None if unknown.
        widths_fill_blocks: whether the model's row widths divide by 256, which the K types need.
    """
    if parameters is not None and parameters < _SMALL_MODEL:
        return "Q8_0"
    if target.kind == "phone" or not widths_fill_blocks:
        return "IQ4_NL"
    return "Q8_0" if target.kind in ("desktop", "server") else "Q4_K_M"


def closeness(mean_kl: float) -> str:
    """Return how close a file is to the trained model.

    Args:
        mean_kl: mean KL divergence (trained model || file), nats.
    """
    return next((text for limit, text in _CLOSENESS if mean_kl < limit), _FAR)


def gain_text(file: QuantFidelity) -> str:
    """Return how much of the training gain a file keeps; empty if that is unknown or the file was refused."""
    gain = gain_sentence(file, percent)
    return say(gain) if gain is not None else ""


def suggestion_text(suggested: str, why: str) -> str:
    """Return which file to take, without the figures, which the card shows separately.

    Args:
        suggested: name of the file; empty: none.
        why: reason as the engine gives it.
    """
    first, name, _ = why.partition(f"{suggested}. ") if suggested else (why, "", "")
    return f"{first}{name}".strip()


def score_text(score: TaskScore) -> str:
    """Return a score as "47 of 50, 94 %"."""
    return tr("{right:,} of {rows:,}, {share}").format(right=score.right, rows=score.rows, share=percent(score.share))


def training_text(report: FidelityReport) -> str:
    """Return the gain on held-out rows and the importance matrix's size; empty if neither is known."""
    text = []
    if report.base_loss is not None and report.tuned_loss is not None:
        if report.tuned_loss < report.base_loss:
            text.append(
                tr("The gain: training lowered the held-out loss from {base_loss:.3f} to {tuned_loss:.3f}.").format(
                    base_loss=report.base_loss, tuned_loss=report.tuned_loss
                )
            )
        else:
            text.append(tr("Training gained nothing on held-out rows, so there is no gain to keep."))
    if report.task is not None:
        text.append(
            tr("Score of the task in training: {before}, then {after}.").format(
                before=score_text(report.task.before), after=score_text(report.task.after)
            )
        )
    if report.importance_tokens:
        text.append(
            tr("Rounded with an importance matrix of {importance_tokens:,} tokens of your rows.").format(
                importance_tokens=report.importance_tokens
            )
        )
    return " ".join(text)


def file_text(file: QuantFidelity) -> str:
    """Return the outcome of one file as a sentence."""
    if not file.passed:
        return tr("{quant} was refused. {value}").format(
            quant=file.quant, value=" ".join(file.problems) or tr("It does not do what the trained model does.")
        )
    agreement = percent(file.top1_agreement, 1)
    where = tr("{agreement} of {positions:,} positions").format(agreement=agreement, positions=file.positions)
    text = tr("{quant} is {mean_kl}: same most likely token in {where}.").format(
        quant=file.quant, mean_kl=closeness(file.mean_kl), where=where
    )
    return (
        text
        if file.task is None
        else tr("{text} Score of the task: {score}.").format(text=text, score=score_text(file.task))
    )


def report_text(report: FidelityReport) -> str:
    """Return the outcome of the whole report as one sentence."""
    good = [file for file in report.files if file.passed]
    refused = [file.quant for file in report.files if not file.passed]
    if report.token_mismatches:
        return tr(
            "The tokenizer in the file reads {token_mismatches} of {token_strings} differently from the "
            "trained model. Do not ship these files."
        ).format(token_mismatches=plural(report.token_mismatches, "string"), token_strings=report.token_strings)
    if not good:
        return tr("No file passed. Nothing here should be shipped.")
    text = tr("{sentence_list} {value} proven: ").format(
        sentence_list=sentence_list([file.quant for file in good]), value="is" if len(good) == 1 else "are"
    )
    text += tr("{token_strings} test strings give the same tokens, and the predictions match.").format(
        token_strings=report.token_strings
    )
    if refused:
        form = tr(" {refused} was refused.") if len(refused) == 1 else tr(" {refused} were refused.")
        text += form.format(refused=sentence_list(refused))
    return text
