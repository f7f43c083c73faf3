"""The leader's engine: the fast engine, whose steps and evaluations are shared with replicas on other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.units import memory_size
from burnish_engine.data.tokens.pack import MicroBatch, pass_cost
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.probe import probe
from burnish_engine.models.device.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.train.base.engine import CountListener, ignore_count
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_evaluate import mean_loss
from burnish_engine.train.parallel.deal import deal_by_cost
from burnish_engine.train.parallel.evaluation_share import (
    ROUND_PASSES,
    evaluate_share,
    evaluation_order,
    share_tensors,
)
from burnish_engine.train.parallel.link import Message
from burnish_engine.train.parallel.rank_exchange import RankExchange
from burnish_engine.train.parallel.ranks import Ranks
from burnish_engine.train.parallel.replica import state_of, weights_checksum

CHECK_STEPS = 100
"""Steps between two comparisons of the weights on all ranks."""
_SLOW = 1.5  # times the expected time from which on an exchange is worth a word
_TIMED = 10  # exchanges that are timed as the engine is loaded


def slow_exchange(ranks: Ranks, gradient: torch.Tensor) -> list[str]:
    """Measure an exchange of gradients; return a note where it takes much longer than these links should need.

    Args:
        ranks: other ranks.
        gradient: buffer of the size that is exchanged.
    """
    if gradient.device.type == "cpu":
        return []
    try:
        measured = 1000 * ranks.time_exchange(gradient.nbytes, gradient.device, _TIMED)
    except MEMORY_ERRORS as error:
        if not is_out_of_memory(error):
            raise
        return []  # a measurement is not worth a smaller plan
    expected = parallel_settings(probe(), adapter_bytes=gradient.nbytes).exchange_ms
    if expected is None or measured <= max(_SLOW * expected, 1.0):
        return []
    return [
        f"One exchange of gradients ({memory_size(gradient.nbytes)}) takes {measured:.1f} ms; these links should need "
        f"{expected:.1f} ms. `burnish doctor --bandwidth` measures them."
    ]


def _count_on(progress: CountListener, before: int, done: int) -> object:
    return progress(before + done)


class LeadingEngine(FastEngine):
    """Fast engine of rank 0. Everything but steps, plans and losses of rows concerns this rank alone.

    Args:
        spec: specification of the engine.
        ranks: other ranks.
        replica: what replicas are loaded from, beside plan, adapter and learning rate.
    """

    def __init__(self, spec: EngineSpec, ranks: Ranks, replica: Message) -> None:
        exact = spec.recipe.devices.exact
        exchange = RankExchange(0, ranks.size, ranks.collectives, exact=exact, agree=ranks.agree, check=ranks.check)
        self._ranks, self._rank_exchange, self._others_plan = ranks, exchange, ""
        self._shares = False  # whether steps are shared now: they are not in a dry run
        self._steps = self._compared = 0
        super().__init__(replace(spec, exchange=exchange))
        order = {
            "do": "load",
            "plan": self.memory_plan,
            "adapter": str(spec.adapter) if spec.adapter else "",
            "learning_rate": spec.recipe.train.learning_rate,
        }
        ranks.call(replica | order)
        self._others_plan = self.memory_plan
        self.notes += slow_exchange(ranks, self.model.optimizer.grad)

    @override
    def use_plan(self, plan: MemoryPlan) -> None:
        super().use_plan(plan)
        if self._others_plan and self._others_plan != self.memory_plan:
            self._ranks.call({"do": "plan", "plan": self.memory_plan})
            self._others_plan = self.memory_plan

    @override
    def start(
        self, step: int, total_steps: int, total_micro_batches: int, source: Sequence[MicroBatch] | None = None
    ) -> None:
        super().start(step, total_steps, total_micro_batches, source)
        self._shares = source is None
        if not self._shares:
            return
        with self._on_stream():
            tensors = state_of(self.model, self._stream.references)
        order = {"do": "start", "step": step, "steps": total_steps, "micro_batches": total_micro_batches}
        answers = self._ranks.call(order, tensors)
        self._steps = self._compared = step
        self._ranks.require_equal(self._checksum(), step, answers)

    @override
    def queue_step(self) -> None:
        if not self._shares:
            return super().queue_step()
        self._ranks.begin_step()
        try:
            super().queue_step()
        except MEMORY_ERRORS:
            self._ranks.drop_step()
            raise
        self._steps += 1
        if self._steps - self._compared >= CHECK_STEPS:
            self._compare()
        return None

    @override
    def held_out_loss(
        self, documents: Sequence[Document], budget: int, progress: CountListener = ignore_count
    ) -> tuple[float, int]:
        if not self._shares or not len(documents):
            return super().held_out_loss(documents, budget, progress)
        return mean_loss(torch.cat([*self._evaluate(documents, budget, 0, True, progress)], dim=1))

    @override
    def log_probs(
        self,
        documents: Sequence[Document],
        budget: int,
        *,
        adapter: Path | bool = True,
        progress: CountListener = ignore_count,
    ) -> npt.NDArray[np.float32]:
        if not len(documents) or (
            adapter is True and not self._shares
        ):  # before the start others' weights are not ours
            return super().log_probs(documents, budget, adapter=adapter, progress=progress)
        each = len(documents[0].sequence_lengths)
        order = [row for group in self.evaluation_passes(documents, budget).batches.groups for row in group]
        found_NS = np.zeros((len(documents), each), dtype=np.float32)
        found_NS[order] = torch.cat([*self._evaluate(documents, budget, each, adapter, progress)]).numpy()
        return found_NS

    def _evaluate(
        self, documents: Sequence[Document], budget: int, each: int, adapter: Path | bool, progress: CountListener
    ) -> Iterator[torch.Tensor]:
        """Deal an evaluation to the ranks; yield the results of each round of passes; see `evaluate_share`."""
        all_passes, done = self.evaluation_passes(documents, budget), 0
        batches = all_passes.batches
        for first in range(0, len(batches), ROUND_PASSES * self._ranks.size):
            passes = replace(all_passes, batches=batches[first : first + ROUND_PASSES * self._ranks.size])
            groups = passes.batches.groups
            costs = [pass_cost([len(documents[row]) for row in group]) for group in groups]
            shares = [
                share_tensors(documents, groups, own, by_document=each > 0)
                for own in deal_by_cost(costs, self._ranks.size)
            ]
            order = evaluation_order(passes, each, adapter)
            self._ranks.begin_evaluation(order, shares[1:])
            try:
                found = evaluate_share(self, order, shares[0], partial(_count_on, progress, done))
            except MEMORY_ERRORS:
                self._ranks.drop_step()
                raise
            self._rank_exchange.add_up(found)
            done += sum(len(group) for group in groups)
            progress(done)
            yield found.cpu()

    @override
    def save_adapter(self, folder: Path) -> None:
        self._compare()  # what differs is not worth keeping
        super().save_adapter(folder)

    def _compare(self) -> None:
        """Compare the weights on all ranks, if any steps were shared since the last time."""
        if self._shares and self._steps > self._compared:
            self._ranks.require_equal(self._checksum(), self._steps)
            self._compared = self._steps

    def _checksum(self) -> int:
        with self._on_stream():
            return weights_checksum(self.model)
