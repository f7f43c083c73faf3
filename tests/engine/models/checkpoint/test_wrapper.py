"""A language model inside a model with further parts: found, named, loaded on both paths, and refused where damaged."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.checkpoint.wrapper import WRAPPERS, text_part
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.families import why_not_fast
from burnish_engine.models.transformers_path.plain import load_base

from support.models import parity
from support.models.catalog_models import save_wrapped
from support.models.export import CPU, edit_json
from support.models.tiny import make_tokenizer

HUB_GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
    "eos_token_id": [1, 106], "image_token_index": 262144, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16", "vision_config": {"model_type": "siglip_vision_model"},
}  # fmt: skip
"""config.json of google/gemma-3-4b-it."""
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "vocab_size": 384, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GEMMA = {
    **SIZES, "model_type": "gemma3_text", "head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "tie_word_embeddings": True,
}  # fmt: skip
MISTRAL = {**SIZES, "model_type": "mistral", "head_dim": 16, "sliding_window": None, "tie_word_embeddings": False}
QWEN = {**SIZES, "model_type": "qwen2", "tie_word_embeddings": False}
LLAMA = {**SIZES, "model_type": "llama", "tie_word_embeddings": False}
LFM2 = {**SIZES, "model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"], "tie_word_embeddings": True}
QWEN3_5 = {
    **SIZES, "model_type": "qwen3_5_text", "head_dim": 32, "full_attention_interval": 3, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "tie_word_embeddings": True,
}  # fmt: skip
GEMMA4 = {
    **SIZES, "model_type": "gemma4_text", "head_dim": 16, "global_head_dim": 32, "sliding_window": 16,
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 384, "tie_word_embeddings": True,
}  # fmt: skip
GEMMA4_12B = {
    **SIZES, "model_type": "gemma4_unified_text", "head_dim": 16, "global_head_dim": 32, "sliding_window": 16,
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "attention_k_eq_v": True,
    "num_global_key_value_heads": 1, "tie_word_embeddings": True,
}  # fmt: skip
TEXTS = {
    "gemma3": GEMMA, "mistral3": MISTRAL, "llava": LLAMA, "llava_next": LLAMA, "llava_onevision": QWEN,
    "internvl": QWEN, "lfm2_vl": LFM2, "idefics3": LLAMA, "smolvlm": LLAMA,
    "qwen3_5": QWEN3_5, "gemma4": GEMMA4, "gemma4_unified": GEMMA4_12B,
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(wrapper) -> a small model of it, made once."""
    made = {}

    def get(wrapper):
        if wrapper not in made:
            folder = tmp_path_factory.mktemp("wrapped") / wrapper
            folder.mkdir()
            make_tokenizer(folder)
            made[wrapper] = save_wrapped(folder, wrapper, TEXTS[wrapper])
        return made[wrapper]

    return get


def test_the_text_part_of_the_published_gemma_3_4b_is_read_whole():
    config, wrapper = text_part(HUB_GEMMA_3_4B)
    spec = decoder_spec(config)
    assert wrapper is WRAPPERS["gemma3"]
    assert (spec.family, spec.vocab_size, spec.hidden_size, spec.num_layers) == ("gemma3_text", 262_208, 2560, 34)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.sliding_window) == (8, 4, 256, 1024)
    assert (spec.rope.scaling, spec.rope.factor, spec.tied_embeddings) == ("linear", 8.0, True)
    assert [layer.kind == "attention" for layer in spec.layers[:12]] == [(i + 1) % 6 == 0 for i in range(12)]
    assert config["eos_token_id"] == [1, 106]
    assert why_not_fast(config, spec) == ""


@pytest.mark.parametrize("config", [{"model_type": "llama"}, {"model_type": "gemma3"}, {"model_type": ["gemma3"]}])
def test_a_language_model_and_a_damaged_wrapper_stay_as_they_are(config):
    assert text_part(config) == (config, None)


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("language_model.model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("model.language_model.norm.weight", "model.norm.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("vision_tower.encoder.layers.0.self_attn.q_proj.weight", None),
        ("model.vision_tower.encoder.layers.0.self_attn.q_proj.weight", None),
        ("multi_modal_projector.mm_input_projection_weight", None),
    ],
)
def test_both_layouts_of_tensor_names_are_known(stored, text):
    assert WRAPPERS["gemma3"].text_name(stored) == text


def whole_logits(folder, ids):
    """What transformers' class of the whole model says to a text."""
    from transformers import AutoModelForImageTextToText

    with torch.no_grad():
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
        return model(input_ids=ids).logits[0]


@pytest.mark.full
@pytest.mark.parametrize(
    "wrapper",
    [
        pytest.param(name, marks=() if name in {"gemma3", "gemma4", "mistral3", "qwen3_5"} else pytest.mark.long)
        for name in TEXTS
    ],
)
def test_the_language_model_alone_says_what_the_whole_model_says(folders, wrapper):
    source, ids = open_model(str(folders(wrapper))), torch.arange(5, 45)[None]
    wanted = whole_logits(source.folder, ids)
    with torch.no_grad():
        found = load_base(source, "fp32", CPU)(input_ids=ids).logits[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert source.wrapper is not None
    assert source.rows == SIZES["vocab_size"]
    if why_not_fast(source.config, source.spec):
        assert source.spec.family == "lfm2"
        return
    fast = parity.Fast(load_decoder(source, DecoderOptions(torch.float32, CPU, 64)))
    batch = parity.micro_batch((40,))
    assert parity.same_logits(fast.logits(batch), whole_logits(source.folder, torch.tensor(batch.input_ids)[None]))


def test_a_head_that_only_the_files_tell_of_decides_whether_it_is_tied(folders):
    assert open_model(str(folders("gemma3"))).spec.tied_embeddings
    assert not open_model(str(folders("mistral3"))).spec.tied_embeddings


@pytest.fixture
def copy(folders, tmp_path):
    """A Gemma 3 to damage."""
    return shutil.copytree(folders("gemma3"), tmp_path / "gemma")


def test_a_wrong_value_is_named_with_its_place(copy):
    text = json.loads((copy / "config.json").read_text())["text_config"]
    edit_json(copy / "config.json", text_config={**text, "vocab_size": None})
    with pytest.raises(SetupError, match=r"text_config\.vocab_size = null"):
        open_model(str(copy))


def test_a_missing_tensor_of_the_language_model_is_noticed_and_one_of_the_other_parts_is_none_of_ours(copy):
    tensors = load_file(copy / "model.safetensors")
    own = {name: value for name, value in tensors.items() if name.startswith("language_model.")}
    save_file(own, copy / "model.safetensors", metadata={"format": "pt"})
    assert open_model(str(copy)).spec is not None
    del own["language_model.model.layers.1.mlp.up_proj.weight"]
    save_file(own, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SetupError, match="lack 1 of"):
        open_model(str(copy))
