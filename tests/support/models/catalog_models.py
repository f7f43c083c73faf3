"""Every model of the catalog in small, with the config class, nesting, names and kind of tokenizer that the hub has."""

import json
import tomllib
from pathlib import Path

import torch

from burnish_engine.contract.paths import assets_dir
from burnish_engine.models.checkpoint.wrapper import WRAPPERS

from support.models.sentencepiece import save_sentencepiece
from support.models.small_families import shrink
from support.models.tiny import make_tokenizer

_SENTENCEPIECE = {
    "tinyllama": "llama",
    "phi3-mini": "phi3",
    "mistral-7b": "first",
    "gemma3": "gemma",
    "gemma4": "gemma",
}
"""Beginning of a shape's name to the kind of its tokenizer (`sentencepiece.py`); all others are byte-level BPE."""
_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
"""Value of each code of MXFP4."""
_LAYER_TYPES = {
    "attention": "full_attention", "sliding_attention": "sliding_attention", "short_convolution": "conv",
    "gated_delta": "linear_attention",
}  # fmt: skip
_SHORT_FORMS = {"conv_but", "full_every", "no_rope_every", "all_attention", "wrapper"}
_VISION = {
    "gemma3": {
        "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 32, "patch_size": 8,
    },
    "mistral3": {
        "model_type": "pixtral", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "head_dim": 16, "image_size": 32, "patch_size": 8,
    },
}  # fmt: skip
_QWEN_VISION = {
    "depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 128, "patch_size": 8,
    "num_position_embeddings": 16,
}  # fmt: skip
_VISION |= {"qwen3_5": _QWEN_VISION, "qwen3_5_moe": _QWEN_VISION}
_VISION["gemma4"] = {
    "model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "position_embedding_size": 16,
}  # fmt: skip
_VISION["gemma4_unified"] = {
    "model_type": "gemma4_unified_vision", "mm_embed_dim": 64, "mm_posemb_size": 16, "output_proj_dims": 64,
}  # fmt: skip
_OTHER_VISION = {
    "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 2, "image_size": 32, "patch_size": 8,
}  # fmt: skip


def small_checkpoint(entry, folder):
    """Save a model of the catalog in small: a fraction of a second to compute with, all that is odd about it kept.

    Args:
        entry: A `CatalogModel`.
        folder: Where.

    Returns:
        The folder.
    """
    folder, name, shape = Path(folder), *_shape(entry.name)
    folder.mkdir(parents=True, exist_ok=True)
    kind = next((kind for start, kind in _SENTENCEPIECE.items() if name.startswith(start)), "")
    tokens = save_sentencepiece(folder, kind) if kind else len(make_tokenizer(folder))
    wrapper = shape.get("wrapper", "")
    config = {key: value for key, value in shape.items() if key not in _SHORT_FORMS}
    kinds = [_LAYER_TYPES[layer.kind] for layer in entry.spec.layers]
    if len(set(kinds)) > 1 or config["model_type"] == "exaone4":  # whose pattern without windows is 0
        config["layer_types"] = kinds
    if shape.get("all_attention"):
        config["layer_types"] = ["attention" for _ in kinds]
    if any(not layer.rope for layer in entry.spec.layers):
        config["no_rope_layers"] = [int(layer.rope) for layer in entry.spec.layers]
    config = _small(config, entry.spec)
    end = 2 if kind else tokens - 1
    ids = {"bos_token_id": 1, "eos_token_id": end, "pad_token_id": 0}
    text = {**config, "vocab_size": tokens + 3}
    if "vocab_size_per_layer_input" in config:
        text["vocab_size_per_layer_input"] = text["vocab_size"]
    if wrapper:
        return save_wrapped(folder, wrapper, text | ids)
    save_plain(folder, text | ids)
    return pack_mxfp4(folder) if config["model_type"] == "gpt_oss" else folder


def save_plain(folder, config):
    """Save random bf16 weights of a configuration; returns the folder."""
    from transformers import AutoConfig, AutoModelForCausalLM

    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return _save(folder, AutoModelForCausalLM, AutoConfig.from_pretrained(folder), config["model_type"])


def save_wrapped(folder, wrapper, text):
    """Save a model with a part for images as the hub's files have it: tensors under language_model, a nested config.

    Args:
        folder: Where; a tokenizer may be there already.
        wrapper: model_type of the whole.
        text: Configuration of the language model.

    Returns:
        The folder.
    """
    from transformers import AutoConfig, AutoModelForImageTextToText

    folder.mkdir(parents=True, exist_ok=True)
    whole = AutoConfig.for_model(wrapper, text_config=text, vision_config=_VISION.get(wrapper, _OTHER_VISION))
    whole.tie_word_embeddings = text.get("tie_word_embeddings", whole.text_config.tie_word_embeddings)
    _save(folder, AutoModelForImageTextToText, whole, text["model_type"])
    if text.get("linear_num_key_heads"):
        _add_second_token(folder)
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    usual = AutoConfig.for_model(text["model_type"]).to_dict()
    nested = {key: value for key, value in text.items() if usual.get(key) != value and not key.endswith("_token_id")}
    saved["text_config"] = {**nested, "model_type": text["model_type"]}  # the hub's say only what differs
    if not wrapper.startswith("qwen3_5"):  # which says it twice
        saved.pop("tie_word_embeddings", None)
    saved |= {key: value for key, value in text.items() if key.endswith("_token_id")}
    (folder / "config.json").write_text(json.dumps(saved), encoding="utf-8")
    return folder


def _add_second_token(folder):
    """Add a layer that predicts a second token, which Qwen3.5's files have beside the model."""
    from safetensors.torch import load_file, save_file

    held = load_file(folder / "model.safetensors")
    (last,) = {name.split(".")[3] for name in held if name.endswith(".self_attn.o_proj.weight")}
    start = f"model.language_model.layers.{last}."
    added = {
        f"mtp.layers.0.{name.removeprefix(start)}": value.clone()
        for name, value in held.items()
        if name.startswith(start)
    }
    hidden = len(held[f"{start}input_layernorm.weight"])
    added["mtp.fc.weight"] = torch.randn(hidden, 2 * hidden).to(torch.bfloat16) * hidden**-0.5
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        added[f"mtp.{name}.weight"] = torch.randn(hidden).to(torch.bfloat16) * 0.1
    save_file(held | added, folder / "model.safetensors", metadata={"format": "pt"})


def pack_mxfp4(folder):
    """Store a model's experts as gpt-oss's files have them: 4 bits a weight and a power of two for each 32."""
    from safetensors.torch import load_file, save_file

    packed = {}
    for name, value in load_file(folder / "model.safetensors").items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            packed[f"{name}_blocks"], packed[f"{name}_scales"] = _mxfp4(value.float().transpose(1, 2))
        else:
            packed[name] = value
    save_file(packed, folder / "model.safetensors", metadata={"format": "pt"})
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    apart = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    saved["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": apart}
    (folder / "config.json").write_text(json.dumps(saved), encoding="utf-8")
    return folder


def _mxfp4(rows):
    """Codes, two a byte, and biased exponents of rows of weights."""
    groups = rows.unflatten(-1, (-1, 32))
    exponents = (groups.abs().amax(-1) / _FP4[7]).clamp(min=2.0**-126).log2().ceil()
    codes = (groups / exponents.exp2()[..., None]).unsqueeze(-1).sub(_FP4).abs().argmin(-1).to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8)


def _save(folder, auto, config, text_type):
    torch.manual_seed(11)
    model = auto.from_config(config, dtype=torch.float32)
    one_plus = text_type == "gemma3_text" or text_type.startswith("qwen3_5")
    with torch.no_grad():
        for key, value in model.named_parameters():
            if value.ndim == 1:
                plain = "norm" in key and (not one_plus or key.endswith("linear_attn.norm.weight"))
                value.normal_(1.0 if plain else 0.0, 0.2 if "norm" in key else 0.1)
            if "gemma4" in text_type and key.endswith("q_norm.weight"):
                value.mul_(value.numel() ** -0.5)  # scores are not scaled
        for key, value in model.named_buffers():
            if key.endswith("layer_scalar"):
                value.uniform_(0.5, 1.5)
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def _shape(name):
    """Name and keys of a model's shape in the catalog."""
    document = tomllib.loads((assets_dir() / "models.toml").read_text(encoding="utf-8"))
    entry = next(entry for entry in document["model"] if entry["name"] == name)
    return entry["shape"], {"sliding_window": None, **document["shape"][entry["shape"]], **entry.get("config", {})}


def _small(config, spec):
    """`shrink`, and what the catalog has that published configurations of the tests have not."""
    config = {"rope_scaling": None, **config}
    if (config["rope_scaling"] or {}).get("rope_type") == "longrope":
        pairs = int(spec.head_dim * config.get("partial_rotary_factor", 1.0)) // 2
        factors = {"short_factor": [1.0] * pairs, "long_factor": [1.0 + 1.35 * place for place in range(pairs)]}
        config["rope_scaling"] = {**config["rope_scaling"], **factors}
    fills = spec.hidden_size == spec.num_heads * spec.head_dim and spec.delta is None
    if fills and config["model_type"] != "hunyuan_v1_dense":  # which needs it
        config.pop("head_dim", None)  # so that the small one's heads fill its width too
    small = shrink(config)
    if "rope_parameters" in config:
        del small["rope_scaling"]  # which would take the place of its ropes
    if (config["rope_scaling"] or {}).get("rope_type") == "longrope":  # out of reach of a test's short rows
        small |= {"original_max_position_embeddings": 1024, "max_position_embeddings": 4096}
    for experts in ("num_experts", "num_local_experts"):
        if config.get(experts):
            small |= {experts: 4, "top_k_experts" if "top_k_experts" in config else "num_experts_per_tok": 2}
    if "moe_intermediate_size" in config:
        small["moe_intermediate_size"] = 64
    if "shared_expert_intermediate_size" in config:
        small["shared_expert_intermediate_size"] = 128
    if spec.num_layers == 62:  # the 27B, which llama.cpp knows by its layers and scales by its width
        small |= {"num_hidden_layers": 62, "layer_types": config["layer_types"]}
        small["query_pre_attn_scalar"] = small["hidden_size"] // small["num_attention_heads"]
    return small


assert set(_VISION) <= set(WRAPPERS)
