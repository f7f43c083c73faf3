"""Files of an export as points: size against the gain they keep, with their speed; predicted or measured. No Qt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from burnish_app.look.language import tr
from burnish_app.wording.numbers import percent, speed_text
from burnish_engine.contract.facts.export_forecast import ExportForecast
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.recipe.recipe_export import GgufType, TargetSection
from burnish_engine.contract.units import file_size

_FAR_SHARE = (
    1.6  # a limit beyond this share of the largest file is told in words, or the points would crowd at the left
)
_SIDE_SHARE = 0.06  # share of the range left free at each side
_LEAST_RANGE = 0.02


@dataclass(frozen=True)
class ExportPoint:
    """The file of one type.

    Attributes:
        quant: GGUF type.
        bytes: size of the file.
        mean_kl: mean KL divergence from the trained model, nats.
        gain_kept: share of what training gained that it keeps; None: not known.
        tokens_per_s: generation speed on the processor; None: not known.
        measured: whether a finished file was measured; else all but the size is predicted.
        passed: whether the file was proven; predicted ones are taken to be.
    """

    quant: GgufType
    bytes: int
    mean_kl: float
    gain_kept: float | None
    tokens_per_s: float | None
    measured: bool = False
    passed: bool = True

    def height(self, *, by_gain: bool) -> float:
        """Return the position on the vertical axis: the gain kept, 0 to 1, or the KL divergence below zero."""
        return min(max(self.gain_kept or 0.0, 0.0), 1.0) if by_gain else -self.mean_kl


def export_points(forecast: ExportForecast | None, report: FidelityReport | None) -> list[ExportPoint]:
    """Return a point for each type, smallest file first; a measured file takes the place of its prediction.

    BF16 has the size of F16 and is left out, unless it was made.

    Args:
        forecast: prediction for all types; None: not known yet.
        report: fidelity report of the last export; None: there is none.
    """
    points: dict[str, ExportPoint] = {}
    for one in forecast.types if forecast is not None else ():
        if one.quant != "BF16":
            points[one.quant] = ExportPoint(one.quant, one.bytes, one.mean_kl, one.gain_kept, one.tokens_per_s)
    for file in report.files if report is not None else ():
        points[file.quant] = ExportPoint(
            cast(GgufType, file.quant), file.bytes, file.mean_kl, file.gain_kept, file.tokens_per_s, True, file.passed
        )
    return sorted(points.values(), key=lambda point: (point.bytes, point.quant))


def shows_gain(points: Sequence[ExportPoint]) -> bool:
    """Whether the gain kept is known of every point, so that it is the vertical axis; else the KL divergence is."""
    return all(point.gain_kept is not None for point in points)


def axis_ranges(points: Sequence[ExportPoint], limit_bytes: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the ranges of both axes: logarithms of bytes, and the vertical axis of `shows_gain`.

    Sizes are on a logarithmic axis: types differ by their ratio, and one of 16 bits would crowd all others.

    Args:
        points: points to show, at least one.
        limit_bytes: largest file that the target runs; 0: not known.
    """
    by_gain = shows_gain(points)
    sizes, heights = [point.bytes for point in points], [point.height(by_gain=by_gain) for point in points]
    ends = [*sizes, limit_bytes] if limit_in_view(points, limit_bytes) else sizes
    left, right = math.log(min(ends)), math.log(max(ends))
    side, height = _SIDE_SHARE * max(right - left, 1.0), max(max(heights) - min(heights), _LEAST_RANGE)
    low, high = min(heights) - 2 * _SIDE_SHARE * height, max(heights) + 2 * _SIDE_SHARE * height
    return (left - side, right + 2 * side), (low, high)


def limit_in_view(points: Sequence[ExportPoint], limit_bytes: int) -> bool:
    """Whether the line of the target's largest file is drawn; one that is far beyond all files is told in words."""
    sizes = [point.bytes for point in points]
    return min(sizes) / _FAR_SHARE <= limit_bytes <= _FAR_SHARE * max(sizes)


def point_text(point: ExportPoint) -> str:
    """Describe a point in a line, for screen readers and tooltips."""
    if not point.passed:
        return tr("{quant}: refused, {size}").format(quant=point.quant, size=file_size(point.bytes))
    parts = [file_size(point.bytes)]
    if point.gain_kept is not None:
        kept = percent(point.height(by_gain=True))
        parts.append(tr("keeps {kept} of the gain").format(kept=kept))
    else:
        parts.append(tr("differs by {difference}").format(difference=f"{point.mean_kl:.3f}"))
    if point.tokens_per_s is not None:
        parts.append(tr("{speed} here").format(speed=speed_text(point.tokens_per_s)))
    state = tr("measured") if point.measured else tr("predicted")
    return f"{point.quant}: {', '.join(parts)} ({state})"


def limit_text(points: Sequence[ExportPoint], limit_bytes: int, target: TargetSection) -> str:
    """Say what the target runs; empty where that is not known.

    Args:
        points: points to show, at least one.
        limit_bytes: largest file that the target runs; 0: not known.
        target: device that the result is for.
    """
    if not limit_bytes:
        return ""
    where = tr("{kind} with {ram} GiB").format(kind=tr(target.kind), ram=f"{target.ram_gib:g}")
    if limit_in_view(points, limit_bytes):
        return tr("Dashed: the largest file for a {where}.").format(where=where)
    if all(point.bytes <= limit_bytes for point in points):
        return tr("A {where} runs every one of them.").format(where=where)
    return tr("A {where} runs none larger than {size}.").format(where=where, size=file_size(limit_bytes))
