"""Predicts the memory peak of a run on the plain engine that trains every weight. Loads no torch.

While the backward pass goes down the layers, saved activations are freed and gradients appear, layer by layer. So the
peak is at the top of the layers, at the bottom, or while the optimizer works.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.advise.facts.shape import BYTES_OF, embedding_parameters, parameters
from burnish_engine.advise.facts.trained_bytes import (
    OptimizerBytes,
    flat_optimizer_bytes,
    optimizer_bytes,
    tensor_sizes,
)
from burnish_engine.contract.facts.advice import MemoryPart
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection

_CPU_8_BIT_SCRATCH = 20  # bytes a weight of the current tensor: moments, gradient, and the divisor twice, in fp32
_OPTIMIZERS = {
    "adamw": "AdamW, two moments, fp32",
    "adamw8bit": "AdamW, two moments, 8 bits",
    "paged_adamw8bit": "AdamW, two moments, 8 bits",
    "muon": "Muon, one momentum, fp32",
    "lion": "Lion, one momentum, fp32",
    "adafactor": "Adafactor, mean squares of rows and columns",
    "schedule_free": "schedule-free AdamW, fp32",
}


@dataclass(frozen=True)
class PassMemory:
    """The memory of one micro-batch, bytes."""

    kept: int  # bytes that autograd saves of the whole forward pass
    head: int  # peak of head and loss
    layer_peak: int  # bytes beside these in a layer's backward pass
    layer_kept: int  # bytes that autograd saves of one layer; 0 where it is recomputed and so counted in `layer_peak`


GATHERED_SHARE = 0.25
"""Share of a GPU's free memory up to which the gathered weights of a model that is shared out stay from the forward to
the backward pass."""
# Measured beside torch's allocator: tests/bench/LOG.md, 2026-11-27.
_CONTEXT_BYTES = 1310 << 20  # 1.2 GiB on H100, 1.34 on H200
_LATER_BYTES = 640 << 20  # 0.74 GiB come after a run's limit is set, of which `cap_memory` counts 128 MiB for every run
_NCCL_BYTES = 860 << 20  # 0.84 GiB more than on one GPU, on two and four H100; there before the limit is set
_GATHERED_LAYERS = 2  # one at work, and the next one
_SHARED_OUT = ("gradients", "optimizer")
_MOVING = "at the start: the weights once more, while they move into one buffer"


@dataclass(frozen=True)
class _Peak:
    gradients: int
    activations: int
    name: str
    work: int
    note: str = ""

    def bytes_on(self, gpus: int) -> int:
        """Count the bytes on each of so many GPUs that share out the gradients."""
        return self.gradients // gpus + self.activations + self.work


def whole_model_parts(
    recipe: Recipe, spec: DecoderSpec, pass_memory: PassMemory, *, cuda: bool, precision: str
) -> list[MemoryPart]:
    """List the components of the peak beside the weights in the compute precision.

    Args:
        recipe: recipe of the run.
        spec: shape of the model.
        pass_memory: memory of the largest micro-batch.
        cuda: whether an NVIDIA GPU trains; otherwise the CPU does.
        precision: precision of the model's computation, "fp32" or "bf16".
    """
    weights, width = parameters(spec), BYTES_OF[precision]
    what = (spec, recipe.adapter, recipe.train.optimizer)
    if not recipe.masking.is_active:
        state = optimizer_bytes(*what, cuda=cuda)
    else:
        state = flat_optimizer_bytes(*what, cuda=cuda, masked=True)
    parts = []
    if precision != "fp32":
        parts.append(MemoryPart(name="master weights", bytes=weights * 4, note="fp32, which the optimizer changes"))
    devices = recipe.devices
    gpus = len(devices.gpus) if devices.strategy == "sharded" else 1
    worst = max(_peaks(recipe, spec, pass_memory, width, cuda=cuda), key=lambda peak: peak.bytes_on(gpus))
    how = "layer inputs only, the rest is recomputed" if recipe.train.recompute else "all kept"
    return [
        *parts,
        MemoryPart(name="gradients", bytes=worst.gradients, note=f"fp32, of {weights:,} weights in all"),
        MemoryPart(name="optimizer", bytes=state.device + state.largest, note=optimizer_note(recipe, state)),
        MemoryPart(name="activations", bytes=worst.activations, note=how),
        MemoryPart(name=worst.name, bytes=worst.work, note=worst.note),
    ]


def sharded_parts(
    parts: list[MemoryPart], spec: DecoderSpec, gpus: int, precision: str, free_bytes: int
) -> list[MemoryPart]:
    """Share out the components of a whole model over GPUs, each of which gathers some layers to compute.

    Args:
        parts: components on one GPU.
        spec: shape of the model.
        gpus: number of GPUs.
        precision: precision of the model's computation; the parts of the weights are fp32.
        free_bytes: memory of each GPU that is free before the model is loaded; 0: it is not known, or a CPU trains.
    """
    weights, tables = parameters(spec), embedding_parameters(spec) * (1 if spec.tied_embeddings else 2)
    layer, width = (weights - tables) // max(spec.num_layers, 1), BYTES_OF[precision]
    stays = weights * width < GATHERED_SHARE * free_bytes
    gathered = (weights if stays else tables + _GATHERED_LAYERS * layer) * width
    gathered += (tables + layer) * 4  # a gradient in fp32
    shared = [
        part.model_copy(update={"bytes": part.bytes // gpus, "note": f"1/{gpus} of it; {part.note}"})
        if part.name in _SHARED_OUT
        else part
        for part in parts
        if part.name not in ("base weights", "master weights")
    ]
    what = "all layers, which stay for the backward pass" if stays else "layers at work"
    note = f"{what}, embeddings, and gradients of what is at work"
    return [
        MemoryPart(name="base weights", bytes=weights * 4 // gpus, note=f"1/{gpus} of them, fp32"),
        MemoryPart(name="gathered weights", bytes=gathered, note=note),
        *shared,
    ]


def whole_context_bytes(devices: DevicesSection) -> int:
    """Return the bytes that each GPU holds beside torch's allocator: its context, and buffers of NCCL between several.

    Args:
        devices: section of a recipe that trains every weight.
    """
    shares = devices.strategy == "sharded" and len(devices.gpus) > 1
    return _CONTEXT_BYTES + (_NCCL_BYTES if shares else 0)


def later_bytes(adapter: AdapterSection) -> int:
    """Return the bytes that libraries take beside torch's allocator after a run has set its limit.

    The 128 MiB that `models.device.device.cap_memory` counts for every run are not among them.
    """
    return _LATER_BYTES if adapter.method == "full" else 0


def optimizer_note(recipe: Recipe, state: OptimizerBytes) -> str:
    """Describe an optimizer's moments and where they are kept."""
    where = f"; {state.host:,} bytes more in host memory" if state.host else ""
    return _OPTIMIZERS[recipe.train.optimizer] + where


def _peaks(recipe: Recipe, spec: DecoderSpec, pass_memory: PassMemory, width: int, *, cuda: bool) -> list[_Peak]:
    """List the points of a step at which the memory may peak."""
    weights, embedding = parameters(spec), embedding_parameters(spec)
    table = embedding * width
    layers = weights - embedding * (1 if spec.tied_embeddings else 2)
    top = "head and loss" if pass_memory.head >= pass_memory.layer_peak else "backward pass of a layer"
    # A gradient has the compute dtype and exists beside the sum that it is added to. The head's gradient of tied
    # embeddings is kept so until the end, where the embedding's gradient is added.
    summed = recipe.train.accumulation > 1 or recipe.masking.is_active  # the latter has one buffer for all
    at_top = weights * 4 if summed else 0
    in_first_layer = int(layers * (1 - 1 / spec.num_layers)) * 4 + (table if spec.tied_embeddings else embedding * 4)
    if summed:
        in_first_layer = weights * 4
    at_end = {(4, True): 2 * table, (4, False): 0}.get((width, spec.tied_embeddings), table)
    scratch = 0
    if not cuda and recipe.train.optimizer.endswith("adamw8bit"):
        scratch = _CPU_8_BIT_SCRATCH * max(tensor_sizes(spec, recipe.adapter))
    gathering = []
    if recipe.masking.is_active:
        gathering = [_Peak(weights * 4, 0, "workspace", weights * 4, _MOVING)]
    return [
        *gathering,
        _Peak(at_top + table, pass_memory.kept, top, max(pass_memory.head, pass_memory.layer_peak)),
        _Peak(in_first_layer, pass_memory.layer_kept, "backward pass of a layer", pass_memory.layer_peak),
        _Peak(weights * 4, 0, "backward pass of the embedding", at_end),
        _Peak(weights * 4, 0, "optimizer at work", scratch),
    ]
