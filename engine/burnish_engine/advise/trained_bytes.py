"""Bytes of what is trained and of its optimizer's state. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from burnish_engine.advise.gguf_size import spec_shapes
from burnish_engine.advise.shape import adapted, adapter_parameters, parameters
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.recipe import AdapterSection

_BLOCK = 256
_LEAST_8_BIT = 4096  # numbers; smaller tensors keep fp32 moments
_LEAST_PAGED = 100_000
_FP32_MOMENTS = 8


@dataclass(frozen=True)
class OptimizerBytes:
    """Where an optimizer's state lies.

    Attributes:
        device: Bytes on the training device.
        host: Bytes that the GPU brings in page by page; they need not be on it.
        largest: Bytes of the largest paged tensors that are brought in together.
    """

    device: int
    host: int = 0
    largest: int = 0

    @property
    def total(self) -> int:
        """All of it, as a checkpoint holds it."""
        return self.device + self.host


def trained_parameters(spec: DecoderSpec, adapter: AdapterSection) -> int:
    """How many weights are trained: the adapter's, or all."""
    return parameters(spec) if adapter.method == "full" else adapter_parameters(spec, adapter)


def optimizer_bytes(spec: DecoderSpec, adapter: AdapterSection, optimizer: str, *, cuda: bool) -> OptimizerBytes:
    """The state of a plain run's optimizer.

    Args:
        spec: The base model's shape.
        adapter: What is trained.
        optimizer: As the recipe names it.
        cuda: An NVIDIA GPU; elsewhere nothing is paged.
    """
    if optimizer == "adamw":
        return OptimizerBytes(trained_parameters(spec, adapter) * _FP32_MOMENTS)
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


def tensor_sizes(spec: DecoderSpec, adapter: AdapterSection) -> Iterator[int]:
    """Numbers in each tensor that is trained."""
    if adapter.method == "full":
        sizes = [math.prod(tensor.shape) for tensor in spec_shapes(spec)]
        yield from sizes
        experts = parameters(spec) - sum(sizes)
        if experts:
            yield experts
        return
    for layer in spec.layers:
        for columns, rows in adapted(spec, layer, adapter).values():
            yield adapter.rank * columns
            yield adapter.rank * rows
            if adapter.method == "dora":
                yield rows
