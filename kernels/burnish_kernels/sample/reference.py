"""The PyTorch reference of choosing tokens: row by row, in double precision.

Where tokens tie at a threshold, all of them are kept.
"""

from __future__ import annotations

import torch

from burnish_kernels.philox import philox
from burnish_kernels.sample.rows import ReplyRows, SamplingRows


def uniform(seed: int, count: int) -> float:
    """Return the draw in [0, 1) of the token that follows `count` others: 24 bits of Philox4x32-10."""
    return int(philox(seed, [count, 0, 0, 0])[0][0] >> 8) / (1 << 24)


def shares(logits_V: torch.Tensor, temperature: float, top_p: float, min_p: float, top_k: int) -> torch.Tensor:
    """Return the probability of each token, zero for those that are not drawn from.

    Top-k comes first, top-p counts within what it leaves, as in transformers.
    """
    scaled_V = logits_V.double() / temperature
    shares_V = torch.exp(scaled_V - scaled_V.max())
    lowest = min_p * shares_V.max()
    if 0 < top_k < len(shares_V):
        shares_V = shares_V.masked_fill(logits_V < logits_V.topk(top_k).values[-1], 0.0)
    if top_p < 1.0:
        order_V = torch.argsort(logits_V, descending=True, stable=True)
        before_V = shares_V[order_V].cumsum(0) - shares_V[order_V]
        last = int((before_V < top_p * shares_V.sum()).sum()) - 1
        shares_V = shares_V.masked_fill(logits_V < logits_V[order_V[max(last, 0)]], 0.0)
    shares_V = shares_V.masked_fill(shares_V < lowest, 0.0)
    return shares_V / shares_V.sum()


def choose(logits_BV: torch.Tensor, choice: SamplingRows, count_B: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """Choose the next token of every row; arguments as for `op.choose`, without slots."""
    logits_BV = logits_BV.float()
    if softcap is not None:
        logits_BV = softcap * torch.tanh(logits_BV / softcap)
    chosen_B = logits_BV.argmax(dim=1)
    for row, temperature in enumerate(choice.temperature.tolist()):
        if temperature > 0.0:
            rules = (choice.top_p[row].item(), choice.min_p[row].item(), int(choice.top_k[row]))
            cumulated_V = shares(logits_BV[row], temperature, *rules).cumsum(0)
            drawn = uniform(int(choice.seed[row]), int(count_B[row]))
            past = torch.searchsorted(cumulated_V, torch.tensor([drawn], dtype=torch.float64), right=True)
            last = int(torch.searchsorted(cumulated_V, cumulated_V[-1:]))  # the last token with a share
            chosen_B[row] = min(int(past), last)
    return chosen_B


def record(tokens_B: torch.Tensor, rows: ReplyRows, stops_K: torch.Tensor, slots_B: torch.Tensor) -> None:
    """Note the chosen tokens; arguments as for `op.record`."""
    for token, slot in zip(tokens_B.tolist(), slots_B.tolist(), strict=True):
        if not rows.live[slot]:
            continue
        made = int(rows.made[slot])
        rows.recent[slot, made % rows.recent.shape[1]] = token
        rows.made[slot] = made + 1
        if made + 1 >= rows.limit[slot] or (stops_K == token).any():
            rows.live[slot] = rows.length[slot] = 0
        else:
            rows.ids[slot] = token
            rows.length[slot] += 1
            rows.place[slot] += 1
