"""Sums over ranks that travel in bf16: what rounding leaves out is kept and added the next time (error feedback)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from burnish_engine.train.base.exchange import GradientSlice
from burnish_engine.train.exchange.collectives import Collectives

_OWN, _PART = "own", "part"


class RoundedSum:
    """Adds up fp32 buffers over ranks, with half the bytes of an fp32 sum.

    Each rank adds its error to its values, rounds to bf16 and keeps the new error. Rank r gets the r-th part of
    everybody's values, adds them up in fp32 in the order of ranks together with an error of its own, rounds the sum,
    keeps that error too, and sends the sum to all, which so hold the same bits. Over many steps the sums lose nothing
    (Seide et al. 2014, https://doi.org/10.21437/Interspeech.2014-274; both errors as in 1-bit Adam,
    https://arxiv.org/abs/2102.02888).

    Args:
        rank: number of this rank.
        size: number of ranks.
        slices: parts of the buffer that are summed one at a time.
        device: device of the buffer.
    """

    def __init__(self, rank: int, size: int, slices: Sequence[GradientSlice], device: torch.device) -> None:
        self._rank, self._size, self._slices = rank, size, slices
        widths = self._widths(size)
        self._own = torch.zeros(max(part.end for part in slices), dtype=torch.float32, device=device)
        self._parts = [torch.zeros(width, dtype=torch.float32, device=device) for width in widths]
        self._sent = torch.zeros(size * max(widths), dtype=torch.bfloat16, device=device)
        self._received = torch.zeros_like(self._sent)

    def _widths(self, size: int) -> list[int]:
        """List the elements of each slice that one of so many ranks adds up."""
        return [-(-(part.end - part.start) // size) for part in self._slices]

    def sum(self, number: int, values: torch.Tensor, collectives: Collectives) -> None:
        """Replace a slice of a buffer by its sum over all ranks.

        Args:
            number: number of the slice.
            values: flat fp32 buffer.
            collectives: operations over all ranks.
        """
        span = slice(self._slices[number].start, self._slices[number].end)
        view, error, share = values[span], self._own[span], self._parts[number]
        count = self._size * len(share)
        sent, received = self._sent[:count], self._received[:count]
        sent.zero_()
        _round(view.add_(error), sent[: len(view)], error)
        collectives.all_to_all(received.view(torch.uint8), sent.view(torch.uint8))  # as bytes: gloo knows no bf16
        total = share
        for one in received.view(self._size, -1):
            total = total + one
        rounded = sent[: len(share)]
        _round(total, rounded, share)
        collectives.all_gather(received.view(torch.uint8), rounded.view(torch.uint8))
        view.copy_(received[: len(view)])

    def state(self) -> dict[str, torch.Tensor]:
        """Return the errors of this rank by name, on its device."""
        return {_OWN: self._own, _PART: torch.cat(self._parts)}

    def restore(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Take over the errors that all ranks saved.

        Args:
            saved: `state` of each rank, its number before the name: "0/own", "0/part", "1/own" and so on. Of as many
                ranks with the same slices, each continues with its own; else rank 0 takes the sum of all.
        """
        ranks = sum(name.endswith(f"/{_OWN}") for name in saved)
        parts = [saved[f"{rank}/{_PART}"] for rank in range(ranks)]
        if any(len(part) != sum(self._widths(ranks)) for part in parts):
            return  # of another adapter, or cut in other slices
        if ranks == self._size:
            self._own.copy_(saved[f"{self._rank}/{_OWN}"])
            for share, value in zip(self._parts, parts[self._rank].split(self._widths(ranks)), strict=True):
                share.copy_(value)
        elif self._rank == 0:
            for rank in range(ranks):
                self._own += saved[f"{rank}/{_OWN}"].to(self._own.device)
                for place, share in zip(self._slices, parts[rank].split(self._widths(ranks)), strict=True):
                    first = min(place.start + rank * len(share), place.end)
                    kept = share[: place.end - first]
                    self._own[first : first + len(kept)] += kept.to(self._own.device)


def _round(exact: torch.Tensor, rounded: torch.Tensor, error: torch.Tensor) -> None:
    """Round values into a bf16 buffer and keep what that leaves out; nothing of values that are no numbers."""
    rounded.copy_(exact)
    torch.sub(exact, rounded, out=error)
    error.nan_to_num_(0.0, 0.0, 0.0)
