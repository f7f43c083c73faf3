"""Decides whether products with the frozen weights are computed in 8 bits: as the recipe says, or by timing them here.

The times of a model's stacks on a card are kept with the kernels' tuned choices (`burnish_kernels.tuning`), so that
they are measured once. A resumed run does not come here: it goes on with what its checkpoint says.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from burnish_engine.advise.facts.engine_choice import is_nf4
from burnish_engine.advise.predict.fast_shape import StackShape, stacks
from burnish_engine.contract.recipe.fp8_use import Codes
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.decoder.frozen.fp8_weights import (
    CODES,
    Fp8Scratch,
    Nf4Fp8Weight,
    StoredFp8Weight,
    row_scales,
)
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight, ResidentWeight
from burnish_engine.models.decoder.frozen.parts import WeightPart
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_engine.models.device.device import capability_of, describe
from burnish_engine.models.device.fp8_choice import why_not_fp8
from burnish_engine.models.device.precision import DTYPES
from burnish_engine.train.fast.fast_support import why_not
from burnish_kernels import tuning
from burnish_kernels.fp8_linear.op import quantize_rows
from burnish_kernels.lora_linear.op import Stack, StackedAdapter
from burnish_kernels.nf4 import op as nf4
from burnish_kernels.timer import CudaTimer, Timer

_MOST_TOKENS = 4096  # tokens of a timed product at most; more take as long for each
_GAIN = 0.95  # share of the time that products with a larger error may take to be chosen: clearly faster, no chance
_BY_ERROR: tuple[Codes, ...] = ("int8", "fp8")  # formats of 8 bits, the one with the smaller error first
_MOST_US = 1 << 16  # largest number of a table of tuned choices; what takes longer is timed anew in each run
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProductsChoice:
    """Choice of the number format that products with the frozen weights are computed in.

    Attributes:
        products: "16", "fp8" or "int8".
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
    ways = []
    for codes in _BY_ERROR if recipe.model.quantize != "fp8" else ("fp8",):  # weights in FP8 are not rounded once more
        found = (why_not_fp8(recipe, spec, precision, capability_of(one), codes) for one in _devices(recipe, device))
        if not (reason := next(filter(None, found), "")):
            ways.append(codes)
    if _is_processor(device):
        ways, reason = [], reason or "a processor has no units for them"
    if not ways:
        return ProductsChoice("16", f"Products are not computed in 8 bits: {reason}.")
    storage = "nf4" if is_nf4(recipe, source.config) else recipe.model.quantize
    tokens = min(recipe.train.micro_batch_tokens, _MOST_TOKENS)
    counts = Counter(stack for layer in spec.layers for stack in stacks(spec, recipe.adapter, layer).values())
    try:
        with _on(device):
            times = _Timing(storage, DTYPES[precision], tokens, device).times_ms(counts, ways, make_timer)
    except torch.OutOfMemoryError:
        return ProductsChoice("16", "Products are not computed in 8 bits: there was no memory to time them.")
    chosen = clearly_fastest(times)
    called = {"16": precision} | {codes: codes.upper() for codes in ways}
    listed = ", ".join(f"{taken:.1f} in {called[way]}" for way, taken in times.items())
    result = f"in {called[chosen]}" if chosen != "16" else "not in 8 bits, which is not clearly faster"
    return ProductsChoice(
        chosen,
        f"Products are computed {result}: on {describe(device)} all layers take for {tokens:,} tokens, in "
        f"milliseconds, {listed}.",
    )


def clearly_fastest(times_ms: Mapping[str, float]) -> str:
    """Choose a number format of products: one with a larger error only where it is clearly faster.

    Args:
        times_ms: time of products in each format, the one with the smallest error first.
    """
    chosen = next(iter(times_ms))
    for way, taken in times_ms.items():
        if taken <= _GAIN * times_ms[chosen]:
            chosen = way
    return chosen


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

    def times_ms(
        self, counts: Counter[StackShape], ways: Sequence[Codes], make_timer: Callable[[], Timer]
    ) -> dict[str, float]:
        """Return the time of stacks' products, forward and backward, in 16 bits and in each way, milliseconds.

        Args:
            counts: number of stacks of each shape.
            ways: number formats of 8 bits to time.
            make_timer: same as in `choose_products`.
        """
        timers: list[Timer] = []
        fields: dict[str, Codes | None] = {"sixteen_us": None} | {f"{codes}_us": codes for codes in ways}
        sums, new = dict.fromkeys(("16", *ways), 0.0), dict[str, dict[str, int]]()
        for shape, count in counts.items():
            kind = f"{self.storage}-{str(self.dtype).removeprefix('torch.')}"
            key = f"products-{shape.outputs}x{shape.inputs}-{shape.rank}-{self.tokens}-{kind}"
            known = tuning.choose("fp8_linear", key, dict.fromkeys(fields, 0), device=self.device)
            if not all(known.values()):
                timers = timers or [make_timer()]
                known = new[key] = {name: self._time_us(timers[0], shape, codes) for name, codes in fields.items()}
            for name, codes in fields.items():
                sums[codes or "16"] += count * known[name] / 1000
        if new:
            _keep(new, self.device)
        return sums

    def _time_us(self, timer: Timer, shape: StackShape, codes: Codes | None) -> int:
        """Time one stack's products, forward and backward, microseconds."""
        adapters = (StackedAdapter(0, shape.outputs, shape.rank, 1.0),) if shape.rank else ()
        stack = Stack(shape.outputs, shape.inputs, adapters)
        weight = self._weight(stack, codes)
        x_TE, dy_TE = self._random(self.tokens, stack.K + stack.R), self._random(self.tokens, stack.N + stack.R)

        def run() -> None:
            weight.forward(x_TE, stack)
            weight.input_gradient(dy_TE, stack, wanted=True)

        return max(1, round(1000 * timer(run)))

    def _weight(self, stack: Stack, codes: Codes | None) -> FrozenWeight:
        """Make a random weight, held as a run's would be; without codes for products in 16 bits."""
        matrix = self._random(*stack.buffer_shape)
        if self.storage == "none" and codes is None:
            return ResidentWeight(matrix)
        w_NK, a_RK, sb_NR = matrix[: stack.N, : stack.K], matrix[stack.N :, : stack.K], matrix[: stack.N, stack.K :]
        part: WeightPart
        if self.storage == "nf4":
            part = nf4.quantize(w_NK.contiguous())
        else:
            part = rows = quantize_rows(w_NK, codes=CODES[codes or "fp8"])
        if codes is None:
            return QuantizedWeight([part], a_RK, sb_NR, torch.empty_like(matrix))
        kind = CODES[codes]
        scratch = Fp8Scratch.empty(w_NK.numel(), w_NK.numel(), kind, self.device)
        if self.storage == "nf4":
            return Nf4Fp8Weight(a_RK, sb_NR, scratch, [part], row_scales(part, self.device, kind))
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
