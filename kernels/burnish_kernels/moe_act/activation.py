"""The gated activations of published experts, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ExpertActivation:
    """The activation of an expert: gate and up become the input of its second map.

    Attributes:
        name: "silu": silu(gate) · up; "gelu_tanh": gelu(gate) · up by its tanh formula (Gemma 4);
            "clamped": (up + 1) · gate · sigmoid(alpha · gate), with the gate at most `limit`
            and up between -limit and limit (gpt-oss).
        interleaved: whether gate and up alternate, gate first, rather than lying in halves.
        alpha: slope inside the sigmoid of "clamped".
        limit: bound of "clamped".
    """

    name: Literal["silu", "gelu_tanh", "clamped"] = "silu"
    interleaved: bool = False
    alpha: float = 1.702
    limit: float = 7.0


GPT_OSS = ExpertActivation("clamped", interleaved=True)
