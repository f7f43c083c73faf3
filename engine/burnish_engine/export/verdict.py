"""What a report comes to: each file in plain words, and the best file for a size or a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from burnish_engine.advise.on_target import judge
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts import DecoderSpec, FidelityReport, QuantFidelity
from burnish_engine.contract.recipe_export import GgufType, TargetSection
from burnish_engine.contract.units import file_size

_LITTLE_KL = 0.002
"""Nats: a difference nobody notices; of two such files the smaller one is better."""


@dataclass(frozen=True)
class Suggestion:
    """The best file, and why.

    Attributes:
        file: The file.
        why: In a sentence.
    """

    file: QuantFidelity
    why: str


def in_words(file: QuantFidelity) -> str:
    """One file: what it keeps, at what size. KL and agreement are told where nothing was gained."""
    size = file_size(file.bytes)
    if not file.passed:
        return f"{file.quant} was refused."
    if file.gain_kept is None:
        return f"{file.quant} agrees with the trained model on {file.top1_agreement:.1%} of the tokens at {size}."
    if file.gain_kept >= 1.0:
        return f"{file.quant} keeps all of the gain at {size}."
    if file.gain_kept <= 0.0:
        return f"{file.quant} keeps nothing of the gain at {size}: it is no better than the base model."
    return f"{file.quant} keeps {file.gain_kept:.0%} of the gain at {size}."


def suggest(
    report: FidelityReport, *, size_limit_bytes: int = 0, spec: DecoderSpec | None = None, target: TargetSection | None
) -> Suggestion | None:
    """The best of the files that passed: nearest to the trained model among those that fit.

    Args:
        report: The report.
        size_limit_bytes: Largest file wanted; 0: what the target's memory and speed allow.
        spec: The model's shape; None where not known in detail.
        target: Where the file shall run; None: anywhere.

    Returns:
        The suggestion; None where no file passed or none fits.
    """
    passed = [file for file in report.files if file.passed]
    if size_limit_bytes:
        fitting, where = [file for file in passed if file.bytes <= size_limit_bytes], f"{size_limit_bytes / 1e6:.0f} MB"
    elif spec is not None and target is not None:
        fitting = [file for file in passed if _runs(file, spec, target)]
        where = f"a {target.kind} with {target.ram_gib:g} GiB"
    else:
        fitting, where = passed, "any device"
    if not fitting:
        return None
    best = _nearest(fitting)
    return Suggestion(best, f"Best for {where}: {best.file}. {in_words(best)}")


def _nearest(files: Sequence[QuantFidelity]) -> QuantFidelity:
    least = min(file.mean_kl for file in files)
    return min((file for file in files if file.mean_kl <= least + _LITTLE_KL), key=lambda file: file.bytes)


def _runs(file: QuantFidelity, spec: DecoderSpec, target: TargetSection) -> bool:

    try:
        return judge(spec, cast(GgufType, file.quant), target).verdict != "too_big"
    except UsageError:
        return True  # a type that does not fit the model's rows was made all the same
