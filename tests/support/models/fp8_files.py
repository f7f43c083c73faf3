"""Checkpoints as they are published in FP8: codes with scales for a matrix, a row or a block, and a config.json."""

import json
import shutil

import torch
from safetensors.torch import load_file, save_file

from burnish_engine.models.families import family

from support.models import parity

CONFIGS = {
    "blocks": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
    "rows": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8, "strategy": "channel"}}},
    },
}
CONFIGS["matrix"] = CONFIGS["rows"]


def publish(base, folder, kind):
    """Write the checkpoint `base` in FP8; return the values that its codes stand for, by name."""
    shutil.copytree(base, folder)
    spec, tensors, found = parity.model_source(base).spec, load_file(base / "model.safetensors"), {}
    for module in family(spec.family).modules(spec):
        name = f"{module.path}.weight"
        weight = tensors[name].float()
        rows, columns = weight.shape
        if kind == "blocks":
            scale = torch.empty(-(-rows // 128), -(-columns // 128))
            for row, column in ((r, c) for r in range(scale.shape[0]) for c in range(scale.shape[1])):
                block = weight[128 * row : 128 * row + 128, 128 * column : 128 * column + 128]
                scale[row, column] = block.abs().max() / 448
            wide = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
        else:
            most = weight.abs().amax(dim=1, keepdim=True) if kind == "rows" else weight.abs().max().reshape(1)
            scale = wide = 1.1 * most / 448  # of a publisher who leaves room
        codes = (weight / wide).to(torch.float8_e4m3fn)
        tensors[name] = codes
        tensors[name + ("_scale_inv" if kind == "blocks" else "_scale")] = scale
        found[name] = codes.float() * wide
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": CONFIGS[kind]}))
    return found
