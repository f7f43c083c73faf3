"""The declaration of a mixer, for those who plan and predict. Loads no torch."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.layer_tensors import LayerTensor, StackSizes


class Moved(NamedTuple):
    """Numbers that a mixer reads and writes for one token outside the matrix products of its projections.

    The adapters' skinny products count: they read each input and output once forward and twice backward. The hidden
    state before and after the mixer is the layer's.

    Attributes:
        forward: numbers moved in the forward pass.
        backward: numbers moved in the backward pass, where everything is kept that the level "products" keeps.
    """

    forward: int
    backward: int


class MixerDeclaration(Protocol):
    """The tensors and costs of one kind of mixer."""

    def tensors(self, spec: DecoderSpec, stacks: StackSizes) -> tuple[LayerTensor, ...]:
        """Declare the mixer's tensors, those of `projection_tensors` among them, in the order of their allocation."""
        ...

    def moved(self, spec: DecoderSpec) -> Moved:
        """Count the numbers that are moved for a token."""
        ...

    def moved_again(self, spec: DecoderSpec, level: SaveLevel) -> int:
        """Count the numbers that a save level moves in addition for a token; negative where it moves fewer."""
        ...

    def operations(self, spec: DecoderSpec, layer: LayerSpec, tokens: int, span: float, edge: float) -> float:
        """Count the operations of the mixer itself, forward.

        Args:
            spec: shape of the model.
            layer: layer of the model.
            tokens: number of tokens of the micro-batch.
            span: tokens of a token's document, on average.
            edge: number of tokens by which a document counts as longer.
        """
        ...
