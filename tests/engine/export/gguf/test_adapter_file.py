"""An adapter alone as a GGUF: llama.cpp adds it to the base's file and computes what transformers and PEFT compute."""

import numpy as np
import pytest
from peft import LoraConfig

from burnish_engine.contract.errors import NoSpaceError, SetupError, UsageError
from burnish_engine.export.gguf.adapter_file import export_adapter_gguf
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.gguf.gguf_runtime import GgufModel

from support.models.export import (
    kl_divergence,
    make_adapter,
    rows,
    torch_log_probs,
    tuned_model,
    with_adapter_kl,
    write_16_bit,
)
from support.models.small_families import make_small

PATTERNS = LoraConfig(
    r=4, lora_alpha=8, target_modules="all-linear", use_rslora=True, rank_pattern={"q_proj": 8, "down_proj": 2},
    alpha_pattern={"v_proj": 3, r"layers\.1\.mlp\.up_proj": 20}, task_type="CAUSAL_LM",
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", [
    "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B", "google/gemma-3-270m", "LiquidAI/LFM2-350M",
    "microsoft/Phi-4-mini-instruct", "HuggingFaceTB/SmolLM3-3B", "ibm-granite/granite-4.0-micro",
    "allenai/OLMo-2-0425-1B-Instruct", "Qwen/Qwen3.5-0.8B, text", "Qwen/Qwen3.5-9B, text",
])  # fmt: skip
def test_base_and_adapter_are_the_trained_model(name, tmp_path):
    source = make_small(name, tmp_path / "base")
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", use_rslora=True, task_type="CAUSAL_LM")
    adapter = make_adapter(source, tmp_path / "adapter", config=config)
    base = write_16_bit(source, None, tmp_path)
    path = export_adapter_gguf(source, adapter, tmp_path / "out", "my tune")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["my tune-lora.gguf"]
    row = np.random.default_rng(2).integers(0, source.spec.vocab_size, 48).tolist()
    model = tuned_model(source, adapter)
    assert with_adapter_kl(base, path, model, row) < 5e-6
    with GgufModel(base, exact=True, threads=1) as opened:
        assert kl_divergence(torch_log_probs(model, row), opened.logits(row)).mean() > 1e-3


@pytest.mark.full
def test_rank_and_alpha_patterns_and_rslora_are_baked_in(wide, tmp_path):
    adapter = make_adapter(wide, tmp_path / "adapter", config=PATTERNS)
    base = write_16_bit(wide, None, tmp_path)
    path = export_adapter_gguf(wide, adapter, tmp_path / "out", "x")
    assert with_adapter_kl(base, path, tuned_model(wide, adapter), rows(wide, 1)[0]) < 2e-6
    shapes = {tensor.name: tensor.shape for tensor in read_header(path).tensors}
    assert shapes["blk.0.attn_q.weight.lora_a"] == (8, 256)
    assert shapes["blk.1.ffn_down.weight.lora_b"] == (256, 2)


@pytest.mark.full
def test_it_works_on_a_quantized_base(wide, wide_adapter, tmp_path):
    from burnish_engine.export.quantize.quantize import quantize

    base = write_16_bit(wide, None, tmp_path)
    made = quantize(base, tmp_path / "q8.gguf", "Q8_0", threads=1)
    path = export_adapter_gguf(wide, wide_adapter, tmp_path / "out", "x")
    assert with_adapter_kl(made.path, path, tuned_model(wide, wide_adapter), rows(wide, 1)[0]) < 1e-3


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (LoraConfig(r=4, target_modules=["q_proj"], use_dora=True), "is a DoRA adapter"),
        (LoraConfig(r=4, target_modules=["q_proj", "embed_tokens"]), "changes an embedding"),
        (LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["norm"]), "replaces whole tensors"),
    ],
)
def test_what_llama_cpp_cannot_add_is_refused_with_what_to_do(wide, tmp_path, config, words):
    adapter = make_adapter(wide, tmp_path / "adapter", config=config)
    with pytest.raises(UsageError, match=words) as caught:
        export_adapter_gguf(wide, adapter, tmp_path / "out", "x")
    assert "Export it merged" in caught.value.remedy
    assert not (tmp_path / "out").exists()


def test_another_base_is_told(wide, tmp_path):
    other = make_small("HuggingFaceTB/SmolLM2-135M", tmp_path / "other")
    adapter = make_adapter(other, tmp_path / "adapter")
    with pytest.raises(SetupError, match="has the shape"):
        export_adapter_gguf(wide, adapter, tmp_path / "out", "x")


def test_a_full_disk_leaves_nothing(wide, wide_adapter, tmp_path, monkeypatch):
    from gguf import GGUFWriter

    def full(self, *_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(NoSpaceError, match="disk is full"):
        export_adapter_gguf(wide, wide_adapter, tmp_path / "out", "x")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
@pytest.mark.long  # fetches llama.cpp's source, as the other converter's test does
def test_the_same_tensors_as_llama_cpps_own_converter(wide, wide_adapter, tmp_path, llama_source):
    """Of a plain LoRA; theirs leaves rsLoRA and patterns out."""
    from gguf import GGUFReader

    from support.models.llama_source import convert

    path = export_adapter_gguf(wide, wide_adapter, tmp_path / "out", "x")
    target = tmp_path / "theirs.gguf"
    convert(
        llama_source,
        "convert_lora_to_gguf.py",
        wide_adapter,
        "--base",
        wide.folder,
        "--outtype",
        "f32",
        "--outfile",
        target,
    )
    ours = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
    theirs = {tensor.name: tensor.data for tensor in GGUFReader(target).tensors}
    assert ours.keys() == theirs.keys()
    for name, data in theirs.items():
        np.testing.assert_array_equal(ours[name], data, err_msg=name)
