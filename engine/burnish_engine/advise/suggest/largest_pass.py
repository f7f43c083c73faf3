"""Searches for the longest row and the largest micro-batch of a model that fit. Loads no torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from burnish_engine.advise.facts.engine_choice import Config, EngineChoice, choose_engine
from burnish_engine.advise.facts.planned_run import PlannedDevice, PlannedRun
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.plan.memory_solver import MARGIN_BYTES, smallest_plan_bytes
from burnish_engine.advise.plan.plan import plan_run, planned_device
from burnish_engine.advise.plan.planned_memory import host_budget
from burnish_engine.advise.plan.recipe_fit import best_gpu, device_section
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.capacity import LargestPass, Limit, Method
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec, LengthStats
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection

RANK = 16
"""Rank of the adapters that the search assumes."""

_LONGEST_PASS = 2**18  # tokens; beyond it no card gets faster, and more frequent steps learn better
_ROW_STEP = 64  # the fast engine's passes are multiples of it
_PRECISE = 0.01  # share of the tokens found; predictions err by more
_LESS = (0.97, 0.94, 0.9, 0.8, 0.6, 0.3)  # shares to try of a size that seemed to fit and whose plan does not
_JUST_ABOVE = 1.03
_ROWS = 1000  # rows of the assumed dataset for each row of a micro-batch
_UNLIMITED = 2**60  # bytes


@dataclass
class PassSearch:
    """Searches the micro-batches of a model that fit: rows of one length, every token supervised, some rows held out.

    The search goes by the smallest memory plan of a micro-batch, which is quick to find. The answer is then planned as
    a person's recipe would be.
    """

    path: str  # name of the model in the recipe
    spec: DecoderSpec  # shape of the model
    machine: MachineFacts  # facts of the machine that trains; disk space does not count
    method: Method  # way of training: "lora" keeps the model's weights in 16 bits, "qlora" in 4
    config: Config | None = None  # config.json of the model; None for a model of the catalog
    found: list[RunPlan] = field(default_factory=list)  # run plans of the answers
    _plans: dict[tuple[int, int, bool], RunPlan] = field(default_factory=dict)

    def longest_row(self, least: int) -> LargestPass | None:
        """Find the longest row that fits, alone in its micro-batch; None where not even a short one does.

        Args:
            least: length of a short row, tokens.

        Raises:
            UsageError: The model cannot be trained in this way.
        """
        most = self.spec.max_context
        if not self.plan(least, 1).fits:
            return None
        seems = most_that_fits(lambda tokens: self.shortfall(tokens, 1), least, most, step=_ROW_STEP)
        less = (max(int(seems * share / _ROW_STEP) * _ROW_STEP, least) for share in _LESS)
        tokens = next((tokens for tokens in (seems, *less) if tokens and self.plan(tokens, 1).fits), least)
        above = min(int(tokens * _JUST_ABOVE) + _ROW_STEP, most)
        return self._answer(tokens, 1, "context" if tokens == most else self._limit(above, 1))

    def biggest_pass(self, row: int, guess: int) -> LargestPass | None:
        """Find the largest micro-batch that fits; None where not even one row does.

        Args:
            row: length of the rows, tokens.
            guess: length of the longest row that fits, tokens; as memory depends on tokens, the answer is near it.

        Raises:
            UsageError: The model cannot be trained in this way.
        """
        most = _LONGEST_PASS // row
        if not self.plan(row, 1).fits:
            return None
        seems = most_that_fits(lambda rows: self.shortfall(row, rows), 1, most, step=1, guess=guess // row)
        less = (max(min(int(seems * share), seems - 1), 1) for share in _LESS)
        rows = next((rows for rows in (seems, *less) if rows and self.plan(row, rows).fits), 1)
        return self._answer(row, rows, "search" if rows == most else self._limit(row, int(rows * _JUST_ABOVE) + 1))

    def shortfall(self, length: int, rows: int, *, host: bool = True) -> float:
        """The bytes that the smallest plan of a micro-batch lacks on the card; 0 or less where it fits.

        Args:
            length: length of a row, tokens.
            rows: number of rows in the micro-batch.
            host: whether system memory, to which layers offload, is limited.

        Raises:
            UsageError: The model cannot be trained in this way.
        """
        if not self._engine.fast:
            plan = self._plan(length, rows, recompute=True)
            return plan.memory_bytes - self._room
        tokens, recipe = length * rows, self._recipe(length, rows)
        run = PlannedRun(recipe, self.spec, self.machine, self._device, self._engine, None)
        fast = run.on_fast_engine(MicroBatchSize(tokens, tokens, longest=length, span=length))
        movable = self._movable if host or not self._movable else _UNLIMITED
        return smallest_plan_bytes(fast, host_budget_bytes=movable) - self._room

    def plan(self, length: int, rows: int) -> RunPlan:
        """Plan a micro-batch as a person's recipe would: the fastest way that fits.

        The fast engine's memory plan finds it; for the plain engine recomputation is tried too.

        Args:
            length: length of a row, tokens.
            rows: number of rows in the micro-batch.

        Raises:
            UsageError: The model cannot be trained in this way.
        """
        plan = self._plan(length, rows, recompute=False)
        return plan if plan.fits or self._engine.fast else self._plan(length, rows, recompute=True)

    def _plan(self, length: int, rows: int, *, recompute: bool) -> RunPlan:
        key = length, rows, recompute
        if key not in self._plans:
            self._plans[key] = plan_run(
                self._recipe(length, rows, recompute=recompute),
                self.spec,
                self.machine.model_copy(update={"disk_free_bytes": _UNLIMITED}),
                dataset=_rows_of(length, rows),
                config=self.config,
            )
        return self._plans[key]

    @functools.cached_property
    def _device(self) -> PlannedDevice:
        return planned_device(self._recipe(_ROW_STEP, 1), self.machine)

    @functools.cached_property
    def _engine(self) -> EngineChoice:
        gpu = self._device.gpu(self.machine)
        return choose_engine(self._recipe(_ROW_STEP, 1), self.spec, gpu, self._device.precision, self.config)

    @functools.cached_property
    def _room(self) -> int:
        """The bytes of the card that a run may fill."""
        free, _ = card_memory(self.machine)
        return free - MARGIN_BYTES[self._device.cuda]

    @functools.cached_property
    def _movable(self) -> int:
        """The bytes of system memory that layers may offload to."""
        return host_budget(self.machine, self._device.gpu(self.machine))

    def _limit(self, length: int, rows: int) -> Limit:
        """Find what limits the size, just below a micro-batch that does not fit."""
        return "system memory" if self._movable and self.shortfall(length, rows, host=False) <= 0 else "memory"

    def _answer(self, length: int, rows: int, limited_by: Limit) -> LargestPass:
        plan = self.plan(length, rows)
        self.found.append(plan)
        return LargestPass(
            tokens=length * rows,
            rows=rows,
            tokens_per_s=plan.tokens_per_s,
            memory_bytes=plan.memory_bytes,
            host_bytes=plan.host_bytes,
            limited_by=limited_by,
        )

    def _recipe(self, length: int, rows: int, *, recompute: bool = False) -> Recipe:
        return Recipe(
            model=ModelSection(path=self.path, quantize="nf4" if self.method == "qlora" else "none"),
            data=DataSection(max_length=length, learn="everything"),
            adapter=AdapterSection(rank=RANK, alpha=2.0 * RANK),
            train=TrainSection(micro_batch_tokens=length * rows, recompute=recompute, pack=rows > 1),
            export=ExportSection(quants=[]),
            devices=device_section(self.machine),
        )


def card_memory(machine: MachineFacts) -> tuple[int, int]:
    """The free and total bytes of the memory that training uses."""
    gpu = best_gpu(machine)
    if gpu is None or gpu.unified_memory:
        return machine.ram_free_bytes, machine.ram_total_bytes
    return gpu.vram_free_bytes, gpu.vram_total_bytes


def most_that_fits(shortfall: Callable[[int], float], least: int, most: int, *, step: int, guess: int = 0) -> int:
    """Find the largest count that fits, to one percent or a step; 0 where not even the least does.

    Memory is almost linear in the count, so that a few trials suffice.

    Args:
        shortfall: function from a count to the bytes that it lacks; 0 or less where it fits.
        least: smallest count to try.
        most: largest count to try.
        step: step between counts; counts between the two are multiples of it.
        guess: first count to try; 0: none.
    """
    if least < guess < most and shortfall(guess) <= 0 < shortfall(min(guess + max(step, int(guess * _PRECISE)), most)):
        return guess
    above = shortfall(most)
    if above <= 0:
        return most
    below = shortfall(least)
    if below > 0:
        return 0
    good, bad, looks = least, most, 0
    while bad - good > max(step, good * _PRECISE):
        looks += 1
        line = good + (bad - good) * below / (below - above)
        middle = round((math.sqrt(good * bad) if looks % 3 == 0 else line) / step) * step
        middle = max(good + step, min(bad - step, middle))
        found = shortfall(middle)
        if found <= 0:
            good, below = middle, found
        else:
            bad, above = middle, found
    return good


def _rows_of(length: int, rows: int) -> DatasetFacts:
    """Facts of an assumed dataset: rows of one length, in full micro-batches, with every token supervised."""
    train = _ROWS * rows
    return DatasetFacts(
        files=[],
        format="jsonl",
        shape="text",
        columns=["text"],
        rows=train + rows,
        train_rows=train,
        validation_rows=rows,
        tokens=(train + rows) * length,
        supervised_tokens=(train + rows) * length,
        lengths=LengthStats(mean=length, median=length, p95=length, longest=length, histogram=[]),
        micro_batches=_ROWS,
        fill=1.0,
        most_supervised=length * rows,
    )
