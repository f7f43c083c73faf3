"""An adapter on experts alone as a GGUF: llama.cpp adds each expert's to the base, as transformers and PEFT do."""

import numpy as np
import pytest
from gguf import GGUFReader
from peft import LoraConfig

from burnish_engine.export.gguf.adapter_file import export_adapter_gguf
from burnish_engine.export.weights.each_expert import export_adapter_by_expert
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.gguf.gguf_runtime import GgufModel

from support.models.export import (
    kl_divergence,
    make_adapter,
    torch_log_probs,
    tuned_model,
    with_adapter_kl,
    write_16_bit,
)
from support.models.llama_source import convert
from support.models.small_mixtures import GPT_OSS, PUBLISHED, adapt_experts, make_mixture, whole_pairs

ROW = np.random.default_rng(2).integers(0, 300, 48).tolist()  # within every window and original context


def is_usual(name):
    return pytest.param(name, marks=() if name in {GPT_OSS, "Qwen/Qwen3-30B-A3B"} else pytest.mark.long)


@pytest.mark.full
@pytest.mark.parametrize("name", [is_usual(name) for name in PUBLISHED])
def test_base_and_adapter_are_the_trained_model(name, tmp_path):
    source = make_mixture(name, tmp_path / "base", **whole_pairs(name))
    adapter = adapt_experts(source, tmp_path / "adapter", rank=3, alpha=12)
    base = write_16_bit(source, None, tmp_path, kind="F32")
    path = export_adapter_gguf(source, adapter, tmp_path / "out", "my tune")
    model = tuned_model(source, adapter)
    assert with_adapter_kl(base, path, model, ROW) < 1e-7
    with GgufModel(base, exact=True, threads=1) as opened:
        assert kl_divergence(torch_log_probs(model, ROW), opened.logits(ROW)).mean() > 1e-3


def test_experts_have_ranks_and_scales_of_their_own(tmp_path):
    source = make_mixture("Qwen/Qwen3-30B-A3B", tmp_path / "base")
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj"], task_type="CAUSAL_LM", use_rslora=True,
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
        rank_pattern={"mlp.experts.down_proj": 1}, alpha_pattern={"mlp.experts.gate_up_proj": 20},
    )  # fmt: skip
    adapter = make_adapter(source, tmp_path / "adapter", config=config)
    base = write_16_bit(source, None, tmp_path, kind="F32")
    path = export_adapter_gguf(source, adapter, tmp_path / "out", "x")
    shapes = {tensor.name: tensor.shape for tensor in read_header(path).tensors}
    assert shapes["blk.0.ffn_up_exps.weight.lora_a"] == shapes["blk.0.ffn_gate_exps.weight.lora_a"] == (8, 4, 128)
    assert shapes["blk.0.ffn_up_exps.weight.lora_b"] == (8, 64, 4)
    assert shapes["blk.1.ffn_down_exps.weight.lora_a"] == (8, 1, 64)
    assert with_adapter_kl(base, path, tuned_model(source, adapter), ROW) < 1e-7


def test_it_works_without_other_targets_and_on_a_quantized_base(tmp_path):
    from burnish_engine.export.quantize.quantize import quantize

    source = make_mixture(GPT_OSS, tmp_path / "base", mxfp4=True, **whole_pairs(GPT_OSS))
    adapter = adapt_experts(source, tmp_path / "adapter", targets=["down_proj"])
    made = quantize(write_16_bit(source, None, tmp_path), tmp_path / "q8.gguf", "Q8_0", threads=1)
    path = export_adapter_gguf(source, adapter, tmp_path / "out", "x")
    model = tuned_model(source, adapter)
    with_it = with_adapter_kl(made.path, path, model, ROW)
    with GgufModel(made.path, exact=True, threads=1) as opened:
        without = kl_divergence(torch_log_probs(model, ROW), opened.logits(ROW)).mean()
    assert with_it < without / 4


@pytest.mark.slow
@pytest.mark.long  # fetches llama.cpp's source, as the other converter's test does
@pytest.mark.parametrize("name", [name for name in PUBLISHED if name != GPT_OSS])
def test_the_same_tensors_as_llama_cpps_own_converter(name, tmp_path, llama_source):
    """The converter is given every expert's matrices apart, the only form that it reads."""
    source = make_mixture(name, tmp_path / "base")
    adapter = adapt_experts(
        source, tmp_path / "adapter", rank=4, alpha=8, expert_rank=4, targets=["gate_up_proj", "down_proj"]
    )
    path, separate = export_adapter_gguf(source, adapter, tmp_path / "out", "x"), tmp_path / "separate"
    export_adapter_by_expert(source, adapter, separate)
    options = ["--base", source.folder, "--outtype", "f32", "--outfile", tmp_path / "theirs.gguf"]
    convert(llama_source, "convert_lora_to_gguf.py", separate, *options)
    ours, theirs = (
        {tensor.name: tensor.data for tensor in GGUFReader(file).tensors} for file in (path, tmp_path / "theirs.gguf")
    )
    assert ours.keys() == theirs.keys()
    for key, data in theirs.items():
        np.testing.assert_array_equal(ours[key], data, err_msg=key)
