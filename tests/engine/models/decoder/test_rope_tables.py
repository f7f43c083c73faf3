"""Rope tables against the rotary embeddings of transformers: equal bits, at short and at long positions."""

import importlib

import pytest
import torch
from transformers import AutoConfig
from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

from burnish_engine.contract.facts.facts import RopeSpec
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.decoder.rope_tables import rope_table

from support.models.published import CONFIGS
from support.models.tiny_models import SHAPES, make

POSITIONS = 131_072
PROBES = torch.cat((torch.arange(5000), torch.arange(5000, POSITIONS, 97), torch.tensor([POSITIONS - 1])))


def rotary(config):
    """transformers' module that computes cosines and sines for a configuration."""
    of_config = type(config).__module__
    kin = config.model_type in {"internlm3", "iquestcoder"}  # which transformers does not know: they are Llamas here
    name = "transformers.models.llama.modeling_llama" if kin else of_config.replace(".configuration_", ".modeling_")
    modeling = importlib.import_module(name)
    (made,) = (
        value
        for name, value in vars(modeling).items()
        if name.endswith("RotaryEmbedding") and "Vision" not in name and value.__module__ == modeling.__name__
    )
    return made(config)


def expected(module, positions, **kind):
    cos, sin = module(torch.zeros(1), positions[None], **kind)
    half = cos.shape[-1] // 2
    return torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1)


@pytest.mark.full
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


@pytest.mark.full
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
            head = spec.largest_head if kind == "full_attention" else spec.head_dim
            table, named = rope_table(rope, head, 256, "cpu"), {"layer_type": kind} if spec.local_rope else {}
            assert torch.equal(table.table_PR[-256:], expected(module, torch.arange(256), **named))


def test_ropes_without_a_table():
    with pytest.raises(ValueError, match="dynamic"):
        rope_table(RopeSpec(scaling="dynamic"), 64, 16, "cpu")
    with pytest.raises(ValueError, match="3 factors for 32"):
        rope_table(RopeSpec(scaling="longrope", original_context=8, short_factor=[1.0] * 3), 64, 16, "cpu")
    for scaling in ("llama3", "yarn"):
        with pytest.raises(ValueError, match="original context"):
            rope_table(RopeSpec(scaling=scaling), 64, 16, "cpu")


def test_yarn_is_the_rope_of_transformers_whatever_it_sets():
    usual = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 512}
    for more in (
        {}, {"attention_factor": 0.7}, {"beta_fast": 64.0, "beta_slow": 2.0}, {"truncate": False},
        {"mscale": 1.0, "mscale_all_dim": 0.7}, {"factor": 1.0}, {"original_max_position_embeddings": 131_072},
    ):  # fmt: skip
        config = {**CONFIGS["Qwen/Qwen3-0.6B"], "rope_scaling": {**usual, **more}}
        table = rope_table(decoder_spec(config).rope, 128, 5000, "cpu")
        wanted = expected(rotary(AutoConfig.for_model(**config)), torch.arange(5000))
        assert torch.equal(table.table_PR, wanted), more
        assert table.query_scale_P is None


def test_queries_grow_only_beyond_the_original_context():
    rope = RopeSpec(scaling="yarn", factor=4.0, original_context=64, query_scale=0.1)
    assert rope_table(rope, 64, 64, "cpu").query_scale_P is None
    scales = rope_table(rope, 64, 200, "cpu").query_scale_P
    assert torch.equal(scales, get_llama_4_attn_scale(torch.arange(200)[None], 0.1, 64).flatten())
    assert (scales[63], scales[64] > 1) == (1, True)
