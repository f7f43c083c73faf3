"""Summarize a report: each file in plain words, and the best file for a size or a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from burnish_engine.advise.predict.on_target import judge
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DecoderSpec, FidelityReport, QuantFidelity
from burnish_engine.contract.recipe.recipe_export import GgufType, TargetSection
from burnish_engine.contract.units import file_size
from burnish_engine.contract.wording.sentences import gain_sentence

_LITTLE_KL = 0.002
"""KL, nats, of a difference that nobody notices; of two such files the smaller one is better."""


@dataclass(frozen=True)
class FileSuggestion:
    """Best file of an export, and the reason."""

    file: QuantFidelity  # name of the file
    why: str  # reason in a sentence


def verdict_text(file: QuantFidelity) -> str:
    """Describe a file's quality and size; KL and agreement stand in for the gain where training gained nothing."""
    if file.unproven:
        return f"{file.quant} was not proven. {file.unproven}"
    if not file.passed:
        return f"{file.quant} was refused."
    gain = gain_sentence(file, "{:.1%}".format)
    if gain is None:
        size = file_size(file.bytes)
        return f"{file.quant} agrees with the trained model on {file.top1_agreement:.1%} of the tokens at {size}."
    return str(gain)


def suggest(
    report: FidelityReport, *, size_limit_bytes: int = 0, spec: DecoderSpec | None = None, target: TargetSection | None
) -> FileSuggestion | None:
    """Choose the best file that passed: the nearest to the trained model among those that fit.

    Args:
        report: fidelity report.
        size_limit_bytes: size of the largest acceptable file; 0: what the target's memory and speed allow.
        spec: shape of the model; None where not known in detail.
        target: device that shall run the file; None: any.

    Returns:
        Suggestion; None where no file passed or none fits.
    """
    passed = [file for file in report.files if file.passed]
    if size_limit_bytes:
        fitting, where = [file for file in passed if file.bytes <= size_limit_bytes], file_size(size_limit_bytes)
    elif spec is not None and target is not None:
        fitting = [file for file in passed if _runs(file, spec, target)]
        where = f"a {target.kind} with {target.ram_gib:g} GiB"
    else:
        fitting, where = passed, "any device"
    if not fitting:
        return None
    best = _nearest(fitting)
    return FileSuggestion(best, f"Best for {where}: {best.file}. {verdict_text(best)}")


def _nearest(files: Sequence[QuantFidelity]) -> QuantFidelity:
    least = min(file.mean_kl for file in files)
    return min((file for file in files if file.mean_kl <= least + _LITTLE_KL), key=lambda file: file.bytes)


def _runs(file: QuantFidelity, spec: DecoderSpec, target: TargetSection) -> bool:

    try:
        return judge(spec, cast(GgufType, file.quant), target).verdict != "too_big"
    except UsageError:
        return True  # this type was made although it does not fit the model's rows
