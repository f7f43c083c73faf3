"""The exchange of gradients between the ranks of a run: one flat sum a step, or the sum in the order of passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from typing_extensions import override

from burnish_engine.contract.errors import DriverError
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.train.base.exchange import GradientExchange, GradientSlice
from burnish_engine.train.exchange.collectives import Collectives
from burnish_engine.train.exchange.deal import cost_of, deal_by_cost, deal_in_turn
from burnish_engine.train.exchange.rounded_sum import RoundedSum
from burnish_engine.train.recovery.recovery import short_message

NEWS_S = 5.0
"""Time within which it is known which rank is gone, after an operation failed."""
_POLL_S = 0.05


class ExchangeFailedError(DriverError):
    """An operation over all ranks failed, and none is known to be gone."""


def _nothing() -> None:
    """Do nothing."""


class RankExchange(GradientExchange):
    """Exchange of one rank.

    Normally gradients add up on each rank, and one sum over the ranks follows: the result depends on how passes were
    dealt in its last bits. Where it shall not (`exact`), the gradient of each pass is kept apart, and all are added up
    in the order of passes on every rank: any number of ranks, also one, gives the same bits.

    The sum may be made in slices (`use`). All ranks then make the same sums in the same order, whether or not a rank
    could begin them within its last pass.

    Args:
        rank: number of this rank.
        size: number of ranks.
        collectives: operations over all ranks; None for a single one.
        exact: whether to add up in the order of passes.
        agree: function that waits until all ranks have queued their passes.
        check: function that raises where a rank is gone.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        collectives: Collectives | None = None,
        *,
        exact: bool = False,
        agree: Callable[[], None] = _nothing,
        check: Callable[[], None] = _nothing,
    ) -> None:
        assert collectives is not None or size == 1
        self.slices: Sequence[GradientSlice] = ()
        self._rank, self._size, self._collectives, self._exact = rank, size, collectives, exact
        self._agree, self._check = agree, check
        self._apart: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._others: tuple[torch.Tensor, torch.Tensor] | None = None  # room for a pass of another rank
        self._rounded: RoundedSum | None = None
        self._speeds: Sequence[float] = ()
        self._unites = False
        self._begun, self._summed = False, 0  # whether all agreed on this step's exchange, and slices begun
        self._side: torch.cuda.Stream | None = None  # of slices that are summed beside the backward pass

    def use(
        self,
        slices: Sequence[GradientSlice],
        gradient: torch.Tensor,
        *,
        rounded: bool,
        speeds: Sequence[float] = (),
        unites: bool = False,
    ) -> None:
        """Exchange gradients in these slices from now on; every rank must do so alike.

        Args:
            slices: parts of the gradient, those of the upper layers first; none: it is exchanged as a whole.
            gradient: flat fp32 buffer.
            rounded: whether they travel in bf16.
            speeds: speed of each rank, in any unit; none: all are equal.
            unites: whether ranks take the leader's weights after each update, since theirs would differ in last bits.
        """
        self.slices, self._speeds, self._unites = slices, speeds, unites
        if rounded and self._rounded is None:
            self._rounded = RoundedSum(self._rank, self._size, self._parts_of(gradient), gradient.device)

    @property
    @override
    def overlaps(self) -> bool:
        return len(self.slices) > 1 and self._collectives is not None and not self._exact

    @override
    def deal(self, batches: Sequence[MicroBatch]) -> Sequence[int]:
        if self._exact:
            return deal_in_turn(len(batches), self._size)[self._rank]
        return deal_by_cost([cost_of(batch) for batch in batches], self._size, self._speeds)[self._rank]

    @override
    def pass_done(self, index: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        if self._exact:
            self._apart[index] = gradient.clone(), loss.clone()
            gradient.zero_()
            loss.zero_()

    @override
    def begin(self, passes: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        if self._exact and self._collectives and not self._others:  # before all agree: memory may run out here
            self._others = torch.empty_like(gradient), torch.empty_like(loss)
        if self.overlaps and gradient.is_cuda and self._side is None:
            self._side = torch.cuda.Stream(gradient.device)
        self._summed = 0
        self._agree()
        self._begun = True

    @override
    def sum_slice(self, number: int, gradient: torch.Tensor) -> None:
        assert self._begun
        assert number == self._summed
        if self._side is None:
            self._sum_part(number, gradient)
        else:
            self._side.wait_stream(torch.cuda.current_stream(gradient.device))
            with torch.cuda.stream(self._side):
                self._sum_part(number, gradient)
        self._summed += 1

    @override
    def sum(self, passes: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        if not self._begun:
            self.begin(passes, gradient, loss)
        self._begun = False
        if self._exact:
            self._sum_in_order(passes, gradient, loss)
        elif self._collectives and passes:
            if self._side is not None and self._summed:
                torch.cuda.current_stream(gradient.device).wait_stream(self._side)
            for number in range(self._summed, len(self._parts_of(gradient))):
                self._sum_part(number, gradient)
            self._over_ranks(self._collectives.all_reduce, loss)

    def _parts_of(self, gradient: torch.Tensor) -> Sequence[GradientSlice]:
        return self.slices or (GradientSlice(0, 0, len(gradient)),)

    def _sum_part(self, number: int, gradient: torch.Tensor) -> None:
        assert self._collectives is not None
        part = self._parts_of(gradient)[number]
        if self._rounded is None:
            self._over_ranks(self._collectives.all_reduce, gradient[part.start : part.end])
        else:
            self._over_ranks(partial(self._rounded.sum, number, collectives=self._collectives), gradient)

    @override
    def unite(self, weights: torch.Tensor) -> bool:
        if self._unites and self._collectives:
            self._over_ranks(partial(self._collectives.broadcast, root=0), weights)
        return self._unites

    def gather_errors(self) -> dict[str, torch.Tensor]:
        """Gather what rounding left out on all ranks, on the CPU, for `restore_errors`; all ranks must do so together.

        Raises:
            MemoryError: A rank ran out of memory.
            BurnishError: A rank is gone.
        """
        found: dict[str, torch.Tensor] = {}
        own = self._rounded.state() if self._rounded else {}
        others = {name: torch.empty_like(value) for name, value in own.items()}
        self._agree()
        for rank in range(self._size):
            for name, value in (own if rank == self._rank else others).items():
                assert self._collectives is not None
                self._over_ranks(partial(self._collectives.broadcast, root=rank), value)
                found[f"{rank}/{name}"] = value.to("cpu", copy=True)
        return found

    def restore_errors(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Take over what `gather_errors` gathered, where gradients are rounded now too."""
        if self._rounded and saved:
            self._rounded.restore(saved)

    def add_up(self, values: torch.Tensor) -> None:
        """Wait until every rank has its part of the values, then replace these by the sums over all ranks.

        Raises:
            MemoryError: A rank ran out of memory; nothing is exchanged.
            BurnishError: A rank is gone.
        """
        self._agree()
        if self._collectives:
            self._over_ranks(self._collectives.all_reduce, values)

    @override
    def check(self) -> None:
        self._check()

    def _sum_in_order(self, passes: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        # Of the ranks, just one has a pass itself.
        found = [self._apart.pop(index, None) or self._others for index in range(passes)]
        spans = [(gradient[part.start : part.end], slice(part.start, part.end)) for part in self._parts_of(gradient)]
        for total, span in [*spans, (loss, slice(None))]:
            for index, parts in enumerate(found):
                assert parts is not None
                values = parts[total is loss][span]
                if self._collectives:
                    self._over_ranks(partial(self._collectives.broadcast, root=index % self._size), values)
                total.add_(values)

    def _over_ranks(self, operation: Callable[[torch.Tensor], None], values: torch.Tensor) -> None:
        """Run an operation over all ranks; where it fails because one of them is gone, say that instead."""
        try:
            operation(values)
        except RuntimeError as error:
            until = time.monotonic() + NEWS_S
            while time.monotonic() < until:
                self._check()
                time.sleep(_POLL_S)
            raise ExchangeFailedError(
                f"GPUs could not exchange gradients ({short_message(error)}).",
                "Resume the run. If it happens again, set NCCL_DEBUG=INFO to be told more; `burnish doctor` says how "
                "the GPUs are connected.",
            ) from error
