"""Decides whether products with the frozen weights are computed in 8 bits: as the recipe says, or by timing them here.

The times of a model's stacks on a card are kept with the kernels' tuned choices (`burnish_kernels.tuning`), so that
they are measured once. A resumed run does not come here: it continues with what its checkpoint says.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from burnish_engine.advise.facts.engine_choice import keeps_packed
from burnish_engine.advise.facts.planned_run import FastRun, PlannedDevice
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.fast_shape import StackShape, stacks
from burnish_engine.advise.predict.products_share import products_share
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.eight_bit_use import TIMED_BY_AUTO
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.hardware.probe import probe
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.decoder.frozen.code_formats import CODE_FORMATS
from burnish_engine.models.decoder.frozen.coded_weights import CodeScratch, Nf4CodedWeight, StoredCodedWeight
from burnish_engine.models.decoder.frozen.format_choice import why_not_eight
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight, ResidentWeight
from burnish_engine.models.decoder.frozen.parts import CODED, WeightPart
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_engine.models.device.device import capability_of, describe
from burnish_engine.models.device.precision import DTYPES
from burnish_engine.train.fast.fast_support import why_not
from burnish_kernels import tuning
from burnish_kernels.lora_linear.op import Stack, StackedAdapter
from burnish_kernels.nf4 import op as nf4
from burnish_kernels.timer import CudaTimer, Timer

_MOST_TOKENS = 4096  # tokens of a timed product at most; more take as long for each
_GAIN = 0.95  # share of a step's time that one with a larger error may take to be chosen: clearly faster, no chance
_MOST_US = 1 << 16  # largest number of a table of tuned choices; what takes longer is timed anew in each run
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProductsChoice:
    """Choice of the number format that products with the frozen weights are computed in.

    Attributes:
        products: "16", or one of `EIGHT_BITS`.
        reason: reason, as a sentence; empty where the recipe says so.
    """

    products: str
    reason: str = ""


def choose_products(
    recipe: Recipe,
    source: ModelSource,
    device: torch.device,
    precision: str,
    make_timer: Callable[[], Timer] = CudaTimer,
) -> ProductsChoice:
    """Decide for a run that begins. What the recipe asks for is not checked here; the engine refuses it.

    Args:
        recipe: recipe of the run.
        source: base model.
        device: device to train on.
        precision: precision of the base model's computation.
        make_timer: function that makes what times products on the device, called where times are missing.
    """
    asked, spec = recipe.train.products, source.spec
    if asked != "auto":
        return ProductsChoice(asked)
    if recipe.train.engine == "plain" or spec is None or why_not(source, recipe, device):
        return ProductsChoice("16", "The plain engine computes all products in 16 bits or fp32.")
    if spec.num_experts:  # what 8 bits cost a mixture in loss was not measured
        return ProductsChoice("16", "Products of a mixture of experts are computed in 8 bits only by name.")
    capabilities = [capability_of(one) for one in _devices(recipe, device)]
    formats = ("fp8",) if recipe.model.quantize == "fp8" else TIMED_BY_AUTO  # FP8 is not rounded once more
    reasons = {
        name: next(filter(None, (why_not_eight(name, recipe, spec, precision, one) for one in capabilities)), "")
        for name in formats
    }
    if _is_processor(device):
        reasons = {name: reason or "a processor has no units for it" for name, reason in reasons.items()}
    possible = [name for name, reason in reasons.items() if not reason]
    if not possible:
        return ProductsChoice("16", f"Products are not computed in 8 bits: {reasons[formats[0]]}.")
    storage = "nf4" if keeps_packed(recipe, source.config) else recipe.model.quantize
    tokens = min(recipe.train.micro_batch_tokens, _MOST_TOKENS)
    counts = stack_counts(spec, recipe.adapter)
    try:
        with _on(device):
            times = ProductTiming(storage, DTYPES[precision], tokens, device).times_ms(
                ["16", *possible], counts, make_timer
            )
    except torch.OutOfMemoryError:
        return ProductsChoice("16", "Products are not computed in 8 bits: there was no memory to time them.")
    share = products_share(_one_step(recipe, spec, device, precision, tokens, nf4=storage == "nf4"))
    chosen = clearly_fastest(times, share)
    called = {"16": precision} | {name: name.upper() for name in possible}
    listed = ", ".join(f"{taken:.1f} in {called[name]}" for name, taken in times.items())
    result = f"in {called[chosen]}" if chosen != "16" else "not in 8 bits, which is not clearly faster"
    return ProductsChoice(
        chosen,
        f"Products are computed {result}: on {describe(device)} those of all layers take for {tokens:,} tokens, in "
        f"milliseconds, {listed}; they are about {share:.0%} of a step.",
    )


def stack_counts(spec: DecoderSpec, adapter: AdapterSection) -> Counter[StackShape]:
    """Count the stacks of each shape in a model.

    Args:
        spec: shape of the model.
        adapter: adapter of the run.
    """
    return Counter(stack for layer in spec.layers for stack in stacks(spec, adapter, layer).values())


def clearly_fastest(times_ms: Mapping[str, float], share: float = 1.0) -> str:
    """Choose a number format of products: one with a larger error only where a step is clearly faster with it.

    Args:
        times_ms: time of products in each format, the one with the smallest error, 16 bits, first.
        share: share of a step that products in this first format take, 0 to 1.
    """
    chosen, *_ = times_ms
    steps = {name: 1 - share + share * taken / times_ms[chosen] for name, taken in times_ms.items()}
    for name, taken in steps.items():
        if taken <= _GAIN * steps[chosen]:
            chosen = name
    return chosen


def _one_step(
    recipe: Recipe, spec: DecoderSpec, device: torch.device, precision: str, tokens: int, *, nf4: bool
) -> FastRun:
    """Describe a step of the run in 16 bits, of rows half as long as the longest."""
    cuda, machine = device.type == "cuda", probe()
    size = MicroBatchSize(tokens, tokens, bucket=tokens, span=min(tokens, recipe.data.max_length) / 2)
    gpu = PlannedDevice(cuda, device.index or 0, precision).gpu(machine)
    return FastRun(
        recipe, spec, size, cuda=cuda, precision=precision, nf4=nf4, gpu=gpu, cpu_cores=machine.cpu_cores
    )  # fmt: skip


def _devices(recipe: Recipe, device: torch.device) -> list[torch.device]:
    """List the devices that share the steps, as far as this machine has them: all have to multiply alike."""
    if device.type != "cuda" or not recipe.devices.shares:
        return [device]
    others = {index for index in recipe.devices.gpus if index < torch.cuda.device_count()} - {device.index}
    return [device, *(torch.device("cuda", index) for index in sorted(others))]


@contextmanager
def _on(device: torch.device) -> Iterator[None]:
    """Make the device the current one; free afterwards what was allocated inside, and forget its peak."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        try:
            yield
        finally:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def _is_processor(device: torch.device) -> bool:
    return device.type == "cpu"


@dataclass(frozen=True)
class ProductTiming:
    """Times a model's products with its frozen weights, under one set of conditions.

    Attributes:
        storage: value of model.quantize, or "nf4" where the checkpoint is so.
        dtype: dtype of the operands.
        tokens: tokens of a product.
        device: device that is timed.
    """

    storage: str
    dtype: torch.dtype
    tokens: int
    device: torch.device

    def times_ms(
        self, formats: Sequence[str], counts: Counter[StackShape], make_timer: Callable[[], Timer]
    ) -> dict[str, float]:
        """Return the time of all stacks' products, forward and backward, by format, milliseconds.

        Args:
            formats: "16" and some of `EIGHT_BITS`.
            counts: number of stacks of each shape.
            make_timer: same as in `choose_products`.
        """
        timers: list[Timer] = []
        sums = dict.fromkeys(formats, 0.0)
        new: dict[str, dict[str, dict[str, int]]] = {_operation(name): {} for name in formats}
        for shape, count in counts.items():
            kind = f"{self.storage}-{str(self.dtype).removeprefix('torch.')}"
            for name in formats:
                key = f"products-{name}-{shape.outputs}x{shape.inputs}-{shape.rank}-{self.tokens}-{kind}"
                known = tuning.choose(_operation(name), key, {"us": 0}, device=self.device)
                if not known["us"]:
                    timers = timers or [make_timer()]
                    known = new[_operation(name)][key] = {"us": self._time_us(timers[0], shape, name)}
                sums[name] += count * known["us"] / 1000
        for operation, found in new.items():
            _keep(operation, found, self.device)
        return sums

    def _time_us(self, timer: Timer, shape: StackShape, name: str) -> int:
        """Time one stack's products in a format, forward and backward, microseconds."""
        adapters = (StackedAdapter(0, shape.outputs, shape.rank, 1.0),) if shape.rank else ()
        stack = Stack(shape.outputs, shape.inputs, adapters)
        weight = self._weight(stack, name)
        x_TE, dy_TE = self._random(self.tokens, stack.K + stack.R), self._random(self.tokens, stack.N + stack.R)

        def run() -> None:
            weight.forward(x_TE, stack)
            weight.input_gradient(dy_TE, stack, wanted=True)

        return max(1, round(1000 * timer(run)))

    def _weight(self, stack: Stack, name: str) -> FrozenWeight:
        """Make a random weight, held as a run's would be."""
        matrix = self._random(*stack.buffer_shape)
        if self.storage == "none" and name == "16":
            return ResidentWeight(matrix)
        w_NK, a_RK, sb_NR = matrix[: stack.N, : stack.K], matrix[stack.N :, : stack.K], matrix[: stack.N, stack.K :]
        form = CODE_FORMATS["fp8" if name == "16" else name]
        part: WeightPart = nf4.quantize(w_NK.contiguous()) if self.storage == "nf4" else form.quantize(w_NK)
        if name == "16":
            return QuantizedWeight([part], a_RK, sb_NR, torch.empty_like(matrix))
        scratch = CodeScratch(*(torch.empty(w_NK.numel(), dtype=form.dtype, device=self.device) for _ in range(2)))
        if self.storage == "nf4":
            return Nf4CodedWeight(form, a_RK, sb_NR, scratch, [part], form.scales([part], self.device))
        assert isinstance(part, CODED)
        return StoredCodedWeight(form, a_RK, sb_NR, scratch, part)

    def _random(self, *shape: int) -> torch.Tensor:
        drawn = torch.Generator(self.device).manual_seed(0)  # the run's own generators stay as they are
        return torch.randn(shape, generator=drawn, device=self.device, dtype=self.dtype)


def _operation(name: str) -> str:
    """Return the operation of the kernels whose code a format's times depend on most."""
    return {"16": "lora_linear", "mxfp8": "mxfp8_linear"}.get(name, "eight_bit_linear")


def _keep(operation: str, found: dict[str, dict[str, int]], device: torch.device) -> None:
    """Save times for later runs; without a folder for them, or room in it, they are measured again."""
    card = tuning.device_of(device)
    short = {key: times for key, times in found.items() if times["us"] <= _MOST_US}
    if card is None or not short:
        return
    try:
        tuning.save(operation, short, card)
    except (ValueError, OSError) as problem:
        _log.info("The times of products are not kept: %s", problem)
