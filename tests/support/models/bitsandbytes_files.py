"""Checkpoints as bitsandbytes' 4-bit quantization publishes them, written without it."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from burnish_kernels.nf4 import op as nf4
from burnish_kernels.nf4.reference import levels

QUANTIZATION = {
    "_load_in_4bit": True,
    "_load_in_8bit": False,
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_storage": "uint8",
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "llm_int8_enable_fp32_cpu_offload": False,
    "llm_int8_has_fp16_weight": False,
    "llm_int8_skip_modules": None,
    "llm_int8_threshold": 6.0,
    "load_in_4bit": True,
    "load_in_8bit": False,
    "quant_method": "bitsandbytes",
}
"""`quantization_config` of config.json as transformers writes it."""


def save_quantized(base, folder, kept=(), *, double=True, storage=torch.uint8):
    """Quantize a checkpoint's linear layers but the head.

    Args:
        base: folder of a checkpoint in one file.
        folder: folder for the quantized one.
        kept: names of modules that stay as they are, as in dynamic 4-bit checkpoints.
        double: whether the scales are quantized too.
        storage: dtype that the packed bytes have in the file.

    Returns:
        The folder.
    """
    folder = Path(folder)
    shutil.copytree(base, folder)
    tensors = load_file(folder / "model.safetensors")
    for name in list(tensors):
        module = name.removesuffix(".weight")
        if module.endswith("_proj") and name.endswith(".weight") and module not in kept:
            tensors |= quantized(name, tensors[name], double=double, storage=storage)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    own = {"llm_int8_skip_modules": ["lm_head", *kept], "bnb_4bit_use_double_quant": double}
    config["quantization_config"] = {**QUANTIZATION, **own}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def quantized(name, weight, *, double=True, storage=torch.uint8):
    """The tensors that stand for one weight."""
    found = nf4.quantize(weight, double=double)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": str(weight.dtype).removeprefix("torch.")}
    state["shape"] = list(weight.shape)
    tensors = {name: found.packed.view(storage).unsqueeze(1), f"{name}.quant_map": levels()}
    if double:
        tensors[f"{name}.absmax"] = found.absmax_q
        tensors[f"{name}.nested_absmax"] = found.nested_absmax
        tensors[f"{name}.nested_quant_map"] = found.code256.clone()
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": float(found.offset)}
    else:
        tensors[f"{name}.absmax"] = found.absmax
    text = json.dumps(state).encode()
    return tensors | {f"{name}.quant_state.bitsandbytes__nf4": torch.tensor(list(text), dtype=torch.uint8)}
