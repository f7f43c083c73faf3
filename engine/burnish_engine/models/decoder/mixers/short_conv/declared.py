"""The tensors and costs of a layer with a gated short convolution. Loads no torch.

Shapes as in `layer_tensors`, with C = 3H: the gates B and C and the convolution's input x.
"""

from __future__ import annotations

from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.layer_tensors import LayerTensor, StackSizes
from burnish_engine.models.decoder.mixers.declaration import MixerDeclaration, Moved
from burnish_engine.models.decoder.mixers.projections import projection_tensors

# Times the hidden size. Forward: the convolution reads 3 and writes 1, and an adapter reads that. Backward: it reads 4
# and writes 3, and adapters read inputs and outputs, 1 + 2 x 3 and 1.
_MOVED = (5, 15)
_CONVOLVED_AGAIN = 4


class ShortConvDeclaration(MixerDeclaration):
    """A convolution over a few tokens of a document, between two gates."""

    @override
    def tensors(self, spec: DecoderSpec, stacks: StackSizes) -> tuple[LayerTensor, ...]:
        return projection_tensors(stacks)

    @override
    def moved(self, spec: DecoderSpec) -> Moved:
        forward, backward = _MOVED
        return Moved(forward * spec.hidden_size, backward * spec.hidden_size)

    @override
    def moved_again(self, spec: DecoderSpec, level: SaveLevel) -> int:
        return _CONVOLVED_AGAIN * spec.hidden_size if level == "input" else 0

    @override
    def operations(self, spec: DecoderSpec, layer: LayerSpec, tokens: int, span: float, edge: float) -> float:
        return 0.0  # a few for each number that is moved
