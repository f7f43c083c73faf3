"""Counts the bytes of trained tensors and of their optimizer's state. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from burnish_engine.advise.facts.gguf_size import spec_shapes
from burnish_engine.advise.facts.shape import adapted_everywhere, adapter_parameters, parameters, rank_of
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.families.adapter_targets import StartedSection

_BLOCK = 256
_LEAST_8_BIT = 4096  # numbers; smaller tensors keep fp32 moments
_LEAST_PAGED = 100_000
_FP32_MOMENTS = 8
_EACH = {"adamw": _FP32_MOMENTS, "lion": 4, "schedule_free": _FP32_MOMENTS + 4}
"""Optimizer state, bytes a weight."""
_BUFFERS = {
    "lion": (1, 0), "muon": (1, 0), "adamw8bit": (0, 2), "paged_adamw8bit": (0, 2), "adafactor": (0, 2),
    "schedule_free": (0, 1),
}  # fmt: skip
"""Number of fp32 flat buffers beside the state, and of further ones with masking."""


@dataclass(frozen=True)
class OptimizerBytes:
    """The size of an optimizer's state, by where it lies."""

    device: int  # bytes on the training device
    host: int = 0  # bytes in host memory that the GPU brings in page by page
    largest: int = 0  # bytes of the largest paged tensors that are brought in together

    @property
    def total(self) -> int:
        """The size of the whole state, as a checkpoint holds it."""
        return self.device + self.host


def trained_parameters(spec: DecoderSpec, adapter: AdapterSection) -> int:
    """Count the weights that are trained: the adapter's, or all."""
    return parameters(spec) if adapter.method == "full" else adapter_parameters(spec, adapter)


def optimizer_bytes(spec: DecoderSpec, adapter: AdapterSection, optimizer: str, *, cuda: bool) -> OptimizerBytes:
    """Count the optimizer state of a run on the plain engine; schedule-free training holds the weights once more.

    Args:
        spec: shape of the base model.
        adapter: adapter section of the recipe, which says what is trained.
        optimizer: name of the optimizer, as in the recipe.
        cuda: whether an NVIDIA GPU trains; elsewhere nothing is paged.

    Raises:
        ValueError: The optimizer's state is not known here.
    """
    if optimizer in _EACH:
        return OptimizerBytes(trained_parameters(spec, adapter) * _EACH[optimizer])
    if optimizer in ("muon", "adafactor"):
        return OptimizerBytes(sum(_by_shape(spec, shape, optimizer) for shape in tensor_shapes(spec, adapter)))
    if optimizer not in ("adamw8bit", "paged_adamw8bit"):
        raise ValueError(f"no sizes are known for the state of the optimizer {optimizer!r}")
    paged = cuda and optimizer.startswith("paged_")
    device = host = largest = 0
    for numbers in tensor_sizes(spec, adapter):
        moments = 2 * numbers if numbers >= _LEAST_8_BIT else _FP32_MOMENTS * numbers
        if paged and numbers >= _LEAST_PAGED:
            host += moments
            largest = max(largest, moments)
        else:
            device += moments
        device += 8 * math.ceil(numbers / _BLOCK) if numbers >= _LEAST_8_BIT else 0  # a scale a block and moment
    return OptimizerBytes(device, host, largest)


def exchange_bytes(recipe: Recipe, trained: int) -> int:
    """Count what a GPU holds beside its gradient to add it up with those of others, in the form that the recipe names.

    Whether "auto" rounds gradients is decided when the run begins; it is counted as if it did not.

    Args:
        recipe: recipe of the run.
        trained: number of trained weights.
    """
    devices, gpus = recipe.devices, len(recipe.devices.gpus)
    if devices.strategy != "data_parallel":
        return 0
    if devices.exact:  # its own passes, each apart, and one of another GPU
        return 4 * trained * (-(-recipe.train.accumulation // gpus) + (gpus > 1))
    if devices.exchange == "bf16" and gpus > 1:  # errors of its own and of its part, in fp32; sent and received in bf16
        return 8 * trained + 4 * -(-trained // gpus)
    return 0


def flat_optimizer_bytes(
    spec: DecoderSpec, adapter: AdapterSection, optimizer: str, *, cuda: bool, masked: bool
) -> OptimizerBytes:
    """Count the state of an optimizer on flat buffers, including the copies that a library's step needs.

    Args:
        spec: shape of the model.
        adapter: adapter section of the recipe, which says what is trained.
        optimizer: name of the optimizer, as in the recipe.
        cuda: whether an NVIDIA GPU trains; otherwise the CPU does.
        masked: whether matrices sit out steps (`masking`); 8-bit AdamW and Adafactor then keep the update and a
            momentum too.
    """
    state = optimizer_bytes(spec, adapter, optimizer, cuda=cuda)
    apart = 0
    if optimizer == "muon":  # Muon has no momentum for these tensors, but the flat buffer has room for it
        shapes = tensor_shapes(spec, adapter)
        apart = sum(math.prod(one) for one in shapes if len(one) != 2 or one[0] == spec.vocab_size)
    always, if_masked = _BUFFERS.get(optimizer, (0, 0))
    buffers = always + if_masked * masked
    return replace(state, device=state.device + 4 * (apart + buffers * trained_parameters(spec, adapter)))


def _by_shape(spec: DecoderSpec, shape: tuple[int, ...], optimizer: str) -> int:
    """The size of one tensor's optimizer state, bytes."""
    numbers = math.prod(shape)
    if optimizer == "muon":  # a momentum of each matrix; AdamW for vectors and tables
        return 4 * numbers if len(shape) == 2 and shape[0] != spec.vocab_size else _FP32_MOMENTS * numbers
    return 4 * (numbers // shape[-1] + numbers // shape[-2]) if len(shape) > 1 else 4 * numbers


def tensor_sizes(spec: DecoderSpec, adapter: AdapterSection) -> Iterator[int]:
    """The number of weights in each trained tensor."""
    return (math.prod(shape) for shape in tensor_shapes(spec, adapter))


def tensor_shapes(spec: DecoderSpec, adapter: AdapterSection) -> Iterator[tuple[int, ...]]:
    """The shape of each trained tensor; the experts of a mixture are one tensor."""
    if adapter.method == "full":
        yield from _whole_shapes(spec)
        return
    if isinstance(adapter, StartedSection):
        yield from adapter.shapes
        return
    for matrix in adapted_everywhere(spec, adapter):
        rank = rank_of(spec, matrix, adapter) * matrix.count
        yield rank, matrix.columns
        yield matrix.rows, rank
        if adapter.method == "dora":
            yield (matrix.rows,)


def _whole_shapes(spec: DecoderSpec) -> Iterator[tuple[int, ...]]:
    if spec.weights:
        matrices = [matrix for layer in spec.layers for matrix in layer.matrices]
        shapes: list[tuple[int, ...]] = [(one.count * one.rows, one.columns) for one in (*matrices, *spec.outside)]
    else:
        shapes = [tuple(tensor.shape) for tensor in spec_shapes(spec)]
    yield from shapes
    rest, table = parameters(spec) - sum(math.prod(shape) for shape in shapes), (spec.vocab_size, spec.hidden_size)
    for _ in range(2 if spec.weights else 0):  # embeddings, and the head where it is not tied to them
        if rest >= math.prod(table):
            rest -= math.prod(table)
            yield table
    if rest:
        yield (rest,)
