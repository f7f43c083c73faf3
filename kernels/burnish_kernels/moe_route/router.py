"""The routers of published mixtures of experts, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RouterKind = Literal["softmax_topk", "topk_softmax", "sigmoid"]

SIGMOID_EPSILON = 1e-6
"""Added to the sum that sigmoid weights are divided by (transformers' `Lfm2MoeTopKRouter`)."""


@dataclass(frozen=True)
class Router:
    """A way to choose the experts of a token and to weigh them, as transformers' models compute it.

    Attributes:
        kind: "softmax_topk": the largest of the fp32 softmax over all experts (Mixtral, OLMoE, Qwen3-MoE);
            "topk_softmax": the softmax over the largest logits (gpt-oss); "sigmoid": sigmoids, chosen with a bias added
            that the weights do not see (LFM2-MoE).
        slots: number of experts of a token, k.
        normalize: whether the chosen weights are divided by their sum; of no effect in "topk_softmax".
        scale: factor of all weights.
        rounded: whether weights are rounded to the logits' type; Mixtral keeps fp32. Sigmoids, their sum and their
            share are rounded one after another, as computing in that type does.
    """

    kind: RouterKind
    slots: int
    normalize: bool = True
    scale: float = 1.0
    rounded: bool = True
