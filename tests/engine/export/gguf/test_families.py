"""Every family's 16-bit file, run by llama.cpp, gives the probabilities that transformers gives in fp32.

What is left is llama.cpp's own rounding: it rounds what goes into a product with an F16 matrix to 16 bits
(ggml-cpu.c, `vec_dot_type`), and looks GELU up in a table of 16-bit floats (ggml_table_gelu_f16). With F32 matrices
the first is gone, and what is left is a thousand times less.
"""

import numpy as np
import pytest
import torch

from burnish_engine.advise.facts.gguf_rules import gguf_refusal
from burnish_engine.contract.errors import UsageError
from burnish_engine.export.checks.contents import check_contents
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.gguf.gguf_runtime import GgufModel

from support.models.export import edit_json, kl_divergence, torch_log_probs, tuned_model, write_16_bit
from support.models.small_families import ORIGINAL_CONTEXT, PUBLISHED, WINDOW, make_small

SHORT, LONG = 200, 300
"""Rows, tokens: within the original context of scaled ropes and beyond it; both beyond every window."""
MOST_KL = 2e-6
MOST_KL_UNROUNDED = 1e-11
MOST_KL_GELU = 1e-7
"""With F32 matrices; Gemma's GELU is still looked up."""


def exact_log_probs(model, ids):
    """log-probabilities [T, V] of fp32 logits, normalized in fp64."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1).numpy()


def no_window(name):
    """llama.cpp computes no window for these, so their files are the models only within it."""
    return PUBLISHED[name]["model_type"] in {"cwm", "ministral", "mistral", "phi3"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_file_computes_what_transformers_computes(name, tmp_path, record_property):
    source = make_small(name, tmp_path / "base")
    model = tuned_model(source, None)
    files = {kind: write_16_bit(source, None, tmp_path, kind=kind) for kind in ("F16", "F32")}
    assert check_contents(files["F16"], Origin(source, None), load_tokenizer(source)) == []
    context = read_header(files["F16"]).number("context_length")
    bounded = no_window(name) and (source.spec.sliding_window or 0) == WINDOW
    assert (context == WINDOW) == bounded
    rng = np.random.default_rng(5)
    worst = dict.fromkeys(files, 0.0)
    for length in (WINDOW,) if bounded else (SHORT, LONG):
        row = rng.integers(0, source.spec.vocab_size, length).tolist()
        wanted = exact_log_probs(model, row)
        assert -(np.exp(wanted) * wanted).sum(-1).mean() < 0.95 * np.log(wanted.shape[1])  # else nothing would show
        # Which factors a longrope takes is up to the context in llama.cpp, to the row in transformers.
        room = ORIGINAL_CONTEXT if length <= ORIGINAL_CONTEXT else 2 * ORIGINAL_CONTEXT
        for kind, path in files.items():
            with GgufModel(path, exact=True, threads=1, context=room) as opened:
                worst[kind] = max(worst[kind], float(kl_divergence(wanted, opened.logits(row)).mean()))
    record_property("mean_kl", str(worst))
    assert worst["F16"] < MOST_KL
    gelu = PUBLISHED[name]["model_type"].startswith("gemma")
    assert worst["F32"] < (MOST_KL_GELU if gelu else MOST_KL_UNROUNDED)


QWEN3_5_ROPE = PUBLISHED["Qwen/Qwen3.5-9B, text"]["rope_parameters"]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL_CONTEXT}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ibm-granite/granite-4.0-micro", {"position_embedding_type": None}),
        ("zai-org/GLM-4-9B-0414", {"rope_scaling": YARN}),
        ("zai-org/glm-4-9b-chat-hf", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        ("Qwen/Qwen3.5-9B, text", {"rope_parameters": {**QWEN3_5_ROPE, **YARN}}),
    ],
)
def test_other_positions_are_the_same_in_llama_cpp(name, changes, tmp_path):
    source = make_small(name, tmp_path / "base", **changes)
    path = write_16_bit(source, None, tmp_path)
    assert check_contents(path, Origin(source, None), load_tokenizer(source)) == []
    row = np.random.default_rng(1).integers(0, 300, SHORT).tolist()
    with GgufModel(path, exact=True, threads=1) as opened:
        kl = kl_divergence(torch_log_probs(tuned_model(source, None), row), opened.logits(row)).mean()
    assert kl < MOST_KL


@pytest.mark.full
def test_gemmas_pattern_is_written_where_it_is_another(tmp_path):
    source = make_small("google/gemma-3-270m", tmp_path / "base")
    usual = read_header(write_16_bit(source, None, tmp_path)).metadata
    assert "gemma3.attention.sliding_window_pattern" not in usual
    kinds = ["sliding_attention", "full_attention"] * 3 + ["sliding_attention"]
    edit_json(source.folder / "config.json", layer_types=kinds)
    source = open_model(str(source.folder))
    path = write_16_bit(source, None, tmp_path)
    pattern = read_header(path).metadata["gemma3.attention.sliding_window_pattern"]
    assert pattern == tuple(kind == "sliding_attention" for kind in kinds)
    row = np.random.default_rng(1).integers(0, 300, SHORT).tolist()
    with GgufModel(path, exact=True, threads=1) as opened:
        kl = kl_divergence(torch_log_probs(tuned_model(source, None), row), opened.logits(row)).mean()
    assert kl < MOST_KL


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("google/gemma-3-270m", {"query_pre_attn_scalar": 100}, "scales its queries by 0.1"),
        ("google/gemma-3-270m", {"hidden_activation": "gelu"}, "activation 'gelu'"),
        ("google/gemma-3-270m", {"use_bidirectional_attention": True}, "see later ones"),
        ("LiquidAI/LFM2-350M", {"conv_bias": True}, "biases in its convolutions"),
        ("allenai/OLMo-2-0425-1B-Instruct", {"tie_word_embeddings": True}, "no head of its own"),
        ("allenai/OLMo-2-0425-1B-Instruct", {"attention_bias": True}, "biases in its attention"),
    ],
)
def test_what_llama_cpp_does_not_compute_is_refused(tmp_path, name, changes, words):
    source = make_small(name, tmp_path / "base", **changes)
    with pytest.raises(UsageError, match=words):
        write_16_bit(source, None, tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("allenai/Olmo-3-7B-Instruct", {}, ""),
        ("allenai/Olmo-3-7B-Instruct", {"layer_types": ["full_attention"] * 32}, "windows in other layers"),
        ("allenai/Olmo-3-7B-Instruct", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "linear rope"),
        ("allenai/Olmo-3-7B-Instruct", {"rope_scaling": {"rope_type": "yarn", "factor": 0.0}}, ""),
        (
            "allenai/Olmo-3-7B-Instruct",
            {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.5}},
            "yarn rope of its own",
        ),
        ("allenai/Olmo-3-7B-Instruct", {"rope_theta": 1e4}, "other positions in its local layers"),
        ("zai-org/GLM-4-9B-0414", {"rope_scaling": YARN}, ""),
        ("zai-org/GLM-4-9B-0414", {"rope_scaling": {**YARN, "beta_fast": 64.0}}, "yarn rope of its own"),
        ("zai-org/GLM-4-9B-0414", {"rope_scaling": {**YARN, "rope_type": "llama3"}}, "has llama3 rope"),
        ("zai-org/GLM-4-9B-0414", {"head_dim": 64}, ""),
        ("zai-org/glm-4-9b-chat-hf", {"head_dim": 64}, "heads that do not make up its width"),
        ("swiss-ai/Apertus-8B-Instruct-2509", {}, ""),
        ("swiss-ai/Apertus-8B-Instruct-2509", {"tie_word_embeddings": True}, "has no head of its own"),
        ("swiss-ai/Apertus-8B-Instruct-2509", {"hidden_act": "silu"}, "where xielu is expected"),
        ("Qwen/Qwen3.5-9B, text", {}, ""),
        ("Qwen/Qwen3.5-9B, text", {"linear_key_head_dim": 64}, "keys and values differ in size"),
        ("Qwen/Qwen3.5-9B, text", {"rms_norm_eps": 1e-5}, "epsilon of 1e-05"),
        ("Qwen/Qwen3.5-9B, text", {"attention_bias": True}, "biases in its attention"),
        ("Qwen/Qwen3.5-9B, text", {"rope_parameters": {**QWEN3_5_ROPE, "mrope_section": [8, 8, 16]}}, "fewer pairs"),
        ("Qwen/Qwen3.5-9B, text", {"rope_parameters": {**QWEN3_5_ROPE, **YARN, "beta_fast": 64.0}}, "yarn rope of its"),
        ("Granite SWA, made up", {}, ""),
        ("Granite SWA, made up", {"sliding_window": None, "layer_types": ["full_attention"] * 24}, "has no window"),
    ],
)
def test_what_llama_cpp_fixes_is_the_models_own(name, changes, words):
    config = {**PUBLISHED[name], **changes}
    refused = gguf_refusal(config["model_type"], decoder_spec(config), config)
    assert (words in refused.what) if words else refused is None


def test_layers_with_different_ropes_are_no_granite():
    config = PUBLISHED["Granite SWA, made up"]
    assert decoder_spec({**config, "layer_rope_theta": [1e4, 2e4] * 12}) is None


def test_the_head_of_layers_without_keys_is_zero(tmp_path):
    source = make_small("LiquidAI/LFM2-350M", tmp_path / "base")
    header = read_header(write_16_bit(source, None, tmp_path))
    assert header.metadata["lfm2.attention.head_count_kv"] == (0, 0, 2, 0, 0, 2)
    assert header.queries_per_key == 0
    kernel = next(tensor for tensor in header.tensors if tensor.name == "blk.0.shortconv.conv.weight")
    assert (kernel.type, kernel.shape) == ("F32", (source.spec.hidden_size, 3))
    assert torch.tensor(kernel.shape).prod() > 0
