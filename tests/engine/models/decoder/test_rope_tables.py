"""Rope tables against the rotary embeddings of transformers: equal bits, at short and at long positions."""

import pytest
import torch
from transformers import AutoConfig

from burnish_engine.contract.facts.facts import RopeSpec
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.decoder.rope_tables import rope_table

from support.published import CONFIGS
from support.tiny_models import SHAPES, make

POSITIONS = 131_072
PROBES = torch.cat((torch.arange(5000), torch.arange(5000, POSITIONS, 97), torch.tensor([POSITIONS - 1])))


def rotary(config):
    """transformers' module that computes cosines and sines for a configuration."""
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
    from transformers.models.lfm2.modeling_lfm2 import Lfm2RotaryEmbedding
    from transformers.models.lfm3.modeling_lfm3 import Lfm3RotaryEmbedding
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    from transformers.models.mistral.modeling_mistral import MistralRotaryEmbedding
    from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding
    from transformers.models.smollm3.modeling_smollm3 import SmolLM3RotaryEmbedding

    made = {
        "llama": LlamaRotaryEmbedding, "mistral": MistralRotaryEmbedding, "qwen2": Qwen2RotaryEmbedding,
        "qwen3": Qwen3RotaryEmbedding, "smollm3": SmolLM3RotaryEmbedding, "gemma3_text": Gemma3RotaryEmbedding,
        "phi3": Phi3RotaryEmbedding, "lfm2": Lfm2RotaryEmbedding, "lfm3": Lfm3RotaryEmbedding,
    }  # fmt: skip
    return made[config.model_type](config)


def expected(module, positions, **kind):
    cos, sin = module(torch.zeros(1), positions[None], **kind)
    half = cos.shape[-1] // 2
    return torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1)


@pytest.mark.parametrize("name", [name for name in CONFIGS if "Phi-3.5" not in name and "Phi-4" not in name])
def test_published_models(name):
    spec, module = decoder_spec(CONFIGS[name]), rotary(AutoConfig.for_model(**CONFIGS[name]))
    ropes = [(spec.rope, {})]
    if spec.local_rope is not None:
        ropes = [(spec.rope, {"layer_type": "full_attention"}), (spec.local_rope, {"layer_type": "sliding_attention"})]
    for rope, kind in ropes:
        table = rope_table(rope, spec.head_dim, POSITIONS, "cpu")
        assert table.table_PR.shape == (POSITIONS, spec.head_dim)
        assert table.table_PR.dtype == torch.float32
        assert (table.long_offset, table.long_above) == (None, None)
        assert torch.equal(table.table_PR[PROBES], expected(module, PROBES, **kind))


@pytest.mark.parametrize("name", ["microsoft/Phi-4-mini-instruct", "microsoft/Phi-3.5-mini-instruct"])
def test_long_and_short_documents_rotate_differently(name):
    spec, module = decoder_spec(CONFIGS[name]), rotary(AutoConfig.for_model(**CONFIGS[name]))
    table = rope_table(spec.rope, spec.head_dim, POSITIONS, "cpu")
    assert table.table_PR.shape == (4096 + POSITIONS, 96)
    assert table.long_offset == table.long_above == 4096
    assert torch.equal(table.table_PR[:4096], expected(module, torch.arange(4096)))
    assert torch.equal(table.table_PR[table.long_offset + PROBES], expected(module, PROBES))
    one_more = torch.arange(4097)
    assert torch.equal(table.table_PR[table.long_offset + one_more], expected(module, one_more))
    assert not torch.equal(table.table_PR[4095], table.table_PR[table.long_offset + 4095])


def test_without_long_documents_there_is_one_part():
    spec = decoder_spec(CONFIGS["microsoft/Phi-4-mini-instruct"])
    table = rope_table(spec.rope, spec.head_dim, 4096, "cpu")
    assert table.table_PR.shape == (4096, 96)
    assert (table.long_offset, table.long_above) == (None, None)


@pytest.mark.parametrize("shape", SHAPES)
def test_tiny_models(shape, tmp_path):
    config = AutoConfig.from_pretrained(make(shape, tmp_path))
    spec, module = decoder_spec(config.to_dict()), rotary(config)
    ropes = {"full_attention": spec.rope, "sliding_attention": spec.local_rope}
    for kind, rope in ropes.items():
        if rope is not None:
            table, named = rope_table(rope, spec.head_dim, 256, "cpu"), {"layer_type": kind} if spec.local_rope else {}
            assert torch.equal(table.table_PR[-256:], expected(module, torch.arange(256), **named))


def test_ropes_without_a_table():
    for scaling in ("yarn", "dynamic"):
        with pytest.raises(ValueError, match=scaling):
            rope_table(RopeSpec(scaling=scaling), 64, 16, "cpu")
    with pytest.raises(ValueError, match="3 factors for 32"):
        rope_table(RopeSpec(scaling="longrope", original_context=8, short_factor=[1.0] * 3), 64, 16, "cpu")
    with pytest.raises(ValueError, match="original context"):
        rope_table(RopeSpec(scaling="llama3"), 64, 16, "cpu")
