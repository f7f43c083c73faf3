"""Mixtures of experts as GGUF files: llama.cpp computes what transformers computes, and every tensor is the model's."""

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

from burnish_engine.advise.facts.gguf_size import file_shapes
from burnish_engine.contract.errors import UsageError
from burnish_engine.export.checks.contents import check_contents
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.gguf.planned_tensors import repack
from burnish_engine.export.verify.limits import ROUNDED_ROPE_KL
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.gguf.gguf_runtime import GgufModel
from burnish_kernels.moe_unpack.reference import mxfp4_values

from support.models.export import kl_divergence, torch_log_probs, tuned_model, write_16_bit
from support.models.gguf_edit import edit_gguf
from support.models.small_mixtures import GPT_OSS, PUBLISHED, adapt_experts, make_mixture, whole_pairs

QWEN, QWEN_2, OLMOE, MIXTRAL, LFM2, QWEN3_5, MELLUM, MINIMAX, GRANITE, GEMMA4 = (
    name for name in PUBLISHED if name != GPT_OSS
)
ROW = 300
"""Length of a row, tokens: beyond every window and every original context."""
MOST_DIFFERENCE = 1e-4
"""Largest difference of a logit with F32 matrices, where logits spread by 0.8. Rounded matrices would send nearly tied
tokens to other experts."""
MOST_DIFFERENCE_GELU = 3e-3
"""The same where experts have GELU, which llama.cpp reads from a table in fp16."""


def logits(model, row):
    with torch.no_grad():
        return model(torch.tensor([row])).logits[0].float().numpy()


def tensors_of(path):
    return {one.name: dequantize(one.data, one.tensor_type) for one in GGUFReader(path).tensors}


def expert_tensors(source, layer):
    """The experts of a layer as transformers has them in memory: gates, ups and downs [experts, out, in]."""
    places = ("mlp.", "feed_forward.", "block_sparse_moe.", "")
    ends = tuple(f"layers.{layer}.{place}experts" for place in places)
    module = next(module for name, module in tuned_model(source, None).named_modules() if name.endswith(ends))
    gate_up, down = module.gate_up_proj.detach(), module.down_proj.detach()
    if module.is_transposed:
        gate_up, down = gate_up.transpose(1, 2), down.transpose(1, 2)
    gate, up = (gate_up[:, ::2], gate_up[:, 1::2]) if module.is_transposed else gate_up.chunk(2, dim=1)
    return {"gate": gate.numpy(), "up": up.numpy(), "down": down.numpy()}


@pytest.mark.full
@pytest.mark.parametrize("adapted", [False, True], ids=["base", "adapted"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_llama_cpp_computes_what_transformers_computes(name, adapted, tmp_path, record_property):
    source = make_mixture(name, tmp_path / "base", **whole_pairs(name))
    adapter = adapt_experts(source, tmp_path / "adapter") if adapted else None
    row = np.random.default_rng(5).integers(0, 300, ROW).tolist()
    path = write_16_bit(source, adapter, tmp_path, kind="F32")
    assert check_contents(path, Origin(source, adapter), load_tokenizer(source)) == []
    wanted = logits(tuned_model(source, adapter), row)
    with GgufModel(path, exact=True, threads=1, context=512) as opened:
        difference = float(np.abs(opened.logits(row) - wanted).max())
    record_property("largest difference of logits", difference)
    assert wanted.std() > 0.3  # else nothing would show
    assert difference < (MOST_DIFFERENCE_GELU if name == GEMMA4 else MOST_DIFFERENCE)


@pytest.mark.full
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_stacks_are_those_of_transformers(name, tmp_path):
    source = make_mixture(name, tmp_path / "base")
    held = tensors_of(write_16_bit(source, None, tmp_path, kind="F32"))
    layer = source.spec.num_layers - 1
    for part, stack in expert_tensors(source, layer).items():
        np.testing.assert_array_equal(held[f"blk.{layer}.ffn_{part}_exps.weight"], stack)
    assert read_header(tmp_path / "tiny-F32.gguf").number("expert_count") == source.spec.experts.count


@pytest.mark.full
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_specs_matrices_are_the_files(name, tmp_path):
    source = make_mixture(name, tmp_path / "base", mxfp4=name == GPT_OSS)
    found = read_header(write_16_bit(source, None, tmp_path)).tensors
    spec = source.spec.model_copy(update={"vocab_size": source.rows})
    predicted, written = (
        {(one.name, one.shape, one.type) for one in tensors if len(one.shape) > 1}
        for tensors in (file_shapes(spec), found)
    )
    assert predicted == written


@pytest.mark.full
@pytest.mark.parametrize("name", PUBLISHED)
def test_routers_and_biases_stay_in_fp32(name, tmp_path):
    source = make_mixture(name, tmp_path / "base")
    tensors = read_header(write_16_bit(source, None, tmp_path)).tensors
    types, layer = {one.name.partition(".weight")[0]: one.type for one in tensors}, source.spec.num_layers - 1
    assert types[f"blk.{layer}.ffn_gate_inp"] == "F32"
    assert types[f"blk.{layer}.ffn_down_exps"] == "F16"
    if name == LFM2:
        assert types[f"blk.{layer}.exp_probs_b.bias"] == "F32"
        assert "blk.0.ffn_gate" in types
    if name == GPT_OSS:
        assert types[f"blk.{layer}.attn_sinks"] == types[f"blk.{layer}.ffn_up_exps.bias"] == "F32"


@pytest.mark.full
def test_mxfp4_is_written_bit_for_bit(tmp_path):
    source = make_mixture(GPT_OSS, tmp_path / "base", mxfp4=True)
    path = write_16_bit(source, None, tmp_path)
    assert check_contents(path, Origin(source, None), load_tokenizer(source)) == []
    held, kinds = tensors_of(path), {one.name: one.type for one in read_header(path).tensors}
    for part, stack in expert_tensors(source, 1).items():
        assert kinds[f"blk.1.ffn_{part}_exps.weight"] == "MXFP4"
        np.testing.assert_array_equal(held[f"blk.1.ffn_{part}_exps.weight"], stack)


def test_every_code_and_exponent_of_mxfp4_keeps_its_value():
    rng = np.random.default_rng(0)
    blocks = torch.from_numpy(rng.integers(0, 256, (253, 2, 16), dtype=np.uint8))
    scales = torch.arange(253, dtype=torch.uint8)[:, None].repeat(1, 2)
    from gguf import GGMLQuantizationType

    found = dequantize(repack(blocks, scales).numpy(), GGMLQuantizationType.MXFP4)
    np.testing.assert_array_equal(found, mxfp4_values(blocks, scales).numpy())


def test_only_adapted_stacks_leave_mxfp4(tmp_path):
    source = make_mixture(GPT_OSS, tmp_path / "base", mxfp4=True)
    adapter = adapt_experts(source, tmp_path / "adapter", targets=["q_proj", "down_proj"])
    path = write_16_bit(source, adapter, tmp_path)
    kinds = {one.name: one.type for one in read_header(path).tensors}
    assert [kinds[f"blk.0.ffn_{part}_exps.weight"] for part in ("gate", "up", "down")] == ["MXFP4", "MXFP4", "F16"]
    assert check_contents(path, Origin(source, adapter), load_tokenizer(source)) == []


@pytest.mark.full
@pytest.mark.parametrize("name", [QWEN, GPT_OSS])
def test_a_chat_with_the_file_goes_as_with_the_model(name, tmp_path):
    source = make_mixture(name, tmp_path / "base", mxfp4=name == GPT_OSS, **whole_pairs(name))
    adapter = adapt_experts(source, tmp_path / "adapter", targets=["q_proj", "v_proj", "down_proj"])
    path = write_16_bit(source, adapter, tmp_path, kind="F32")
    row = load_tokenizer(source)("My lamp is broken?")["input_ids"]
    model, told, wanted = tuned_model(source, adapter), list(row), list(row)
    with GgufModel(path, exact=True, threads=1, context=512) as opened:
        for _ in range(20):
            told.append(int(opened.logits(told)[-1].argmax()))
        reply = opened.generate(row, Sampling(max_tokens=20)).finish()
    for _ in range(20):
        wanted.append(int(logits(model, wanted)[-1].argmax()))
    assert told == wanted
    assert len(set(told[len(row) :])) > 2
    assert reply.tokens == 20


@pytest.mark.full
def test_gpt_oss_rounds_its_rope_only_in_llama_cpp(tmp_path):
    """The file of a model whose bounds are not whole differs a little, as the report says."""
    source = make_mixture(GPT_OSS, tmp_path / "base")
    path = write_16_bit(source, None, tmp_path, kind="F32")
    row = np.random.default_rng(5).integers(0, 300, ROW).tolist()
    with GgufModel(path, exact=True, threads=1, context=512) as opened:
        kl = kl_divergence(torch_log_probs(tuned_model(source, None), row), opened.logits(row)).mean()
    assert 1e-6 < kl < ROUNDED_ROPE_KL


def damage(name, expert, row):
    def change(held):
        held[name][expert, row] = held[name][expert, row][::-1].copy()

    return change


@pytest.mark.parametrize(("name", "mxfp4"), [(QWEN, False), (GPT_OSS, True)])
def test_a_damaged_row_of_an_expert_is_found(name, mxfp4, tmp_path):
    source = make_mixture(name, tmp_path / "base", mxfp4=mxfp4)
    path = write_16_bit(source, None, tmp_path)
    broken = edit_gguf(path, tmp_path / "broken.gguf", tensors=damage("blk.1.ffn_up_exps.weight", 2, 5))
    (problem,) = check_contents(broken, Origin(source, None), load_tokenizer(source))
    assert "blk.1.ffn_up_exps.weight" in problem
    assert "row 5 of 64 of expert 2" in problem


def test_experts_that_changed_places_are_found(tmp_path):
    source = make_mixture(OLMOE, tmp_path / "base")

    def swap(held):
        held["blk.0.ffn_down_exps.weight"][[1, 3]] = held["blk.0.ffn_down_exps.weight"][[3, 1]]

    broken = edit_gguf(write_16_bit(source, None, tmp_path), tmp_path / "broken.gguf", tensors=swap)
    (problem,) = check_contents(broken, Origin(source, None), load_tokenizer(source))
    assert "changed places" in problem
    assert "experts 1, 3 of 8" in problem


def test_a_wrong_number_of_a_tokens_experts_is_found(tmp_path):
    source = make_mixture(LFM2, tmp_path / "base")

    def fewer(keys):
        keys["lfm2moe.expert_used_count"] = 1
        keys["lfm2moe.expert_gating_func"] = 1

    broken = edit_gguf(write_16_bit(source, None, tmp_path), tmp_path / "broken.gguf", metadata=fewer)
    problems = " ".join(check_contents(broken, Origin(source, None), load_tokenizer(source)))
    assert "expert_used_count" in problems
    assert "expert_gating_func" in problems


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (QWEN, {"norm_topk_prob": False}, "add up to 1"),
        (QWEN, {"mlp_only_layers": [0]}, "layers without experts"),
        (QWEN_2, {"norm_topk_prob": True}, "add up to 1"),
        (QWEN_2, {"tie_word_embeddings": True}, "no head of its own"),
        (OLMOE, {"clip_qkv": 8.0}, "bounds its queries"),
        (OLMOE, {"norm_topk_prob": True}, "add up to 1"),
        (OLMOE, {"num_key_value_heads": 2}, "fewer key heads"),
        (LFM2, {"use_expert_bias": False}, "without a bias"),
        (LFM2, {"routed_scaling_factor": 2.5}, "multiplies the weights"),
        (GPT_OSS, {"swiglu_limit": 5.0}, "activations otherwise"),
        (GPT_OSS, {"tie_word_embeddings": True}, "no head of its own"),
    ],
)
def test_what_llama_cpp_does_not_compute_is_refused(name, changes, words, tmp_path):
    source = make_mixture(name, tmp_path / "base", **changes)
    with pytest.raises(UsageError, match=words):
        write_16_bit(source, None, tmp_path)
