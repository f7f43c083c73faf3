"""The state of replies on the device, a row for each."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SamplingRows:
    """Rules by which the token of each row is chosen, `[S]` each.

    Attributes:
        temperature: fp32 divisor of the logits; 0: the most likely token.
        top_p: fp32 probability that the most likely tokens must reach together; only these are drawn from.
        min_p: fp32 least probability, relative to the most likely token's; 0: none.
        top_k: int32 number of most likely tokens that are drawn from; 0: all.
        seed: int64 seed of the row's draws.
    """

    temperature: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    top_k: torch.Tensor
    seed: torch.Tensor


@dataclass(frozen=True)
class ReplyRows:
    """State of each reply, int32 `[S]` where nothing else is said.

    Attributes:
        ids: int64 newest token, which the next step reads.
        place: row of the rope table for that token.
        length: tokens of prompt and reply, the newest included; 0 once the reply ended, so that nothing reads it.
        made: tokens of the reply.
        limit: most tokens of the reply.
        live: 1 until the reply has ended.
        recent: last tokens of the reply `[S, R]`: token i is at i modulo R.
    """

    ids: torch.Tensor
    place: torch.Tensor
    length: torch.Tensor
    made: torch.Tensor
    limit: torch.Tensor
    live: torch.Tensor
    recent: torch.Tensor
