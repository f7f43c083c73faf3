"""Finds in the live samples what needs a person: memory that spilled, a card that others filled. No Qt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from burnish_engine.contract.run.hardware_log import GpuHistory, HardwareHistory

AlarmKind = Literal["spill", "filled"]
_LASTING = 3  # samples in a row: shorter peaks are over before anybody reads of them
_SPILLED_BYTES = _OTHERS_BYTES = 2**29  # the driver's own buffers, and a desktop, are below that
_FULL_SHARE, _FULL_BYTES = 0.06, 2**29  # less than this is free: the card is full


@dataclass(frozen=True)
class Alarm:
    """A reason to act, on one GPU.

    Attributes:
        kind: spill: the driver moved part of the run to system memory. filled: other programs filled the card.
        gpu: index of the GPU.
        bytes: memory that spilled, or that others hold.
        culprit: name of the program that holds more than half of it; empty where not known.
    """

    kind: AlarmKind
    gpu: int
    bytes: int
    culprit: str = ""

    @property
    def key(self) -> tuple[AlarmKind, int]:
        """Identity of the alarm while its figures change."""
        return self.kind, self.gpu


def find_alarms(history: HardwareHistory) -> list[Alarm]:
    """Find the alarms of the newest samples, at most one a GPU.

    Args:
        history: live samples.
    """
    shown = (
        [history.gpus[gpu.index] for gpu in history.start.gpus if gpu.index in history.gpus] if history.start else []
    )
    found = [_alarm_of(gpu) for gpu in shown if not gpu.facts.unified_memory]
    return [alarm for alarm in found if alarm is not None]


def _alarm_of(gpu: GpuHistory) -> Alarm | None:
    total = gpu.facts.memory_total_bytes
    if len(gpu) < _LASTING or not total:
        return None
    used, ours = gpu.used_bytes.values()[-_LASTING:], gpu.ours_bytes.values()[-_LASTING:]
    spilled = gpu.spilled_bytes.values()[-_LASTING:]
    room = max(_FULL_SHARE * total, _FULL_BYTES)
    if not all(total - one < room for one in used):  # also where it is not known
        return None
    if all(one >= _SPILLED_BYTES for one in spilled):
        return Alarm("spill", gpu.facts.index, int(spilled[-1]))
    others = [whole - own for whole, own in zip(used, ours, strict=True)]
    if ours[-1] > 0 and all(math.isfinite(one) and one >= _OTHERS_BYTES for one in others):
        theirs = [
            holder for holder in gpu.holders if not holder.ours and holder.name and 2 * (holder.bytes or 0) > others[-1]
        ]
        return Alarm("filled", gpu.facts.index, int(others[-1]), theirs[0].name if theirs else "")
    return None
