"""Momentum-aligned gradient masking in plain PyTorch: the definition that the kernels are compared with.

Joo et al. 2026 (Magma, arXiv 2602.15322, algorithm 1): every block's moments are updated, and its whole displacement
D, learning rate and weight decay included, is taken times s z. z is drawn from Bernoulli(p), for each block and step;
s is a running mean of sigmoid(c / tau), where c is the cosine between momentum and gradient, 0 where a norm is 0.
SkipUpdate (same paper) has s = 1 / p instead, which keeps the mean.

The draw is a function of seed, step and block (Philox4x32-10), so a resumed run, a captured one and every rank of a
parallel one draw the same.

Open in the paper, and so options: s to begin with, momentum before or after the step, which blocks share a draw, and
the learning rate of masked blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_kernels.adamw.layout import BLOCK, FlatLayout
from burnish_kernels.adamw.reference import GRADIENT_FACTOR, NEW1, TAKE
from burnish_kernels.philox import philox

DOT, MOMENTUM, GRADIENT = range(3)
"""Places in `sums` [S, 3]: momentum times gradient, momentum squared, gradient squared."""
DOMAIN = 0x6D61676D
"""Third word of the counter: keeps these draws apart from others of the same seed."""
NEVER = -1
"""Value in `draws` of a block that is not masked."""
_DRAW_BITS = 31


@dataclass(frozen=True)
class MagmaOptions:
    """The variants that the paper leaves open.

    Attributes:
        probability: probability p that a block's step is taken.
        temperature: temperature tau of the sigmoid.
        decay: decay of the running mean of s.
        start: initial s.
        momentum_after: whether the cosine is taken with the momentum after the step, not before it.
        skip: whether to use SkipUpdate: s is 1 / p.
        rate: factor on the step of masked blocks, whose mean step is only p s times the full one.
    """

    probability: float = 0.5
    temperature: float = 2.0
    decay: float = 0.9
    start: float = 0.5
    momentum_after: bool = False
    skip: bool = False
    rate: float = 1.0

    @property
    def threshold(self) -> int:
        """Bound below which draws of 31 bits let a block's step be taken."""
        return int(self.probability * 2**_DRAW_BITS)


def block_sums(layout: FlatLayout, grad: torch.Tensor, exp_avg: torch.Tensor, sums_S3: torch.Tensor) -> None:
    """Fill `sums_S3`."""
    for index, (g, m) in enumerate(zip(layout.views(grad), layout.views(exp_avg), strict=True)):
        sums_S3[index, DOT] = (m * g).sum()
        sums_S3[index, MOMENTUM] = m.square().sum()
        sums_S3[index, GRADIENT] = g.square().sum()


def decide(
    sums_S3: torch.Tensor,
    draws_S: torch.Tensor,
    seed: torch.Tensor,
    step: torch.Tensor,
    factors: torch.Tensor,
    alignment_S: torch.Tensor,
    step_scale_S: torch.Tensor,
    options: MagmaOptions,
) -> None:
    """Update `alignment_S` and fill `step_scale_S`; a step that is not taken changes nothing."""
    values = factors.double()
    if not values[TAKE]:
        return
    dot, momentum, gradient = sums_S3.double().unbind(1)
    factor, new = values[GRADIENT_FACTOR], values[NEW1]
    dot, gradient = dot * factor, gradient * factor * factor
    if options.momentum_after:
        kept = 1.0 - new
        momentum = kept * kept * momentum + 2 * kept * new * dot + new * new * gradient
        dot = kept * dot + new * gradient
    norms = momentum.clamp(min=0.0).sqrt() * gradient.sqrt()
    cosine = torch.where(norms > 0.0, dot / norms, torch.zeros_like(dot))
    masked = draws_S != NEVER
    fresh = options.decay * alignment_S.double() + (1.0 - options.decay) * (cosine / options.temperature).sigmoid()
    alignment_S.copy_(torch.where(masked, fresh, alignment_S.double()))
    words = philox(int(seed), [int(step), draws_S.cpu().numpy(), DOMAIN, 0])
    goes = torch.from_numpy(words[0] >> 1 < options.threshold).to(draws_S.device)
    length = torch.full_like(fresh, 1.0 / options.probability) if options.skip else alignment_S.double()
    step_scale_S.copy_(torch.where(masked, options.rate * length * goes, torch.ones_like(fresh)))


def blocks_of(layout: FlatLayout) -> torch.Tensor:
    """Return first block of the flat buffer and number of blocks of each segment, `[S, 2]` int32."""
    pairs = [
        (start // BLOCK, -(-segment.elements // BLOCK))
        for start, segment in zip(layout.starts, layout.segments, strict=True)
    ]
    return torch.tensor(pairs, dtype=torch.int32)
