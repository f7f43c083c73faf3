"""One decoder layer with forward and backward written out, so that a save level decides which activations are saved.

The residual stream is a sum: each half of a layer adds its output to it, and that addition is fused with the norm that
follows. So a layer takes the stream and an output that is still pending, and leaves the same pair. The halves compute
in `mixer_half` and `feed_forward`; this module allocates, drops and recomputes activations, by the table in
`layer_tensors`.

Shapes as there, E a width extended by adapter columns (see `stacked_linear`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.experts.expert_half import ExpertHalf
from burnish_engine.models.decoder.experts.normed_half import NormedExpertHalf
from burnish_engine.models.decoder.feed_forward import FeedForward
from burnish_engine.models.decoder.layer_end.end import LayerEnd
from burnish_engine.models.decoder.layer_norms import norm
from burnish_engine.models.decoder.layer_tensors import READERS, TOKENS, LayerTensor, Reader
from burnish_engine.models.decoder.layer_types import (
    DecoderLayerShape,
    LayerWeights,
    ResidualStream,
    SavedActivations,
    SequenceMetadata,
    Tensors,
    not_none,
)
from burnish_engine.models.decoder.mixer_half import MixerHalf
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixFunction
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.models.host_memory.offloader import Offloader, OffloadWidths


class DecoderLayer:
    """One layer of the decoder.

    Args:
        shape: constants of the layer.
        weights: parameters of the layer.
        mixer: what mixes tokens.
        tensors: all tensors of the layer, from `mixers.declared.layer_tensors`.

    Attributes:
        half, feed_forward: the two halves.
    """

    def __init__(
        self, shape: DecoderLayerShape, weights: LayerWeights, mixer: Mixer, tensors: Sequence[LayerTensor]
    ) -> None:
        self.shape, self.weights, self.mixer, self.tensors = shape, weights, mixer, tensors
        self._read_last = {read: [tensor for tensor in tensors if tensor.read == read] for read in READERS}
        self.half = MixerHalf(shape, weights, mixer)
        self.feed_forward = _feed_forward(shape, weights)
        self._end = LayerEnd(shape, weights.end, weights.mlp_post_norm) if weights.end else None

    @property
    def stacks(self) -> list[StackedLinear]:
        """The linear stacks of the layer, in the order they are used."""
        return list(self.weights.stacks.values())

    @property
    def is_trained(self) -> bool:
        """Whether the layer has an adapter."""
        experts = self.weights.experts
        own = [*self.stacks, *(experts.stacks.values() if experts else ())]
        return any(stack.rank for stack in own)

    def offload_widths(self, level: SaveLevel) -> OffloadWidths:
        """Return the tensors that `forward` offloads to host memory, with the widths of those allocated for it."""
        offloaded = (tensor for tensor in self.tensors if level in tensor.host)
        return {tensor.name: tensor.width if level in tensor.placed else None for tensor in offloaded}

    def offloaded_width(self, level: SaveLevel) -> int:
        """Return how many numbers of a token `forward` offloads."""
        return sum(tensor.width for tensor in self.tensors if level in tensor.host)

    # Forward

    def forward(
        self,
        stream: ResidualStream,
        sequences: SequenceMetadata,
        *,
        level: SaveLevel | None = None,
        mix: MixFunction | None = None,
        offloader: Offloader | None = None,
    ) -> SavedActivations | None:
        """Run the layer.

        Args:
            stream: residual stream before the layer; changed to that after it.
            sequences: packed documents of the micro-batch.
            level: save level, which says what is saved for `backward`; None: nothing will be differentiated.
            mix: function that replaces the mixing of packed documents; then nothing can be saved.
            offloader: owner of the buffers for tensors to be offloaded; required if the level offloads.

        Returns:
            The saved activations, or None without a level.
        """
        buffers = None if level is None else self._output_buffers(stream.pending_TH, level, offloader)
        saved = SavedActivations(start_TH=stream.pending_TH)
        self.half.forward(saved, sequences, mix, buffers, stream)
        self._drop(saved, "mixer", level, buffers)
        mixer_out_TH = self.half.project(saved, buffers)
        self._drop(saved, "mixer_out", level, buffers)
        stream.pending_TH = self.feed_forward.forward(saved, mixer_out_TH, buffers)
        stream.sum_TH = saved.middle_TH
        if self._end is not None:
            self._end.forward(saved, stream, sequences, buffers, self.feed_forward.mlp_chunk_tokens)
        if level is None:
            return None
        self._drop(saved, "layer", level, buffers)
        return saved

    def _output_buffers(self, like_TH: torch.Tensor, level: SaveLevel, offloader: Offloader | None) -> Tensors:
        """Allocate memory for the activations that outlive the forward pass, on the device or on their way out."""
        tokens, wide = len(like_TH), torch.promote_types(like_TH.dtype, torch.float32)
        buffers = {
            name: not_none(offloader).take(name, tokens, width, like_TH)
            for name, width in self.offload_widths(level).items()
            if width
        }
        for tensor in self.tensors:
            if level in tensor.placed and tensor.name not in buffers:
                shape = [tokens if size == TOKENS else size for size in tensor.shape]
                dtype = wide if tensor.is_fp32 else torch.int32 if tensor.is_int32 else like_TH.dtype
                buffers[tensor.name] = like_TH.new_empty(shape, dtype=dtype)
        return buffers

    def _drop(
        self,
        saved: SavedActivations,
        read: Reader,
        level: SaveLevel | None,
        buffers: Tensors | None,
    ) -> None:
        """Drop the activations that nothing reads any more in the forward pass, except those that the level keeps."""
        for tensor in self._read_last[read]:
            if level is None or not tensor.is_kept(level, chunked=False):
                saved.drop(tensor.name)
            elif tensor.is_view:  # small; kept apart, the wide tensor around it can go
                columns = not_none(getattr(saved, tensor.name))
                setattr(saved, tensor.name, not_none(buffers)[tensor.name].copy_(columns))

    # Backward

    def backward(
        self, saved: SavedActivations, gradient_TE: torch.Tensor, sequences: SequenceMetadata, *, wanted: bool = True
    ) -> None:
        """Differentiate the layer: accumulate its adapters' gradients and turn the stream's gradient into its input's.

        Args:
            saved: activations from `forward`; emptied on the way.
            gradient_TE: gradient `[T, H + ...]` with as many further columns as the widest adapter of `mixer_out` and
                `down`; its first H are the gradient of stream + pending after the layer, and on return of stream +
                pending before it.
            sequences: same as in `forward`.
            wanted: whether the gradient before the layer is needed (False where nothing below is trained).
        """
        frugal = 0 < self.feed_forward.mlp_chunk_tokens < len(gradient_TE)
        self._restore_output(saved, sequences, frugal=frugal)
        self._restore_middle(saved, frugal=frugal)
        if self._end is not None:
            self._end.backward(saved, gradient_TE, sequences, self.feed_forward.mlp_chunk_tokens)
        self.feed_forward.backward(saved, gradient_TE)
        self._restore_inputs(saved, sequences, frugal=frugal)
        self.half.backward(saved, gradient_TE, sequences, wanted)

    # Where the feed-forward runs in chunks, a tensor is rather computed twice than kept until its second use: frugal.

    def _restore_output(self, saved: SavedActivations, sequences: SequenceMetadata, *, frugal: bool) -> None:
        """Recompute the mixer's output if it was not saved."""
        if saved.mixed_TE is not None:
            return
        self.half.forward(saved, sequences)
        if frugal:  # projected once more when the mixer is differentiated
            for tensor in self._read_last["mixer"]:
                saved.drop(tensor.name)

    def _restore_middle(self, saved: SavedActivations, *, frugal: bool) -> None:
        """Recompute the stream between the halves if it was not saved."""
        if saved.middle_TH is not None:
            return
        w = self.weights
        out = self.half.project(saved)
        if frugal:
            saved.middle_TH = out.add_(saved.start_TH)  # the same bits as the norm's sum; the tiles do the rest
            return
        saved.x_mlp_TE, saved.x_mlp_codes = self.feed_forward.new_input(len(out), out)
        saved.middle_TH, saved.middle_inverse_T = norm(
            self.shape, out, w.mlp_norm, saved.x_mlp_TE, saved.start_TH, in_place=True, codes_out=saved.x_mlp_codes
        )

    def _restore_inputs(self, saved: SavedActivations, sequences: SequenceMetadata, *, frugal: bool) -> None:
        """Recompute the inputs of the mixer's half if they were not saved."""
        if saved.projected_TC is not None:
            return
        self.half.forward(saved, sequences)
        if frugal:  # made once more for its gradient
            saved.x_mixer_TE, saved.xa_mixer_TR = None, _compact(not_none(saved.xa_mixer_TR))


def _feed_forward(shape: DecoderLayerShape, weights: LayerWeights) -> FeedForward | ExpertHalf:
    if not weights.experts:
        return FeedForward(shape, weights)
    return NormedExpertHalf(shape, weights) if weights.experts.normed else ExpertHalf(shape, weights)


def _compact(view: torch.Tensor) -> torch.Tensor:
    """Copy a view so that its base tensor can be freed; `contiguous` would not copy an empty view."""
    return view.clone(memory_format=torch.contiguous_format)
