"""Decides whether products with the frozen weights are computed in FP8: as the recipe says, or by timing them here.

The times of a model's stacks on a card are kept with the kernels' tuned choices (`burnish_kernels.tuning`), so that
they are measured once. A resumed run does not come here: it goes on with what its checkpoint says.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from burnish_engine.advise.facts.engine_choice import is_nf4
from burnish_engine.advise.predict.fast_shape import StackShape, stacks
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.decoder.frozen.fp8_weights import Fp8Scratch, Nf4Fp8Weight, StoredFp8Weight, row_scales
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight, ResidentWeight
from burnish_engine.models.decoder.frozen.parts import WeightPart
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_engine.models.device.device import capability_of, describe
from burnish_engine.models.device.fp8_choice import why_not_fp8
from burnish_engine.models.device.precision import DTYPES
from burnish_engine.train.fast.fast_support import why_not
from burnish_kernels import tuning
from burnish_kernels.fp8_linear.op import CODES, quantize_rows
from burnish_kernels.lora_linear.op import Stack, StackedAdapter
from burnish_kernels.nf4 import op as nf4
from burnish_kernels.timer import CudaTimer, Timer

_MOST_TOKENS = 4096  # tokens of a timed product at most; more take as long for each
_GAIN = 0.95  # share of the time in 16 bits that products in FP8 may take to be chosen: clearly faster, not by chance
_MOST_US = 1 << 16  # largest number of a table of tuned choices; what takes longer is timed anew in each run
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProductsChoice:
    """Choice of the number format that products with the frozen weights are computed in.

    Attributes:
        products: "16" or "fp8".
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
    found = (why_not_fp8(recipe, spec, precision, capability_of(one)) for one in _devices(recipe, device))
    reason = next(filter(None, found), "")
    if _is_processor(device):
        reason = reason or "a processor has no units for FP8"
    if reason:
        return ProductsChoice("16", f"Products are not computed in FP8: {reason}.")
    storage = "nf4" if is_nf4(recipe, source.config) else recipe.model.quantize
    tokens = min(recipe.train.micro_batch_tokens, _MOST_TOKENS)
    counts = Counter(stack for layer in spec.layers for stack in stacks(spec, recipe.adapter, layer).values())
    try:
        with _on(device):
            sixteen, eight = _Timing(storage, DTYPES[precision], tokens, device).times_ms(counts, make_timer)
    except torch.OutOfMemoryError:
        return ProductsChoice("16", "Products are not computed in FP8: there was no memory to time them.")
    taken = f"for {tokens:,} tokens through all layers they take {eight:.1f} ms on {describe(device)}, in {precision} "
    if eight <= _GAIN * sixteen:
        return ProductsChoice("fp8", f"Products are computed in FP8: {taken}{sixteen:.1f}.")
    return ProductsChoice("16", f"Products are not computed in FP8, which is not clearly faster: {taken}{sixteen:.1f}.")


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
class _Timing:
    """Conditions of a timing.

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

    def times_ms(self, counts: Counter[StackShape], make_timer: Callable[[], Timer]) -> tuple[float, float]:
        """Return the time of stacks' products, forward and backward, in 16 bits and in FP8, milliseconds.

        Args:
            counts: number of stacks of each shape.
            make_timer: same as in `choose_products`.
        """
        timers: list[Timer] = []
        sums, new = [0.0, 0.0], dict[str, dict[str, int]]()
        for shape, count in counts.items():
            kind = f"{self.storage}-{str(self.dtype).removeprefix('torch.')}"
            key = f"products-{shape.outputs}x{shape.inputs}-{shape.rank}-{self.tokens}-{kind}"
            known = tuning.choose("fp8_linear", key, {"sixteen_us": 0, "eight_us": 0}, device=self.device)
            if not all(known.values()):
                timers = timers or [make_timer()]
                pair = [self._time_us(timers[0], shape, fp8=fp8) for fp8 in (False, True)]
                known = new[key] = dict(zip(known, pair, strict=True))
            for way, taken in enumerate(known.values()):
                sums[way] += count * taken / 1000
        if new:
            _keep(new, self.device)
        return sums[0], sums[1]

    def _time_us(self, timer: Timer, shape: StackShape, *, fp8: bool) -> int:
        """Time one stack's products, forward and backward, microseconds."""
        adapters = (StackedAdapter(0, shape.outputs, shape.rank, 1.0),) if shape.rank else ()
        stack = Stack(shape.outputs, shape.inputs, adapters)
        weight = self._weight(stack, fp8=fp8)
        x_TE, dy_TE = self._random(self.tokens, stack.K + stack.R), self._random(self.tokens, stack.N + stack.R)

        def run() -> None:
            weight.forward(x_TE, stack)
            weight.input_gradient(dy_TE, stack, wanted=True)

        return max(1, round(1000 * timer(run)))

    def _weight(self, stack: Stack, *, fp8: bool) -> FrozenWeight:
        """Make a random weight, held as a run's would be."""
        matrix = self._random(*stack.buffer_shape)
        if self.storage == "none" and not fp8:
            return ResidentWeight(matrix)
        w_NK, a_RK, sb_NR = matrix[: stack.N, : stack.K], matrix[stack.N :, : stack.K], matrix[: stack.N, stack.K :]
        part: WeightPart
        if self.storage == "nf4":
            part = nf4.quantize(w_NK.contiguous())
        else:
            part = rows = quantize_rows(w_NK)
        if not fp8:
            return QuantizedWeight([part], a_RK, sb_NR, torch.empty_like(matrix))
        scratch = Fp8Scratch(*(torch.empty(w_NK.numel(), dtype=CODES, device=self.device) for _ in range(2)))
        if self.storage == "nf4":
            return Nf4Fp8Weight(a_RK, sb_NR, scratch, [part], row_scales(part, self.device))
        return StoredFp8Weight(a_RK, sb_NR, scratch, rows)

    def _random(self, *shape: int) -> torch.Tensor:
        drawn = torch.Generator(self.device).manual_seed(0)  # the run's own generators stay as they are
        return torch.randn(shape, generator=drawn, device=self.device, dtype=self.dtype)


def _keep(found: dict[str, dict[str, int]], device: torch.device) -> None:
    """Save times for later runs; without a folder for them, or room in it, they are measured again."""
    card = tuning.device_of(device)
    short = {key: times for key, times in found.items() if max(times.values()) <= _MOST_US}
    if card is None or not short:
        return
    try:
        tuning.save("fp8_linear", short, card)
    except (ValueError, OSError) as problem:
        _log.info("The times of products are not kept: %s", problem)
