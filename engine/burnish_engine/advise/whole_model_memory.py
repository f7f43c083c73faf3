"""Predicts the memory of a run that trains every weight, at the worst moment of its steps. Loads no torch.

While a backward pass goes down the layers, what the forward pass kept goes and gradients come, layer by layer: the most
is held at its top, at its bottom, or when the optimizer is at work.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.advise.shape import BYTES_OF, embedding_parameters, parameters
from burnish_engine.advise.trained_bytes import OptimizerBytes, flat_optimizer_bytes, optimizer_bytes, tensor_sizes
from burnish_engine.contract.advice import MemoryPart
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.recipe import Recipe

_CPU_8_BIT_SCRATCH = 20  # bytes a number of the tensor at work: moments, gradient, and the divisor twice, in fp32
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
class Passing:
    """What comes and goes with a pass, bytes.

    Attributes:
        kept: What autograd keeps of the whole forward pass.
        head: Peak of the head and the loss.
        layer_peak: What is alive beside that in a layer's backward pass.
        layer_kept: What autograd keeps of one layer; 0 where it is recomputed, and so counted in `layer_peak`.
    """

    kept: int
    head: int
    layer_peak: int
    layer_kept: int


_MOVING = "at the start: the weights once more, while they move into one buffer"


@dataclass(frozen=True)
class _Moment:
    gradients: int
    activations: int
    name: str
    work: int
    note: str = ""

    @property
    def bytes(self) -> int:
        return self.gradients + self.activations + self.work


def whole_model_parts(
    recipe: Recipe, spec: DecoderSpec, passing: Passing, *, cuda: bool, precision: str
) -> list[MemoryPart]:
    """Components of the peak beside the weights that are computed with.

    Args:
        recipe: The run.
        spec: The model's shape.
        passing: What its largest pass takes.
        cuda: An NVIDIA GPU; else the CPU.
        precision: What the model computes in, "fp32" or "bf16".
    """
    weights, width = parameters(spec), BYTES_OF[precision]
    what = (spec, recipe.adapter, recipe.train.optimizer)
    if not recipe.masking.acts:
        state = optimizer_bytes(*what, cuda=cuda)
    else:
        state = flat_optimizer_bytes(*what, cuda=cuda, masked=True)
    parts = []
    if precision != "fp32":
        parts.append(MemoryPart(name="master weights", bytes=weights * 4, note="fp32, which the optimizer changes"))
    worst = max(_moments(recipe, spec, passing, width, cuda=cuda), key=lambda moment: moment.bytes)
    how = "layer inputs only, the rest is recomputed" if recipe.train.recompute else "all kept"
    return [
        *parts,
        MemoryPart(name="gradients", bytes=worst.gradients, note=f"fp32, of {weights:,} weights in all"),
        MemoryPart(name="optimizer", bytes=state.device + state.largest, note=optimizer_note(recipe, state)),
        MemoryPart(name="activations", bytes=worst.activations, note=how),
        MemoryPart(name=worst.name, bytes=worst.work, note=worst.note),
    ]


def optimizer_note(recipe: Recipe, state: OptimizerBytes) -> str:
    """Which moments are kept, and where."""
    where = f"; {state.host:,} bytes more in host memory" if state.host else ""
    return _OPTIMIZERS[recipe.train.optimizer] + where


def _moments(recipe: Recipe, spec: DecoderSpec, passing: Passing, width: int, *, cuda: bool) -> list[_Moment]:
    """The moments at which the most may be held."""
    weights, embedding = parameters(spec), embedding_parameters(spec)
    table = embedding * width
    layers = weights - embedding * (1 if spec.tied_embeddings else 2)
    top = "head and loss" if passing.head >= passing.layer_peak else "backward pass of a layer"
    # A gradient comes in the numbers that are computed with, and is there beside the sum that it is added to. That of
    # tied embeddings is kept so from the head to the very end, where it meets the embedding's.
    summed = recipe.train.accumulation > 1 or recipe.masking.acts  # the latter has one buffer for all
    at_top = weights * 4 if summed else 0
    in_first_layer = int(layers * (1 - 1 / spec.num_layers)) * 4 + (table if spec.tied_embeddings else embedding * 4)
    if summed:
        in_first_layer = weights * 4
    at_end = {(4, True): 2 * table, (4, False): 0}.get((width, spec.tied_embeddings), table)
    scratch = 0
    if not cuda and recipe.train.optimizer.endswith("adamw8bit"):
        scratch = _CPU_8_BIT_SCRATCH * max(tensor_sizes(spec, recipe.adapter))
    gathering = []
    if recipe.masking.acts:
        gathering = [_Moment(weights * 4, 0, "workspace", weights * 4, _MOVING)]
    return [
        *gathering,
        _Moment(at_top + table, passing.kept, top, max(passing.head, passing.layer_peak)),
        _Moment(in_first_layer, passing.layer_kept, "backward pass of a layer", passing.layer_peak),
        _Moment(weights * 4, 0, "backward pass of the embedding", at_end),
        _Moment(weights * 4, 0, "optimizer at work", scratch),
    ]
