"""The longest row and the biggest pass of a model that fit: a search over plans. Loads no torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from burnish_engine.advise.engine_choice import Config, EngineChoice, choose_engine
from burnish_engine.advise.fit import best_gpu, device_section
from burnish_engine.advise.memory_solver import MARGIN_BYTES, least_bytes
from burnish_engine.advise.plan import choose_target, plan_run
from burnish_engine.advise.planned_memory import host_budget
from burnish_engine.advise.planned_run import Device, FastRun, PlannedRun
from burnish_engine.advise.workload import Pass
from burnish_engine.contract.advice import Plan
from burnish_engine.contract.facts import DatasetFacts, DecoderSpec, LengthStats
from burnish_engine.contract.machine import MachineFacts
from burnish_engine.contract.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.contract.recipe_export import ExportSection
from burnish_engine.contract.recipe_train import AdapterSection, TrainSection
from burnish_engine.contract.what_fits import Limit, Method, Reach

RANK = 16
"""Of the adapters that are asked about."""

_LONGEST_PASS = 2**18  # tokens; beyond it no card gets faster, and a person would rather step more often
_ROW_STEP = 64  # the fast engine's passes are multiples of it
_PRECISE = 0.01  # of the tokens found: predictions err by more
_LESS = (0.97, 0.94, 0.9, 0.8, 0.6, 0.3)  # of what seemed to fit, where the plan says it does not
_JUST_ABOVE = 1.03
_ROWS = 1000  # of the made-up dataset, for each row of a pass
_UNLIMITED = 2**60  # bytes


@dataclass
class PassSearch:
    """Passes of a model: rows of one length, every token learned, some rows held out.

    Looked for is by what the smallest plan of a pass takes, which is quick, since nothing has to be weighed; what is
    answered is then planned as a person's recipe would be.

    Attributes:
        path: What the recipe calls the model.
        spec: Its shape.
        machine: Where it trains. Its disk does not count.
        method: Whether the model's own weights stand in 16 or in 4 bits.
        config: Its config.json, where it is no model of the catalog.
        found: Plans of what was answered.
    """

    path: str
    spec: DecoderSpec
    machine: MachineFacts
    method: Method
    config: Config | None = None
    found: list[Plan] = field(default_factory=list)
    _plans: dict[tuple[int, int, bool], Plan] = field(default_factory=dict)

    def longest_row(self, least: int) -> Reach | None:
        """The longest row that fits, alone in its pass; None where not even a short one does.

        Args:
            least: Tokens of a short one.

        Raises:
            UsageError: The model is not trained in this way.
        """
        most = self.spec.max_context
        if not self.plan(least, 1).fits:
            return None
        seems = most_that_fits(lambda tokens: self.lacking(tokens, 1), least, most, step=_ROW_STEP)
        less = (max(int(seems * share / _ROW_STEP) * _ROW_STEP, least) for share in _LESS)
        tokens = next((tokens for tokens in (seems, *less) if tokens and self.plan(tokens, 1).fits), least)
        above = min(int(tokens * _JUST_ABOVE) + _ROW_STEP, most)
        return self._answer(tokens, 1, "context" if tokens == most else self._limit(above, 1))

    def biggest_pass(self, row: int, near: int) -> Reach | None:
        """The biggest pass that fits; None where not even one row does.

        Args:
            row: Tokens of its rows.
            near: Tokens of the longest row: memory goes by tokens, so it is nearly the answer.

        Raises:
            UsageError: The model is not trained in this way.
        """
        most = _LONGEST_PASS // row
        if not self.plan(row, 1).fits:
            return None
        seems = most_that_fits(lambda rows: self.lacking(row, rows), 1, most, step=1, guess=near // row)
        less = (max(min(int(seems * share), seems - 1), 1) for share in _LESS)
        rows = next((rows for rows in (seems, *less) if rows and self.plan(row, rows).fits), 1)
        return self._answer(row, rows, "search" if rows == most else self._limit(row, int(rows * _JUST_ABOVE) + 1))

    def lacking(self, length: int, rows: int, *, host: bool = True) -> float:
        """What the smallest plan of a pass takes beyond what there is of the card, bytes; 0 or less where it fits.

        Args:
            length: Tokens of a row.
            rows: Rows in the pass.
            host: Whether system memory, which layers may be moved to, is limited.

        Raises:
            UsageError: The model is not trained in this way.
        """
        if not self._engine.fast:
            plan = self._plan(length, rows, recompute=True)
            return plan.memory_bytes - self._room
        tokens = length * rows
        run = FastRun(
            recipe=self._recipe(length, rows),
            spec=self.spec,
            largest=Pass(tokens, tokens, longest=length, span=length),
            cuda=self._device.cuda,
            precision=self._device.precision,
            nf4=self._engine.nf4,
            gpu=self._device.gpu(self.machine),
            cpu_cores=self.machine.cpu_cores,
        )
        movable = self._movable if host or not self._movable else _UNLIMITED
        return least_bytes(run, host_budget_bytes=movable) - self._room

    def plan(self, length: int, rows: int) -> Plan:
        """The plan of a pass as a person's recipe has it: the fastest way that fits.

        The fast engine's plan finds that by itself; the plain engine is told to recompute.

        Args:
            length: Tokens of a row.
            rows: Rows in the pass.

        Raises:
            UsageError: The model is not trained in this way.
        """
        plan = self._plan(length, rows, recompute=False)
        return plan if plan.fits or self._engine.fast else self._plan(length, rows, recompute=True)

    def _plan(self, length: int, rows: int, *, recompute: bool) -> Plan:
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
    def _device(self) -> Device:
        return choose_target(self._recipe(_ROW_STEP, 1), self.machine)

    @functools.cached_property
    def _engine(self) -> EngineChoice:
        gpu = self._device.gpu(self.machine)
        return choose_engine(self._recipe(_ROW_STEP, 1), self.spec, gpu, self._device.precision, self.config)

    @functools.cached_property
    def _room(self) -> int:
        """Bytes of the card that a run may fill."""
        free, _ = card_memory(self.machine)
        return free - MARGIN_BYTES[self._device.cuda]

    @functools.cached_property
    def _movable(self) -> int:
        """Bytes of system memory that layers may keep something in."""
        recipe = self._recipe(_ROW_STEP, 1)
        return host_budget(PlannedRun(recipe, self.spec, self.machine, self._device, self._engine, None))

    def _limit(self, length: int, rows: int) -> Limit:
        """What ends it just below a pass that does not fit."""
        return "system memory" if self._movable and self.lacking(length, rows, host=False) <= 0 else "memory"

    def _answer(self, length: int, rows: int, limited_by: Limit) -> Reach:
        plan = self.plan(length, rows)
        self.found.append(plan)
        return Reach(
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
    """Free and total bytes of what is trained in."""
    gpu = best_gpu(machine)
    if gpu is None or gpu.unified_memory:
        return machine.ram_free_bytes, machine.ram_total_bytes
    return gpu.vram_free_bytes, gpu.vram_total_bytes


def most_that_fits(lacking: Callable[[int], float], least: int, most: int, *, step: int, guess: int = 0) -> int:
    """The largest count that fits, to one percent or a step; 0 where not even the least does.

    Memory goes nearly in a straight line, so that a few looks suffice.

    Args:
        lacking: What a count lacks; 0 or less where it fits.
        least: Where to begin.
        most: Not looked beyond.
        step: Counts between the two are multiples of it.
        guess: What the answer may be.
    """
    if least < guess < most and lacking(guess) <= 0 < lacking(min(guess + max(step, int(guess * _PRECISE)), most)):
        return guess
    above = lacking(most)
    if above <= 0:
        return most
    below = lacking(least)
    if below > 0:
        return 0
    good, bad, looks = least, most, 0
    while bad - good > max(step, good * _PRECISE):
        looks += 1
        line = good + (bad - good) * below / (below - above)
        middle = round((math.sqrt(good * bad) if looks % 3 == 0 else line) / step) * step
        middle = max(good + step, min(bad - step, middle))
        found = lacking(middle)
        if found <= 0:
            good, below = middle, found
        else:
            bad, above = middle, found
    return good


def _rows_of(length: int, rows: int) -> DatasetFacts:
    """A dataset whose rows are all of one length, in full passes, with every token learned."""
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
