"""Fits a recipe to a device: row length and tokens a micro-batch. Loads no torch.

The fast engine's memory plan makes the most of the memory for any micro-batch; the plain engine recomputes or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from burnish_engine.advise.facts.engine_choice import Config, choose_engine, keeps_packed
from burnish_engine.advise.facts.shape import frozen_bytes
from burnish_engine.advise.facts.workload import (
    planned_facts,
    rounded_length,
    sequence_lengths,
    wanted_length,
    workload,
)
from burnish_engine.advise.plan.plan import plan_run, planned_device
from burnish_engine.advise.plan.planned_memory import host_budget
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.models.decoder.frozen.format_choice import eight_bit_use

COMFORTABLE_SHARE = 0.9
"""Share of the free memory that a suggested run of the plain engine may take; the rest is for the predictions' error
and
for other programs. The fast engine's plans leave a margin of their own."""

_BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
_SHORTEST_ROWS = 256  # rows are not cut below this to make a model fit


@dataclass(frozen=True)
class RecipeFit:
    """A recipe fitted to a device: the micro-batches chosen for a model."""

    recipe: Recipe  # recipe with these micro-batches, without exports, which take no part in the fit
    plan: RunPlan  # run plan of this recipe
    comfortable: bool  # whether memory is left over
    length_share: float
    """Row length divided by the one that the data asks for, 0 to 1; less than 1 where memory or the model's context
    does not allow more."""


def best_gpu(machine: MachineFacts) -> GpuFacts | None:
    """Choose the GPU to train on: the one with the most free memory; None for the CPU."""
    return max(machine.gpus, key=lambda gpu: (_free_bytes(gpu, machine), -gpu.index), default=None)


def device_section(machine: MachineFacts) -> DevicesSection:
    """The recipe's device section for this machine."""
    gpu = best_gpu(machine)
    if gpu is None:
        return DevicesSection(kind="cpu" if machine.gpu_problem else "auto")
    return DevicesSection(gpus=[gpu.index])


def best_precision(machine: MachineFacts) -> str:
    """The precision for this machine: bf16 where the device computes it fast, else fp32."""
    return planned_device(Recipe(devices=device_section(machine)), machine).precision


def fit_recipe(
    recipe: Recipe,
    spec: DecoderSpec,
    machine: MachineFacts,
    dataset: DatasetFacts | None,
    *,
    most_tokens: int,
    config: Config | None = None,
) -> RecipeFit | None:
    """Choose the fastest micro-batches that fit; whole rows come before speed, and rows are cut as the last resort.

    Args:
        recipe: everything but the micro-batches; `data.max_length` is the row length wanted.
        spec: shape of the model.
        machine: facts of the machine that trains.
        dataset: facts of the training data.
        most_tokens: most tokens of a micro-batch that are of use.
        config: config.json of the model; None where the model is not on this machine.

    Returns:
        The fit; None where not even the smallest micro-batch fits.
    """
    if not _weights_fit(recipe, spec, machine, config):
        return None
    search = _FitSearch(recipe, spec, machine, dataset, config)
    tight: RecipeFit | None = None
    for length in _lengths(recipe.data.max_length):
        for recompute in (False,) if search.fast else (False, True):
            fitting = search.fitting(length, most_tokens, recompute=recompute)
            comfortable = [fit for fit in fitting if fit.comfortable]
            if comfortable:
                return search.cover_longest(max(comfortable, key=lambda fit: fit.plan.tokens_per_s))
            tight = tight or next(iter(fitting), None)
        if tight:
            return tight
    return None


def smallest_fit(
    recipe: Recipe,
    spec: DecoderSpec,
    machine: MachineFacts,
    dataset: DatasetFacts | None,
    config: Config | None = None,
) -> RecipeFit:
    """Choose the smallest micro-batches, whether they fit or not."""
    length = min(recipe.data.max_length, _SHORTEST_ROWS)
    search = _FitSearch(recipe, spec, machine, dataset, config)
    return search.with_passes(length, length * recipe.preference.sequences, recompute=not search.fast)


@dataclass(frozen=True)
class _FitSearch:
    recipe: Recipe
    spec: DecoderSpec
    machine: MachineFacts
    dataset: DatasetFacts | None
    config: Config | None

    @cached_property
    def fast(self) -> bool:
        """Whether the fast engine would train the run."""
        device = planned_device(self.recipe, self.machine)
        gpu = device.gpu(self.machine)
        return choose_engine(self.recipe, self.spec, gpu, device.precision, self.config).fast

    def fitting(self, length: int, most_tokens: int, *, recompute: bool) -> list[RecipeFit]:
        """List the fits of a row length, one a token budget."""
        found = []
        row = length * self.recipe.preference.sequences
        for budget in _budgets(row, most_tokens):
            fit = self.with_passes(length, budget, recompute=recompute)
            if not fit.plan.fits:
                break  # larger ones do not fit either
            found.append(fit)
        if not found and row not in _BUDGETS:
            fit = self.with_passes(length, row, recompute=recompute)
            return [fit] if fit.plan.fits else []
        return found

    def cover_longest(self, fit: RecipeFit) -> RecipeFit:
        """Raise a fit's row length so that no row is cut, where the longest row fits into the micro-batch anyway."""
        lengths = sequence_lengths(self.dataset)
        if lengths is None:
            return fit
        train = fit.recipe.train
        longest = rounded_length(lengths.longest)
        room = train.micro_batch_tokens // fit.recipe.preference.sequences
        if not fit.recipe.data.max_length < longest <= min(room, self.spec.max_context):
            return fit
        covering = self.with_passes(longest, train.micro_batch_tokens, recompute=train.recompute)
        return covering if covering.plan.fits and covering.comfortable else fit

    def with_passes(self, length: int, budget: int, *, recompute: bool) -> RecipeFit:
        """Plan the run with a row length and a token budget."""
        train = {"micro_batch_tokens": budget, "recompute": recompute}
        tried = self.recipe.model_copy(
            update={
                "data": self.recipe.data.model_copy(update={"max_length": length}),
                "train": self.recipe.train.model_copy(update=train),
                "export": ExportSection(quants=[]),
            }
        )
        facts = facts_for_recipe(tried, self.dataset)
        plan = plan_run(tried, self.spec, self.machine, dataset=facts, config=self.config, quick=True)
        room = plan.memory_budget_bytes or COMFORTABLE_SHARE * plan.memory_free_bytes
        comfortable = plan.memory_bytes <= room
        return RecipeFit(tried, plan, comfortable, length_share=min(1.0, length / wanted_length(self.dataset, None)))


def facts_for_recipe(recipe: Recipe, dataset: DatasetFacts | None) -> DatasetFacts | None:
    """Change a dataset's facts to what `inspect` would find with this recipe's row length and token budget."""
    if dataset is None:
        return None
    work = workload(dataset, recipe.data.max_length, recipe.data.overlong)
    return planned_facts(dataset, work, recipe.train.micro_batch_tokens)


def _weights_fit(recipe: Recipe, spec: DecoderSpec, machine: MachineFacts, config: Config | None) -> bool:
    """Whether the base weights alone find room, also in host memory; spares the search for models far too large."""
    gpu = best_gpu(machine)
    free = _free_bytes(gpu, machine) if gpu else machine.ram_free_bytes
    precision = "bf16" if recipe.train.precision == "auto" else recipe.train.precision
    room = free + host_budget(machine, gpu)  # weights may be in host memory
    nf4 = keeps_packed(recipe, config)
    stored = eight_bit_use(recipe, recipe.train.products, nf4=nf4).stored
    return frozen_bytes(spec, precision, nf4=nf4, fast=True, eight_bits=bool(stored)) < room


def _lengths(wanted: int) -> Iterator[int]:
    """List the row length wanted, then ever shorter ones."""
    yield wanted
    length = 1 << (wanted - 1).bit_length() - 1
    while length >= _SHORTEST_ROWS:
        if length < wanted:
            yield length
        length //= 2


def _budgets(length: int, most_tokens: int) -> list[int]:
    """List the token budgets that hold a row and are of use, smallest first."""
    return [budget for budget in _BUDGETS if length <= budget <= max(most_tokens, length)] or [length]


def _free_bytes(gpu: GpuFacts, machine: MachineFacts) -> int:
    return machine.ram_free_bytes if gpu.unified_memory else gpu.vram_free_bytes
