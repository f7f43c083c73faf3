"""llama.cpp's own converter makes the same tensors, bit for bit, and says the same about them."""

import json
import shutil

import numpy as np
import pytest
from gguf import GGUFReader

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.models.checkpoint.source import open_model

from support.models.catalog_models import small_checkpoint
from support.models.export import edit_json, write_16_bit
from support.models.llama_source import convert
from support.models.small_families import PUBLISHED, make_small
from support.models.small_mixtures import GPT_OSS, make_mixture
from support.models.small_mixtures import PUBLISHED as MIXTURES
from support.models.tiny import make_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.long]

OURS_ALONE = {
    # Ours says what llama.cpp would assume, so that other programs need not know its assumptions.
    "attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa",
    "vocab_size",
    "final_logit_softcapping", "rope.scaling.finetuned", "expert_feed_forward_length",
    "attention.rope_pattern",  # the converter reads it from a key that transformers does not write
}  # fmt: skip
BOUNDED = {"cwm", "ministral", "mistral", "phi3"}
"""Families whose context length we bound by the window that llama.cpp does not compute."""
UNKNOWN = {"kyutai/helium-1-preview-2b"}
"""Models that the converter does not know, nor by another name."""
KNOWN_AS = {"cwm": "LlamaForCausalLM", "ministral": "LlamaForCausalLM"}
"""Family to the name of a class that the converter knows and that differs by windows alone."""
AS_VECTOR = "ffn_gate_inp_shexp.weight"
"""Matrix of one row, which is a vector in ours, and in all that llama.cpp's quantizer makes."""
TOGETHER = "ffn_gate_up_exps.weight"
"""Matrix of Gemma 4's experts that the converter leaves whole, and ours writes as two like all others."""
READ_OTHERWISE = {
    "glm": {"context_length", "attention.layer_norm_rms_epsilon", "rope.freq_base"},
    "hunyuan_v1_dense": {
        "context_length",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
    },
}
"""Family to what the converter does not take from the keys that transformers reads, but guesses."""


def contents(path):
    reader = GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items()}
    return keys, {tensor.name: tensor for tensor in reader.tensors}


IN_16_BITS = f"{GPT_OSS} in 16 bits"
WRAPPED = ("Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-35B-A3B")
"""Models of the catalog with a part for images and a layer for multi-token prediction."""


def tokenizer_with_a_user(folder):
    """A tokenizer with the token that ends a turn of GLM, which the converter looks for."""
    made = make_tokenizer(folder)
    made.add_tokens("<|user|>", special_tokens=True)
    made.save_pretrained(folder)
    return made


def make(name, folder):
    """A small model; gpt-oss with its experts in MXFP4, as it is published, or in bf16."""
    if name == IN_16_BITS:
        return make_mixture(GPT_OSS, folder)
    if name in WRAPPED:
        return open_model(str(small_checkpoint(find_model(name), folder)))
    if name in MIXTURES:
        return make_mixture(name, folder, mxfp4=name == GPT_OSS)
    return make_small(name, folder, tokenizer=tokenizer_with_a_user if "glm" in name.lower() else make_tokenizer)


def compare_together(ours, theirs):
    """Compare what theirs holds in one matrix and ours in two, and drop it: llama.cpp takes both forms."""
    for name in [name for name in theirs if name.endswith(TOGETHER)]:
        parts = [ours.pop(name.replace("gate_up", part)) for part in ("gate", "up")]
        np.testing.assert_array_equal(np.concatenate([one.data for one in parts], axis=1), theirs.pop(name).data)


def published_form(path, config):
    """Name in config.json what the converter knows by other names than transformers writes."""
    if config["model_type"] == "granitemoehybrid":
        edit_json(path, layer_types=["attention"] * config["num_hidden_layers"])
    if config["model_type"] in KNOWN_AS:
        edit_json(path, architectures=[KNOWN_AS[config["model_type"]]])


@pytest.mark.parametrize(
    "name", [name for name in (*PUBLISHED, *MIXTURES, IN_16_BITS, *WRAPPED) if name not in UNKNOWN]
)
def test_the_same_tensors_as_llama_cpps_own_converter(llama_source, name, tmp_path):
    source = make(name, tmp_path / "base")
    ours_keys, ours = contents(write_16_bit(source, None, tmp_path))
    folder = tmp_path / "theirs"
    shutil.copytree(source.folder, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "GPT2Tokenizer"}))
    config = json.loads((folder / "config.json").read_text())
    published_form(folder / "config.json", config)
    options = ["--outtype", "f16", "--outfile", tmp_path / "theirs.gguf"]
    if "qwen3_5" in config["model_type"] and name not in WRAPPED:  # it takes such layers for granted
        options.append("--no-mtp")
    convert(llama_source, "convert_hf_to_gguf.py", folder, *options)
    theirs_keys, theirs = contents(tmp_path / "theirs.gguf")
    compare_together(ours, theirs)
    assert ours.keys() == theirs.keys()
    for tensor in theirs.values():
        mine = ours[tensor.name]
        wanted = tensor.data.squeeze() if tensor.name.endswith(AS_VECTOR) else tensor.data
        rows = len(wanted)  # their Gemma drops the rows of the embedding that no token has
        assert mine.tensor_type == tensor.tensor_type, tensor.name
        if tensor.name == "rope_freqs.weight":  # theirs is computed in fp32, ours in fp64
            np.testing.assert_allclose(mine.data, tensor.data, rtol=1e-6)
            continue
        np.testing.assert_array_equal(mine.data[:rows], wanted, err_msg=tensor.name)
        assert rows == len(mine.data) or tensor.name == "token_embd.weight"
    prefix = f"{ours_keys['general.architecture']}."
    assert ours_keys["general.architecture"] == theirs_keys["general.architecture"]
    for key in theirs_keys:
        if key.startswith((prefix, "xielu.")):
            short = key.removeprefix(prefix)
            if short == "context_length" and config["model_type"] in BOUNDED and config.get("sliding_window"):
                continue
            if config["model_type"] == "granitemoehybrid" and short.startswith(("ssm.", "expert_")):
                continue  # of Granite 4 with Mamba layers or experts
            if short in READ_OTHERWISE.get(config["model_type"], ()):
                continue
            wanted = theirs_keys[key]
            if short == "rope.scaling.attn_factor" or isinstance(wanted, float):
                assert ours_keys.get(key) == pytest.approx(wanted, rel=1e-6), key
            elif isinstance(wanted, list) and not isinstance(ours_keys[key], list):
                assert set(wanted) == {ours_keys[key]}, key
            else:
                assert ours_keys.get(key) == wanted, key
    extra = {key.removeprefix(prefix) for key in ours_keys.keys() - theirs_keys.keys() if key.startswith(prefix)}
    assert extra <= OURS_ALONE
