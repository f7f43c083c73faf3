"""Trainers on a GPU, of every kind whose steps are captured."""

import torch

from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.recipe_train import MaskingSection, TrainSection
from burnish_engine.models.device.precision import exact_products

from support.runs.steps import trainer

CUDA = torch.device("cuda")


def gpu_trainer(adapted_llama, **options):
    exact_products()
    return trainer(adapted_llama[0], options.pop("adapter", adapted_llama[1]), device=CUDA, **options)


GPU_KINDS = {
    "fp32": {"dtype": torch.float32},
    "bf16": {"dtype": torch.bfloat16},
    "fp16": {"dtype": torch.float16},
    "NF4": {"dtype": torch.bfloat16, "quantize": True},
    "FP8 stored": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("fp8", "")},
    "FP8 products": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("fp8", "fp8")},
    "FP8 products, recomputing in tiles": {
        "dtype": torch.bfloat16,
        "eight_bits": EightBitUse("fp8", "fp8"),
        "keep": "attention",
        "mlp_rows": 40,
    },
    "NF4, FP8 products": {"dtype": torch.float16, "quantize": True, "eight_bits": EightBitUse("", "fp8")},
    "INT8 products": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("int8", "int8")},
    "NF4, INT8 products": {"dtype": torch.float16, "quantize": True, "eight_bits": EightBitUse("", "int8")},
    "MXFP8 products": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("mxfp8", "mxfp8")},
    "MXFP8 products, recomputing in tiles": {
        "dtype": torch.bfloat16,
        "eight_bits": EightBitUse("mxfp8", "mxfp8"),
        "keep": "attention",
        "mlp_rows": 40,
    },
    "NF4, MXFP8 products": {"dtype": torch.float16, "quantize": True, "eight_bits": EightBitUse("", "mxfp8")},
    "recomputing": {"dtype": torch.bfloat16, "keep": "attention"},
    "offloading": {"dtype": torch.bfloat16, "keep": "offloaded"},
    "tiling on the host": {"dtype": torch.bfloat16, "keep": "host", "mlp_rows": 40},
    "input alone": {"dtype": torch.bfloat16, "keep": "input"},
    "input alone, in tiles": {"dtype": torch.bfloat16, "keep": "input", "mlp_rows": 40},
    "Magma": {"dtype": torch.bfloat16, "masking": MaskingSection(kind="magma")},
    "Magma after the step": {"dtype": torch.float32, "masking": MaskingSection(kind="magma", momentum="after")},
    "Muon": {"dtype": torch.float16, "section": TrainSection(optimizer="muon")},
    "Muon with Magma": {
        "dtype": torch.bfloat16,
        "section": TrainSection(optimizer="muon"),
        "masking": MaskingSection(kind="magma"),
    },
    "SkipUpdate": {"dtype": torch.bfloat16, "masking": MaskingSection(kind="skip_update")},
}
