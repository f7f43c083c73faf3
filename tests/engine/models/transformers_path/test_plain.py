"""Models as transformers loads them for training: every weight a number that has a gradient."""

import pytest
import torch
from transformers.quantizers import quantizer_mxfp4

from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path.plain import load_base

from support.models.catalog_models import pack_mxfp4, save_plain
from support.models.tiny import make_tokenizer

GPT_OSS = {
    "model_type": "gpt_oss", "vocab_size": 600, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "num_local_experts": 2,
    "num_experts_per_tok": 1, "initializer_range": 0.1, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("has_kernels", [False, True])
def test_experts_stored_in_4_bits_are_unpacked_whatever_is_installed(tmp_path, monkeypatch, has_kernels):
    """transformers would keep them packed, without a backward pass, where a GPU and its kernels' package are there."""
    make_tokenizer(tmp_path)
    save_plain(tmp_path, GPT_OSS)
    exact = load_base(open_model(str(tmp_path)), "fp32", torch.device("cpu"))
    pack_mxfp4(tmp_path)
    if has_kernels:
        monkeypatch.setattr(quantizer_mxfp4, "is_kernels_available", lambda: True)
        monkeypatch.setattr(quantizer_mxfp4, "get_current_accelerator", lambda: torch.device("cuda"))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    loaded = load_base(open_model(str(tmp_path)), "fp32", torch.device("cpu"))
    for (name, found), (_, wanted) in zip(loaded.named_parameters(), exact.named_parameters(), strict=True):
        assert found.dtype == torch.float32
        off = float((found - wanted).norm())
        assert off < 0.15 * float(wanted.norm()) if name.endswith("_proj") else off == 0.0, name
