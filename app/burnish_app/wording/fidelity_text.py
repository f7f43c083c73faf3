"""Text about GGUF file types and the figures of a fidelity report. Pure functions, no Qt."""

from __future__ import annotations

from burnish_app.wording.numbers import percent, plural, sentence_list
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.recipe.recipe_export import GgufType, TargetSection
from burnish_engine.contract.units import file_size

_CLOSENESS = (
    (0.002, "practically identical to the trained model"),
    (0.02, "very close to the trained model"),
    (0.1, "close to the trained model"),
    (0.3, "noticeably different from the trained model"),
)
"""Pairs of (mean KL divergence in nats, text that holds below it).

Measured on SmolLM2: Q8_0 0.001, Q6_K 0.01, Q4_K_M 0.06, Q4_0 0.3."""
_FAR = "far from the trained model"

TYPE_TEXT: dict[GgufType, str] = {
    "F16": "Full precision, largest; to convert further",
    "BF16": "Full precision, largest; range of the training format",
    "Q8_0": "Practically as good as the trained model",
    "Q6_K": "Very good, often a quarter smaller than Q8_0",
    "Q5_K_M": "Good, for when Q4_K_M loses too much",
    "Q5_K_S": "Like Q5_K_M, slightly smaller",
    "Q5_0": "Older 5-bit type, runs everywhere",
    "Q4_K_M": "The usual choice for larger models",
    "Q4_K_S": "Like Q4_K_M, slightly smaller",
    "Q4_0": "Small, fast on phones",
    "Q4_1": "Like Q4_0, a little better and larger",
    "IQ4_NL": "Small, fast on phones, better than Q4_0",
    "IQ4_XS": "Smallest that keeps most",
    "Q3_K_M": "Loses much; for large models in little memory",
    "Q3_K_S": "Loses more than Q3_K_M",
    "IQ3_M": "Loses much; better than Q3_K_M at its size",
    "IQ3_XXS": "Loses very much",
    "Q2_K": "Loses very much; try a smaller model first",
    "IQ2_M": "Loses very much; smallest",
}
"""A plain description of each type."""

_SMALL_MODEL = 400_000_000
"""Number of parameters below which 4 bits cost too much quality."""
_PHONE_TYPES: tuple[GgufType, ...] = ("IQ4_NL", "Q4_0")


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
        return _PHONE_TYPES[0]
    return "Q8_0" if target.kind in ("desktop", "server") else "Q4_K_M"


def closeness(mean_kl: float) -> str:
    """Return how close a file is to the trained model.

    Args:
        mean_kl: mean KL divergence (trained model || file), nats.
    """
    return next((text for limit, text in _CLOSENESS if mean_kl < limit), _FAR)


def gain_text(file: QuantFidelity) -> str:
    """Return how much of the training gain a file keeps; empty if that is unknown or the file was refused."""
    if not file.passed or file.gain_kept is None:
        return ""
    size = file_size(file.bytes)
    if file.gain_kept >= 1.0:
        return f"{file.quant} keeps all of the gain at {size}."
    if file.gain_kept <= 0.0:
        return f"{file.quant} keeps nothing of the gain at {size}: it is no better than the base model."
    return f"{file.quant} keeps {percent(file.gain_kept)} of the gain at {size}."


def suggestion_text(suggested: str, why: str) -> str:
    """Return which file to take, without the figures, which the card shows separately.

    Args:
        suggested: name of the file; empty: none.
        why: reason as the engine gives it.
    """
    first, name, _ = why.partition(f"{suggested}. ") if suggested else (why, "", "")
    return f"{first}{name}".strip()


def training_text(report: FidelityReport) -> str:
    """Return the gain on held-out rows and the importance matrix's size; empty if neither is known."""
    text = []
    if report.base_loss is not None and report.tuned_loss is not None:
        if report.tuned_loss < report.base_loss:
            text.append(
                f"The gain: training lowered the held-out loss from {report.base_loss:.3f} to {report.tuned_loss:.3f}."
            )
        else:
            text.append("Training gained nothing on held-out rows, so there is no gain to keep.")
    if report.importance_tokens:
        text.append(f"Rounded with an importance matrix of {report.importance_tokens:,} tokens of your rows.")
    return " ".join(text)


def file_text(file: QuantFidelity) -> str:
    """Return the outcome of one file as a sentence."""
    if not file.passed:
        return f"{file.quant} was refused. {' '.join(file.problems) or 'It does not do what the trained model does.'}"
    agreement = percent(file.top1_agreement, 1)
    where = f"{agreement} of {file.positions:,} positions"
    return f"{file.quant} is {closeness(file.mean_kl)}: same most likely token in {where}."


def report_text(report: FidelityReport) -> str:
    """Return the outcome of the whole report as one sentence."""
    good = [file for file in report.files if file.passed]
    refused = [file.quant for file in report.files if not file.passed]
    if report.token_mismatches:
        return (
            f"The tokenizer in the file reads {plural(report.token_mismatches, 'string')} of {report.token_strings} "
            "differently from the trained model. Do not ship these files."
        )
    if not good:
        return "No file passed. Nothing here should be shipped."
    text = f"{sentence_list([file.quant for file in good])} {'is' if len(good) == 1 else 'are'} proven: "
    text += f"{report.token_strings} test strings give the same tokens, and the predictions match."
    return text + (f" {sentence_list(refused)} was refused." if refused else "")
