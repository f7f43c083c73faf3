"""Gemma 3's language model: norms before and after attention and feed-forward, local and global layers, QK norm."""

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families.base import Family


class _Gemma3(Family):
    def supported(self, spec: DecoderSpec) -> str:
        # transformers reads attn_logit_softcapping and never applies it to Gemma 3; published models have none.
        return super().supported(spec) or ("caps its attention scores" if spec.attention_softcap is not None else "")


GEMMA3 = _Gemma3(
    "gemma3_text",
    mlp_norm="pre_feedforward_layernorm",
    mixer_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)
