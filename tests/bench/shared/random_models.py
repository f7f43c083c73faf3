"""Writes checkpoints of well-known shapes with random weights, so that speed can be compared without any download.

    python tests/bench random_models FOLDER TOKENIZER NAME...

TOKENIZER is a folder as `save_pretrained` writes it, or `small` for a tokenizer of 600 tokens that is made on the spot.
Weights are made on the GPU where there is one. A name may end in the number of its first layers that are made, such as
qwen3-30b-a3b:4.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.shared.commands import script

SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "num_key_value_heads": 8,
         "max_position_embeddings": 40960, "tie_word_embeddings": True} | SPECIAL  # fmt: skip
LLAMA3 = {"model_type": "llama", "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8,
          "max_position_embeddings": 131072} | SPECIAL  # fmt: skip
SMOLLM2 = {"model_type": "llama", "vocab_size": 49152, "max_position_embeddings": 8192,
           "tie_word_embeddings": True} | SPECIAL  # fmt: skip
LFM2 = {"model_type": "lfm2", "vocab_size": 65536, "block_auto_adjust_ff_dim": False, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "conv_L_cache": 3, "conv_bias": False, "norm_eps": 1e-5,
        "max_position_embeddings": 128000, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
        "layer_types": ["full_attention" if i in {2, 5, 8, 10, 12, 14} else "conv" for i in range(16)],
        "tie_word_embeddings": True} | SPECIAL  # fmt: skip
QWEN3_5 = {"model_type": "qwen3_5_text", "vocab_size": 248320, "head_dim": 256, "max_position_embeddings": 262144,
           "tie_word_embeddings": True, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
           "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
           "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                               "mrope_section": [11, 11, 10], "mrope_interleaved": True}} | SPECIAL  # fmt: skip
TOKENIZER_FILES = ("tokenizer", "chat_template", "special_tokens", "added_tokens", "vocab", "merges")
# Shapes as in the models' published config.json.
SHAPES = {
    "qwen3-0.6b": QWEN3 | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                           "num_attention_heads": 16},
    "qwen3-4b": QWEN3 | {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
                         "num_attention_heads": 32},
    # The text part alone, without its vision tower.
    "qwen3.5-0.8b": QWEN3_5 | {"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24,
                               "num_attention_heads": 8, "num_key_value_heads": 2, "linear_num_value_heads": 16},
    "qwen3.5-4b": QWEN3_5 | {"hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 32,
                             "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32},
    "qwen2.5-1.5b": {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960,
                     "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
                     "max_position_embeddings": 32768, "tie_word_embeddings": True} | SPECIAL,
    "llama-3.2-1b": LLAMA3 | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                              "head_dim": 64, "tie_word_embeddings": True},
    "llama-3.1-8b": LLAMA3 | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                              "head_dim": 128, "tie_word_embeddings": False},
    "smollm2-135m": SMOLLM2 | {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
                               "num_attention_heads": 9, "num_key_value_heads": 3},
    "smollm2-360m": SMOLLM2 | {"hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32,
                               "num_attention_heads": 15, "num_key_value_heads": 5},
    "lfm2.5-350m": LFM2 | {"hidden_size": 1024, "intermediate_size": 4608, "num_attention_heads": 16},
    "lfm2.5-1.2b": LFM2 | {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32},
    # The text part alone, without its vision tower.
    "gemma-3-4b": {"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 2560, "intermediate_size": 10240,
                   "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
                   "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "sliding_window": 1024,
                   "max_position_embeddings": 131072, "tie_word_embeddings": True,
                   "layer_types": ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(34)],
                   "rope_parameters": {
                       "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                       "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                   }} | SPECIAL,
    "qwen3-30b-a3b": {"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
                      "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
                      "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
                      "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                      "max_position_embeddings": 40960, "tie_word_embeddings": False} | SPECIAL,
    "olmoe-1b-7b": {"model_type": "olmoe", "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 1024,
                    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64,
                    "num_experts_per_tok": 8, "norm_topk_prob": False, "max_position_embeddings": 4096,
                    "tie_word_embeddings": False} | SPECIAL,
    # In 16 bits; the published one keeps experts in MXFP4.
    "gpt-oss-20b": {"model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
                    "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
                    "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
                    "max_position_embeddings": 131072, "tie_word_embeddings": False} | SPECIAL,
    # From scratch: 55 million weights with the embedded model's tokenizer.
    "llama-55m": {"model_type": "llama", "vocab_size": 49152, "hidden_size": 512, "intermediate_size": 1408,
                  "num_hidden_layers": 10, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
                  "max_position_embeddings": 2048, "tie_word_embeddings": True} | SPECIAL,
    # The same for a mixture: 136 million weights, 46 million of which a token meets.
    "qwen3-moe-136m": {"model_type": "qwen3_moe", "vocab_size": 49152, "hidden_size": 512, "intermediate_size": 1024,
                       "moe_intermediate_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8,
                       "num_key_value_heads": 4, "head_dim": 64, "num_experts": 32, "num_experts_per_tok": 4,
                       "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                       "max_position_embeddings": 2048, "tie_word_embeddings": True} | SPECIAL,
}  # fmt: skip


def shape_of(name: str) -> dict[str, object]:
    """The shape of a name, with as many layers as it says behind a colon."""
    base, _, layers = name.partition(":")
    return SHAPES[base] | ({"num_hidden_layers": int(layers)} if layers else {})


def make_models(folder: Path, names: Iterable[str], tokenizer: str | Path | None = "small") -> None:
    """Write the models that are not there yet into folders of their names, by a process of its own.

    So this one holds no CUDA context. Ends the program where models have to be made and no tokenizer is given.
    """
    if missing := [name for name in names if not (folder / name / "COMPLETE").is_file()]:
        if tokenizer is None:
            sys.exit(f"{' and '.join(missing)} must be made: give --tokenizer.")
        subprocess.run(script("random_models", folder, tokenizer, *missing), check=True)


def make_model(folder: Path, tokenizer: str, shape: dict[str, object]) -> None:
    """Write one checkpoint: config, bf16 safetensors, the tokenizer's files. Does nothing where it is already."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from support.models.tiny import make_tokenizer

    if (folder / "COMPLETE").is_file():
        return
    values = dict(shape)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    if tokenizer == "small":
        make_tokenizer(folder)
    else:
        for file in Path(tokenizer).iterdir():
            if file.name.startswith(TOKENIZER_FILES):
                shutil.copy(file, folder)  # the folder may be another model's
    (folder / "COMPLETE").touch()


def main() -> None:
    """Make the named models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tokenizer")
    parser.add_argument("names", nargs="+", help=", ".join(SHAPES))
    options = parser.parse_args()
    for name in options.names:
        make_model(options.folder / name, options.tokenizer, shape_of(name))


if __name__ == "__main__":
    main()
