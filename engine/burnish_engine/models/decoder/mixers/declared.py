"""The declarations of all mixers, and of a whole layer. Loads no torch."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.decoder.experts.declared import ExpertSizes, expert_tensors, shared_sizes
from burnish_engine.models.decoder.frozen.declared import operand_codes
from burnish_engine.models.decoder.layer_tensors import (
    LayerTensor,
    StackSizes,
    between_tensors,
    end_tensors,
    feed_forward_tensors,
    output_tensors,
    stream_tensors,
)
from burnish_engine.models.decoder.mixers.attention.declared import AttentionDeclaration
from burnish_engine.models.decoder.mixers.declaration import MixerDeclaration
from burnish_engine.models.decoder.mixers.gated_attention.declared import GatedAttentionDeclaration
from burnish_engine.models.decoder.mixers.gated_delta.declared import GatedDeltaDeclaration
from burnish_engine.models.decoder.mixers.short_conv.declared import ShortConvDeclaration
from burnish_engine.models.decoder.mixers.value_norm_attention.declared import ValueNormDeclaration

_ATTENTION, _GATED_ATTENTION = AttentionDeclaration(), GatedAttentionDeclaration()
_DECLARED: dict[LayerKind, MixerDeclaration] = {
    "attention": _ATTENTION,
    "sliding_attention": _ATTENTION,
    "short_convolution": ShortConvDeclaration(),
    "gated_delta": GatedDeltaDeclaration(),
}


def declared_mixer(spec: DecoderSpec, layer: LayerSpec) -> MixerDeclaration:
    """Return what the mixer of a layer declares; its methods take `DecoderSpec.of_layer`.

    Raises:
        KeyError: The fast engine has no such mixer.
    """
    found = _DECLARED[layer.kind]
    if found is not _ATTENTION:
        return found
    return ValueNormDeclaration(layer) if spec.value_norm else _GATED_ATTENTION if spec.attention_gate else found


def layer_tensors(
    spec: DecoderSpec,
    layer: LayerSpec,
    stacks: StackSizes,
    *,
    experts: ExpertSizes | None = None,
    is_fused: bool = False,
    eight_bits: str = "",
) -> tuple[LayerTensor, ...]:
    """Declare all tensors of a layer, in the order of their allocation.

    Args:
        spec: shape of the model.
        layer: the layer.
        stacks: sizes of the layer's stacks; in a mixture those of the mixer, and of an expert that sees every token.
        experts: sizes of the layer's experts; None: its feed-forward is dense.
        is_fused: same as in `feed_forward_tensors`.
        eight_bits: format of the operands of products with the stacks and experts, where it has 8 bits.
    """
    hidden, before, after = spec.hidden_size, spec.pre_norms, spec.sandwich_norms
    if experts:
        shared = shared_sizes(stacks)
        down_rank = experts.slots * experts.down_rank + shared.down_rank
        is_normed = spec.experts is not None and spec.experts.shared == "normed"
        half = expert_tensors(hidden, experts, shared, has_pre_norms=before, has_post_norms=after, is_normed=is_normed)
    else:
        down_rank = stacks["down"].rank
        half = feed_forward_tensors(hidden, stacks, has_pre_norms=before, has_post_norms=after, is_fused=is_fused)
    return (
        *stream_tensors(hidden, has_pre_norms=before),
        *output_tensors(hidden, down_rank),
        *declared_mixer(spec, layer).tensors(spec.of_layer(layer), stacks),
        *between_tensors(hidden, has_pre_norms=before, has_post_norms=after),
        *half,
        *end_tensors(spec.per_layer_size),
        *(operand_codes(stacks, eight_bits, has_post_norms=after, experts=experts) if eight_bits else ()),
    )
