"""Compute checksums of tensors on their own device, which show whether a single bit changed.

Eight bytes at a time are read as an integer and mixed with a number of their place: xor, an odd factor, xor of the
upper half onto the lower. Each of these can be undone, so any one change alters the result. The results are added
modulo 2^64; exchanged numbers leave the sum as it was with a chance of 2^-64. It is computed in pieces, so that it
needs next to no memory, and is the same on every device for a tensor of the same layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

_PIECE = 1 << 19
"""Count of 64-bit integers in one piece, which takes 4 MiB, a few times."""
# Odd factors of SplitMix64 (Steele et al. 2014): 0x9E3779B97F4A7C15 and 0xBF58476D1CE4E5B9 as signed integers.
_FACTOR, _PLACE_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64)
_LOWER_HALF = (1 << 32) - 1
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def checksums(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Compute the checksum of each tensor, by the same names. The host waits once for each device.

    Args:
        tensors: tensors of any dtype and layout whose last dimension is dense.
    """
    sums: dict[torch.device, list[tuple[str, torch.Tensor]]] = {}
    weights: dict[torch.device, torch.Tensor] = {}
    for name, tensor in tensors.items():
        device = tensor.device
        if device not in weights:
            weights[device] = _mixed(torch.arange(1, _PIECE + 1, dtype=torch.int64, device=device), _PLACE_FACTOR)
        sums.setdefault(device, []).append((name, _checksum(tensor.detach(), weights[device])))
    found: dict[str, int] = {}
    for pairs in sums.values():
        values = torch.stack([value for _, value in pairs]).tolist()
        found |= {name: int(value) for (name, _), value in zip(pairs, values, strict=True)}
    return {name: found[name] for name in tensors}


def changed(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """List the names whose checksum changed."""
    return [name for name, value in before.items() if name in after and after[name] != value]


def _checksum(tensor: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for piece in _pieces(tensor):
        # A row longer than a piece is cut once more; the factor tells pieces apart.
        for part in piece.split(_PIECE):
            total = total * 31 + _mixed(part ^ weights[: len(part)], _FACTOR).sum() + 1
    return total


def _mixed(numbers: torch.Tensor, factor: int) -> torch.Tensor:
    """Mix the bits of each integer, in place and without loss."""
    numbers *= factor
    upper = numbers >> 32
    upper &= _LOWER_HALF  # shifting copies the sign into the upper half, and a number and its complement would be one
    numbers ^= upper
    return numbers


def _pieces(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    """Yield the numbers of a tensor as flat pieces of 64-bit integers: eight bytes each, else one number each."""
    bits = tensor.view(_INTEGERS[tensor.element_size()]) if tensor.dtype != torch.bool else tensor.to(torch.uint8)
    numbers = bits.reshape(-1) if bits.is_contiguous() else bits
    each = 8 // numbers.element_size()
    if all(length % each == 0 for length in (numbers.shape[-1], numbers.storage_offset(), *numbers.stride()[:-1])):
        numbers = numbers.view(torch.int64)
    if numbers.ndim > 1:
        rows = max(1, _PIECE // numbers.shape[-1])
        yield from (piece.reshape(-1).to(torch.int64) for piece in numbers.split(rows))
    else:
        yield from (piece.to(torch.int64) for piece in numbers.split(_PIECE))
