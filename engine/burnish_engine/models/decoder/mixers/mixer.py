"""The interface of a mixer: the forward and backward pass between a layer's two projections.

A mixer is stateless; what one pass needs of it is in the tensors that it declares (`declaration`). Shapes as in
`layer_tensors`, and K inputs of the output projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

import torch

from burnish_engine.models.decoder.layer_types import SequenceMetadata, Tensors
from burnish_kernels.attention.documents import Documents


@dataclass(frozen=True)
class MixerPass:
    """Tensors of one pass through a layer's mixer.

    Attributes:
        projected_TC: output of the input projection; `Mixer.prepare` may change it.
        own: tensors that the mixer declares, which it fills; those that are missing in the backward pass it computes.
        sequences: packed documents of the micro-batch.
        buffers: memory for the tensors that are saved.
    """

    projected_TC: torch.Tensor
    own: Tensors
    sequences: SequenceMetadata
    buffers: Tensors = field(default_factory=dict)


class Mixer(Protocol):
    """Mixes the tokens of a document in one layer.

    Attributes:
        name: name of the kind of mixer: that of its folder.
        index: number of the layer.
    """

    name: ClassVar[str]
    index: int

    def prepare(self, mixer_pass: MixerPass) -> None:
        """Do what every use of a new output of the input projection needs."""
        ...

    def inputs(self, mixer_pass: MixerPass) -> tuple[torch.Tensor, ...]:
        """Return what is mixed, as `MixFunction` takes it, from a prepared projection; compute what is missing."""
        ...

    def mix(self, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor, mixer_pass: MixerPass) -> None:
        """Fill `out_TK` within packed documents."""
        ...

    def backward(
        self, gradient_TK: torch.Tensor, mixed_TK: torch.Tensor, out_TC: torch.Tensor, mixer_pass: MixerPass
    ) -> None:
        """Differentiate `mix` and `prepare`.

        Args:
            gradient_TK: gradient of the output; its memory may be used.
            mixed_TK: output of `mix`.
            out_TC: memory for the gradient of the input projection's output; filled.
            mixer_pass: prepared pass.
        """
        ...


class MixFunction(Protocol):
    """Mixing other than that of training, such as over what a cache remembers."""

    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        """Fill `out_TK`. The inputs are views that are overwritten later."""
        ...


MixFunctions: TypeAlias = "Mapping[str, MixFunction]"
"""Functions that mix instead, by the name of the kind of mixer."""


@dataclass(frozen=True)
class PackedPrompts:
    """Prompts that are read packed, T tokens together.

    Attributes:
        rows: row of each prompt in the caches.
        edges: first token of each prompt, then T.
        row_T: row of each token in the caches.
        position_T: position of each token in its prompt.
        documents: the same boundaries in the form that the kernels read.
    """

    rows: Sequence[int]
    edges: Sequence[int]
    row_T: torch.Tensor
    position_T: torch.Tensor
    documents: Documents


@dataclass(frozen=True)
class PromptChunk:
    """Some tokens of a prompt whose earlier ones were read before.

    Attributes:
        row: row of the prompt in the caches.
        begin: position of the first of them.
        end: position behind the last.
    """

    row: int
    begin: int
    end: int


class MixerCache(Protocol):
    """The memory of all layers with one kind of mixer, of replies that grow together; a row for each reply."""

    def reading(self, prompts: PackedPrompts) -> MixFunction:
        """Return how prompts are mixed and remembered."""
        ...

    def growing(self) -> MixFunction:
        """Make room for one more token of every row; return how these tokens are mixed and remembered."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows except these."""
        ...


class SlotCache(Protocol):
    """The memory of all layers with one kind of mixer, with a fixed number of slots for replies that come and go.

    It stays where it is, so that a captured step may read and change it.
    """

    def reading(self, prompts: PackedPrompts) -> MixFunction:
        """Return how prompts are mixed and remembered; their rows are slots."""
        ...

    def continuing(self, chunk: PromptChunk) -> MixFunction | None:
        """Return how a chunk of a prompt is mixed and remembered; None: prompts are read whole."""
        ...

    def growing(self) -> MixFunction:
        """Return how the newest tokens of the first slots are mixed and remembered."""
        ...

    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Let slots remember what others do, given int64 numbers of both."""
        ...
