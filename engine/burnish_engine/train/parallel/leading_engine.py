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

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.data.tokens.pack import MicroBatch, pass_cost
from burnish_engine.models.device.device import MEMORY_ERRORS
from burnish_engine.train.base.engine import CountListener, EvaluationRequest
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.exchange import ERRORS
from burnish_engine.train.exchange.deal import deal_by_cost
from burnish_engine.train.exchange.rank_exchange import RankExchange
from burnish_engine.train.exchange.rank_memory import RankWindows
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_evaluate import EvaluationPasses, mean_loss
from burnish_engine.train.parallel.evaluation_share import (
    ROUND_PASSES,
    evaluate_share,
    evaluation_order,
    share_tensors,
)
from burnish_engine.train.parallel.exchange_choice import choose_exchange
from burnish_engine.train.parallel.link import Message
from burnish_engine.train.parallel.ranks import Ranks
from burnish_engine.train.parallel.replica import state_of, weights_checksum

CHECK_STEPS = 100
"""Steps between two comparisons of the weights on all ranks."""


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
        if exact and ranks.speeds:
            raise UsageError(
                "GPUs of several models cannot train the bits of one (devices.exact): their kernels round differently.",
                "Set devices.exact = false, or name GPUs of one model in devices.gpus.",
            )
        exchange = RankExchange(0, ranks.size, ranks.collectives, exact=exact, agree=ranks.agree, check=ranks.check)
        self._ranks, self._rank_exchange, self._others_plan = ranks, exchange, ""
        self._shares = False  # whether steps are shared now: they are not in a dry run
        self._steps = self._compared = 0
        self._errors: dict[str, torch.Tensor] = {}  # of a checkpoint, until all ranks have them
        self._order, self._loading = replica, False  # whether the others load already
        memory = RankWindows(0, ranks.size, ranks.collectives, partial(ranks.agree, more=True))
        try:
            super().__init__(replace(spec, exchange=exchange, memory=memory if ranks.is_local else None))
        except MEMORY_ERRORS:
            ranks.drop_step()
            raise
        if not self._loading:
            self._load_shared(spec, self.plan)
        ranks.wait()
        self._others_plan = self.facts.memory_plan
        recipe, gradient = spec.recipe, self.model.optimizer.grad
        passes = recipe.train.accumulation / ranks.size
        self._choice = choose_exchange(ranks, gradient, recipe.devices, passes, spec.precision)
        self.notes += self._choice.notes
        if self._choice.measured:
            spec.exchange_timed(self._choice.measured)
        self._use: Message = {"rounded": self._choice.rounded, "speeds": ranks.speeds, "unites": bool(ranks.speeds)}
        exchange.use(self.slice_gradient(self._choice.slices), gradient, **self._use)

    @override
    def _load_shared(self, spec: EngineSpec, plan: MemoryPlan) -> None:
        self._loading = True
        order = {
            "do": "load",
            "plan": plan.model_dump_json(),
            "adapter": str(spec.adapter) if spec.adapter else "",
            "learning_rate": spec.recipe.train.learning_rate,
        }
        self._ranks.begin(self._order | order)

    @override
    def use_plan(self, plan: MemoryPlan) -> None:
        super().use_plan(plan)
        now = self.facts.memory_plan
        if self._others_plan and self._others_plan != now:
            self._ranks.call({"do": "plan", "plan": now})
            self._others_plan = now

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
        order |= {"slices": self._choice.slices, "use": self._use}
        errors, self._errors = self._errors, {}
        self._rank_exchange.restore_errors({name.removeprefix(ERRORS): value for name, value in errors.items()})
        answers = self._ranks.call(order, tensors | errors)
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
    def held_out_loss(self, request: EvaluationRequest) -> tuple[float, int]:
        if not self._shares or not len(request.documents):
            return super().held_out_loss(request)
        passes = self.evaluation_passes(request)
        return mean_loss(torch.cat([*self._evaluate(request, passes, 0, True)], dim=1))

    @override
    def log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> npt.NDArray[np.float32]:
        documents = request.documents
        is_alone = adapter is True and not self._shares  # before the start others' weights are not ours
        if is_alone or not len(documents):
            return super().log_probs(request, adapter)
        each = len(documents[0].sequence_lengths)
        passes = self.evaluation_passes(request)
        order = [row for group in passes.batches.groups for row in group]
        found_NS = np.zeros((len(documents), each), dtype=np.float32)
        found_NS[order] = torch.cat([*self._evaluate(request, passes, each, adapter)]).numpy()
        return found_NS

    def _evaluate(
        self, request: EvaluationRequest, all_passes: EvaluationPasses, each: int, adapter: Path | bool
    ) -> Iterator[torch.Tensor]:
        """Deal an evaluation to the ranks; yield the results of each round of passes; see `evaluate_share`."""
        batches, done, documents = all_passes.batches, 0, request.documents
        for first in range(0, len(batches), ROUND_PASSES * self._ranks.size):
            passes = replace(all_passes, batches=batches[first : first + ROUND_PASSES * self._ranks.size])
            groups = passes.batches.groups
            costs = [pass_cost([len(documents[row]) for row in group]) for group in groups]
            shares = [
                share_tensors(documents, groups, own, by_document=each > 0)
                for own in deal_by_cost(costs, self._ranks.size, self._ranks.speeds)
            ]
            order = evaluation_order(passes, each, adapter)
            self._ranks.begin(order, shares[1:])
            try:
                found = evaluate_share(self, order, shares[0], partial(_count_on, request.progress, done))
            except MEMORY_ERRORS:
                self._ranks.drop_step()
                raise
            self._rank_exchange.add_up(found)
            done += sum(len(group) for group in groups)
            request.progress(done)
            yield found.cpu()

    @override
    def save_adapter(self, folder: Path) -> None:
        self._compare()  # what differs is not worth keeping
        super().save_adapter(folder)

    @override
    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        tensors = super().optimizer_tensors()
        if not (self._shares and self._choice.rounded):
            return tensors | self._errors
        self._ranks.begin({"do": "errors"})
        try:
            found = self._rank_exchange.gather_errors()
        except MEMORY_ERRORS:
            self._ranks.drop_step()
            raise
        return tensors | {f"{ERRORS}{name}": value for name, value in found.items()}

    @override
    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        super().restore_optimizer(tensors)
        self._errors = {name: value for name, value in tensors.items() if name.startswith(ERRORS)}

    def _compare(self) -> None:
        """Compare the weights on all ranks, if any steps were shared since the last time."""
        if self._shares and self._steps > self._compared:
            self._ranks.require_equal(self._checksum(), self._steps)
            self._compared = self._steps

    def _checksum(self) -> int:
        with self._on_stream():
            return weights_checksum(self.model)
