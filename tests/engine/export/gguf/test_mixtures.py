"""Mixtures of experts as GGUF files: llama.cpp computes what transformers computes, and every tensor is the model's."""

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import load_file

from burnish_engine.contract.errors import UsageError
from burnish_engine.export.checks.contents import check_contents
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.gguf.header import read_header
from burnish_engine.export.gguf.mxfp4 import repack
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.gguf.gguf_runtime import GgufModel

from support.export import kl_divergence, torch_log_probs, tuned_model, write_16_bit
from support.small_mixtures import GPT_OSS, PUBLISHED, adapt_experts, make_mixture

ROW = 300
"""Length of a row, tokens: beyond every window and every original context."""
MOST_KL = 1e-5
MOST_DIFFERENCE = 0.01


def is_long(name):
    return pytest.param(name, marks=() if name in {GPT_OSS, "LiquidAI/LFM2-8B-A1B"} else pytest.mark.long)


def rounded_rope(name):
    """gpt-oss with bounds of its rope rounded as llama.cpp rounds them: then the two compute the same."""
    if name != GPT_OSS:
        return {}
    return {"rope_scaling": {**PUBLISHED[name]["rope_scaling"], "truncate": True, "original_max_position_embeddings": 256}}


@pytest.mark.parametrize("adapted", [False, True], ids=["base", "adapted"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_file_computes_what_transformers_computes(name, adapted, tmp_path, record_property):
    source = make_mixture(name, tmp_path / "base", **rounded_rope(name))
    adapter = adapt_experts(source, tmp_path / "adapter") if adapted else None
    model, row = tuned_model(source, adapter), np.random.default_rng(5).integers(0, 300, ROW).tolist()
    path = write_16_bit(source, adapter, tmp_path, kind="F32")
    assert check_contents(path, Origin(source, adapter), load_tokenizer(source)) == []
    with torch.no_grad():
        wanted = model(torch.tensor([row])).logits[0].float().numpy()
    with GgufModel(path, exact=True, threads=1, context=512) as opened:
        found = opened.logits(row)
    record_property("largest difference of logits", float(np.abs(found - wanted).max()))
    assert np.abs(found - wanted).max() < MOST_DIFFERENCE
