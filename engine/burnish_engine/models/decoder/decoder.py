"""Burnish's own decoder: embedding, layers, final norm and head, with forward and backward passes written out.

Every activation is `[T, ...]` over packed documents of any lengths. `decoder_load` builds the decoder.

Shapes: T tokens of a micro-batch, H hidden size, V vocabulary, E widths extended by adapter columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.models.decoder.frozen.head import Head
from burnish_engine.models.decoder.layer_end.inputs import LayerInputs, PassInputs
from burnish_engine.models.decoder.layer_norms import stream_eps
from burnish_engine.models.decoder.layer_tensors import OFFLOADING
from burnish_engine.models.decoder.layer_types import PassState, ResidualStream, SavedActivations, SequenceMetadata
from burnish_engine.models.decoder.magnitudes import Magnitudes
from burnish_engine.models.decoder.mixers.mixer import MixFunctions
from burnish_engine.models.decoder.rope_tables import RopeTable
from burnish_engine.models.host_memory.copy_stream import CopyStream
from burnish_engine.models.host_memory.offloader import Offloader
from burnish_engine.models.host_memory.weight_ring import WeightRing
from burnish_kernels.gather.op import gather_rows
from burnish_kernels.rms_norm import op as rms_norm


@dataclass
class ForwardPass:
    """The result of a forward pass.

    Attributes:
        hidden_TH: hidden states after the final norm, the input of the head.
        stream_TH: residual stream before the final norm.
        inverse_T: inverse root mean square of each row in the final norm.
        layers: saved activations of each layer; None for layers below the first trained one.
        offloader: owner of the activations in host memory, or None.
        state: what layers left for others.
    """

    hidden_TH: torch.Tensor
    stream_TH: torch.Tensor
    inverse_T: torch.Tensor
    layers: list[SavedActivations | None]
    offloader: Offloader | None = None
    state: PassState | None = None


class Decoder:
    """A decoder-only transformer with frozen weights and LoRA adapters.

    The residual stream is stored divided by `DecoderSpec.residual_scale`, so that no half of a layer has to scale what
    it adds: a norm of the stream gives the same with its epsilon divided by the square.

    Args:
        spec: specification of the model.
        embedding_VH: token embeddings; on a GPU they may lie in page-locked host memory.
        head: output projection, whose weights are the embeddings where the two are tied.
        final_norm_H: weight of the last norm.
        layers: decoder layers, bottom first.
        rope: table of positions that `SequenceMetadata.table_index_T` points into.
        ring: owner of the layers' frozen weights that are in host memory.
        layer_inputs: what inputs of the layers' own are made with; None where they have none.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        embedding_VH: torch.Tensor,
        head: Head,
        final_norm_H: torch.Tensor,
        layers: list[DecoderLayer],
        rope: RopeTable,
        ring: WeightRing,
        layer_inputs: LayerInputs | None = None,
    ) -> None:
        self.layer_inputs = layer_inputs
        self._gathers = CopyStream(final_norm_H.device)
        self.spec, self.layers, self.rope, self.ring = spec, layers, rope, ring
        self.embedding_VH, self.head, self.final_norm_H = embedding_VH, head, final_norm_H
        self._eps = stream_eps(spec)

    @property
    def device(self) -> torch.device:
        """Device that the decoder computes on."""
        return self.final_norm_H.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype that the decoder computes in."""
        return self.final_norm_H.dtype

    @property
    def first_trained(self) -> int:
        """Number of the lowest layer with an adapter; the number of layers where there is none."""
        trained = (layer.shape.index for layer in self.layers if layer.is_trained)
        return next(trained, len(self.layers))

    def forward(
        self,
        ids_T: torch.Tensor,
        sequences: SequenceMetadata,
        *,
        levels: Sequence[SaveLevel] | None = None,
        mixing: MixFunctions | None = None,
        offloader: Offloader | None = None,
    ) -> ForwardPass:
        """Run all layers.

        Args:
            ids_T: token ids.
            sequences: packed documents of the micro-batch.
            levels: save level of each layer, for `backward`; None: nothing will be differentiated.
            mixing: functions that replace the mixing of packed documents; then nothing can be saved.
            offloader: owner of activations in host memory; required if a level offloads.
        """
        if levels is not None:
            self.expire_magnitudes()  # a captured pass computes the factors each time
        stream, state = ResidualStream(None, self.embed(ids_T)), PassState()
        if self.layer_inputs is not None:
            self._gathers.wait_for_all()
            state.inputs = PassInputs(self.layer_inputs, ids_T, stream.pending_TH, self._gathers)
            state.inputs.fetch_rows(0)
        sequences = replace(sequences, state=state)
        kept: list[SavedActivations | None] = []
        first = self.first_trained
        if offloader is not None and levels is not None:
            offloader.begin(
                [layer.offload_widths(levels[layer.shape.index]) for layer in self.layers[first:]], stream.pending_TH
            )
        self.ring.begin()
        for index, layer in enumerate(self.layers):
            level = levels[index] if levels is not None and index >= first else None
            mix = None if mixing is None else mixing[layer.mixer.name]
            if state.inputs is not None and index + 1 < len(self.layers):
                state.inputs.fetch_rows(index + 1)
            with self.ring.present(index):
                saved = layer.forward(stream, sequences, level=level, mix=mix, offloader=offloader)
            kept.append(saved)
            if saved is not None and level in OFFLOADING:
                assert offloader is not None
                offloader.offload(index, saved, tuple(layer.offload_widths(level)))
        if offloader is not None:
            offloader.wait_for_copies()
        hidden, total, inverse = rms_norm.forward(
            stream.pending_TH,
            self.final_norm_H,
            eps=self._eps,
            residual_TH=stream.sum_TH,
            one_plus_weight=self.spec.norm_one_plus,
            sum_out=None if stream.sum_TH is None else stream.pending_TH,
        )
        return ForwardPass(hidden, total, inverse, kept, offloader, state)

    def new_gradient(self, done: ForwardPass) -> torch.Tensor:
        """Return zeros `[T, E]`: the first H columns take the gradient of `done.hidden_TH`, others the adapters'."""
        width = self.spec.hidden_size + max(max(s.rank for s in layer.stacks) for layer in self.layers)
        return done.hidden_TH.new_zeros(len(done.hidden_TH), width)

    def backward(self, done: ForwardPass, gradient_TE: torch.Tensor, sequences: SequenceMetadata) -> None:
        """Add the adapters' gradients to their stacks' `gradients`; arguments as of `backward_layers`."""
        for _ in self.backward_layers(done, gradient_TE, sequences):
            pass

    def backward_layers(
        self, done: ForwardPass, gradient_TE: torch.Tensor, sequences: SequenceMetadata
    ) -> Iterator[int]:
        """Run the backward pass from layer to layer; yield the number of each whose gradients are added, top first.

        Args:
            done: result of `forward` with `levels`; emptied on the way.
            gradient_TE: tensor from `new_gradient`, filled by the caller; changed.
            sequences: same as in `forward`.
        """
        gradient_TH, sequences = gradient_TE[:, : self.spec.hidden_size], replace(sequences, state=done.state)
        rms_norm.backward(
            gradient_TH,
            done.stream_TH,
            self.final_norm_H,
            done.inverse_T,
            one_plus_weight=self.spec.norm_one_plus,
            out=gradient_TH,
        )
        del done.hidden_TH, done.stream_TH  # layers work in their memory
        first = self.first_trained
        self.ring.turn(first)
        for layer in reversed(self.layers[first:]):
            if done.offloader is not None:
                done.offloader.prefetch(done.layers)
            saved = done.layers.pop()
            assert saved is not None
            if done.offloader is not None:
                done.offloader.restore(saved)
            if done.state is not None and done.state.inputs is not None:
                below = done.layers[-1] if layer.shape.index > first else None
                _gather_again(done.state.inputs, {layer.shape.index: saved, layer.shape.index - 1: below})
            with self.ring.present(layer.shape.index):
                layer.backward(saved, gradient_TE, sequences, wanted=layer.shape.index > first)
            del saved  # else it lives while the caller does something else
            if layer.shape.index > first:
                yield layer.shape.index
        if done.offloader is not None:
            done.offloader.finish()
        yield first

    @property
    def magnitudes(self) -> list[Magnitudes]:
        """DoRA's magnitudes of all stacks; empty for other adapters."""
        return [stack.magnitudes for layer in self.layers for stack in layer.stacks if stack.magnitudes is not None]

    def measure_rows(self) -> None:
        """Measure the frozen weights' rows, which DoRA's magnitudes begin with; nothing for other adapters."""
        if not self.magnitudes:
            return
        self.ring.begin()
        for index, layer in enumerate(self.layers):
            with self.ring.present(index):
                for stack in layer.stacks:
                    if stack.magnitudes is not None:
                        stack.magnitudes.measure(stack.matrix())

    def expire_magnitudes(self) -> None:
        """Have the next pass compute DoRA's factors again, because adapters or magnitudes changed."""
        for magnitudes in self.magnitudes:
            magnitudes.is_stale = True

    def reset_copies(self) -> None:
        """Recover the copy streams after a graph capture failed half-way."""
        self.ring.reset()
        self.head.reset_copies()
        self._gathers.join_capture()

    def chunk_feed_forward(self, mlp_chunk_tokens: int) -> None:
        """Run the feed-forward in chunks of `mlp_chunk_tokens` tokens from now on; 0: all tokens at once."""
        for layer in self.layers:
            layer.feed_forward.mlp_chunk_tokens = mlp_chunk_tokens

    def embed(self, ids_T: torch.Tensor) -> torch.Tensor:
        """Return embeddings `[T, H]`, scaled as the family requires and for the stream."""
        here = self.embedding_VH.device == ids_T.device
        rows = self.embedding_VH.index_select(0, ids_T) if here else gather_rows(self.embedding_VH, ids_T)
        scale = self.spec.embedding_scale
        if self.spec.embedding_scale_rounded:
            scale = float(torch.tensor(scale, dtype=rows.dtype))
        scale /= self.spec.residual_scale
        return rows if scale == 1.0 else rows.mul_(scale)

    def raw_logits(self, hidden_TH: torch.Tensor) -> torch.Tensor:
        """Return logits `[T, V]` in the model's dtype, before any soft cap."""
        return self.head.logits(hidden_TH)

    def head_gradient(self, dlogits_TV: torch.Tensor) -> torch.Tensor:
        """Return the gradient `[T, H]` of the hidden states that `raw_logits` took."""
        return self.head.gradient(dlogits_TV)

    def logits(self, hidden_TH: torch.Tensor) -> torch.Tensor:
        """Return logits `[T, V]` in fp32, soft-capped where the family does so."""
        logits = self.raw_logits(hidden_TH).float()
        cap = self.spec.logit_softcap
        return cap * torch.tanh(logits / cap) if cap else logits


def _gather_again(inputs: PassInputs, layers: Mapping[int, SavedActivations | None]) -> None:
    """Start to gather rows once more for those of the layers that did not save what they made of them."""
    for index, saved in layers.items():
        if saved is not None and saved.own_input_TJ is None:
            inputs.fetch_rows(index)
