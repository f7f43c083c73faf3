"""Compute checksums of tensors on their own device, which show whether a single bit changed.

A checksum adds each number's bits, read as an integer, times an odd weight of its place, modulo 2^64: any one change
alters the sum, and so do exchanged numbers. It is computed in pieces, so that it needs next to no memory, and is the
same on every device.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

_PIECE = 1 << 21
"""Count of numbers in one piece; as 64-bit integers a piece takes 16 MiB, a few times."""
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
            weights[device] = torch.arange(1, 2 * _PIECE, 2, dtype=torch.int64, device=device)
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
    bits = tensor.view(_INTEGERS[tensor.element_size()]) if tensor.dtype != torch.bool else tensor.to(torch.uint8)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    if bits.ndim < 2 or bits.is_contiguous():
        pieces = list(bits.reshape(-1).split(_PIECE))
    else:
        rows = max(1, _PIECE // bits.shape[-1])
        pieces = [piece.reshape(-1) for piece in bits.split(rows)]
    for number, piece in enumerate(pieces):
        # A row longer than a piece is cut once more; the factor tells pieces apart.
        for part in piece.split(_PIECE):
            total = total * 31 + (part.to(torch.int64) * weights[: len(part)]).sum() + number
    return total
