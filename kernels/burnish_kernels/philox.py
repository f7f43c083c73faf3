"""Random bits from a counter as Triton draws them: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_LOW = 0xFFFFFFFF
_ROUND = (0xD2511F53, 0xCD9E8D57)  # multipliers of Philox4x32
_WEYL = (0x9E3779B9, 0xBB67AE85)  # what the key grows by each round


def philox(seed: torch.Tensor, counter: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Philox4x32-10: four words of 32 random bits for each counter, as int64.

    Args:
        seed: One int64: the two words of the key.
        counter: Four int64 tensors of words; they broadcast.
    """
    key = [seed & _LOW, (seed >> 32) & _LOW]
    words = [word & _LOW for word in counter]
    for _ in range(10):
        # The product of two 32-bit words wraps in int64, but its bits are right.
        first, second = words[0] * _ROUND[0], words[2] * _ROUND[1]
        words = [
            ((second >> 32) & _LOW) ^ words[1] ^ key[0],
            second & _LOW,
            ((first >> 32) & _LOW) ^ words[3] ^ key[1],
            first & _LOW,
        ]
        key = [(key[0] + _WEYL[0]) & _LOW, (key[1] + _WEYL[1]) & _LOW]
    return words
