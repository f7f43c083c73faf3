"""The exchange of gradients between the ranks of a run: one flat sum a step, or the sum in the order of passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from typing_extensions import override

from burnish_engine.contract.errors import DriverError
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.train.base.exchange import GradientExchange
from burnish_engine.train.parallel.collectives import Collectives
from burnish_engine.train.parallel.deal import cost_of, deal_by_cost, deal_in_turn
from burnish_engine.train.recovery.recovery import short_message

_NEWS_S = 5.0
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
        self._rank, self._size, self._collectives, self._exact = rank, size, collectives, exact
        self._agree, self._check = agree, check
        self._apart: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._others: tuple[torch.Tensor, torch.Tensor] | None = None  # room for a pass of another rank

    @override
    def deal(self, batches: Sequence[MicroBatch]) -> Sequence[int]:
        if self._exact:
            return deal_in_turn(len(batches), self._size)[self._rank]
        return deal_by_cost([cost_of(batch) for batch in batches], self._size)[self._rank]

    @override
    def pass_done(self, index: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        if self._exact:
            self._apart[index] = gradient.clone(), loss.clone()
            gradient.zero_()
            loss.zero_()

    @override
    def sum(self, passes: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        if self._exact and self._collectives and not self._others:  # before all agree: memory may run out here
            self._others = torch.empty_like(gradient), torch.empty_like(loss)
        self._agree()
        if self._exact:
            self._sum_in_order(passes, gradient, loss)
        elif self._collectives and passes:
            self._over_ranks(self._collectives.all_reduce, gradient)
            self._over_ranks(self._collectives.all_reduce, loss)

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
        for index in range(passes):
            parts = self._apart.pop(index, None) or self._others  # of the ranks, just one has the pass itself
            assert parts is not None
            if self._collectives:
                send = partial(self._collectives.broadcast, root=index % self._size)
                for values in parts:
                    self._over_ranks(send, values)
            gradient.add_(parts[0])
            loss.add_(parts[1])

    def _over_ranks(self, operation: Callable[[torch.Tensor], None], values: torch.Tensor) -> None:
        """Run an operation over all ranks; where it fails because one of them is gone, say that instead.

        Raises:
            ExchangeFailedError: The operation failed and no rank is known to be gone; also for want of memory, since a
                rank cannot drop the step alone.
        """
        try:
            operation(values)
        except RuntimeError as error:
            until = time.monotonic() + _NEWS_S
            while time.monotonic() < until:
                self._check()
                time.sleep(_POLL_S)
            raise ExchangeFailedError(
                f"GPUs could not exchange gradients ({short_message(error)}).",
                "Resume the run. If it happens again, set NCCL_DEBUG=INFO to be told more; `burnish doctor` says how "
                "the GPUs are connected.",
            ) from error
