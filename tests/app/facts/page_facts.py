"""Constructed facts about models, plans and suggestions for tests and screenshots of pages."""

from burnish_engine.contract.facts.advice import (
    CatalogModel,
    MemoryPart,
    ModelFacts,
    RankedModel,
    RunPlan,
    SettingChoice,
    Suggestion,
)
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe

GIB = 2**30


def spec(hidden=1024, layers=28):
    return DecoderSpec(
        family="qwen3",
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        layers=[LayerSpec()] * layers,
        max_context=40960,
        tied_embeddings=True,
    )


def model_facts(**changes):
    fields = {
        "path": "Qwen/Qwen3-0.6B",
        "name": "Qwen3 0.6B",
        "folder": "/home/ada/burnish/models/Qwen--Qwen3-0.6B",
        "family": "qwen3",
        "parameters": 596_049_920,
        "spec": spec(),
        "bytes": 1_503_300_328,
        "max_context": 40960,
        "chat": True,
        "license": "Apache-2.0",
        "file_bytes": {
            "F16": 1_198_000_000,
            "Q8_0": 639_000_000,
            "Q6_K": 495_000_000,
            "Q4_K_M": 397_000_000,
            "Q4_0": 375_000_000,
            "IQ4_NL": 380_000_000,
        },
    }
    return ModelFacts(**{**fields, **changes})


_CATALOG = (
    ("Qwen/Qwen3-1.7B", "Qwen3 1.7B", "Qwen3", 1_720_000_000, "Apache-2.0", False, "good", True),
    ("Qwen/Qwen3-0.6B", "Qwen3 0.6B", "Qwen3", 596_000_000, "Apache-2.0", False, "good", False),
    ("meta-llama/Llama-3.2-1B-Instruct", "Llama 3.2 1B", "Llama", 1_236_000_000, "Llama 3.2", True, "good", False),
    (
        "HuggingFaceTB/SmolLM2-360M-Instruct",
        "SmolLM2 360M",
        "SmolLM2",
        361_800_000,
        "Apache-2.0",
        False,
        "small",
        False,
    ),
    ("HuggingFaceTB/SmolLM3-3B", "SmolLM3 3B", "SmolLM3", 3_075_000_000, "Apache-2.0", False, "tight", False),
    (
        "Qwen/Qwen3-4B-Instruct-2507",
        "Qwen3 4B 2507",
        "Qwen3",
        4_022_000_000,
        "Apache-2.0",
        False,
        "too_big_for_target",
        False,
    ),
    (
        "mistralai/Mistral-7B-Instruct-v0.3",
        "Mistral 7B v0.3",
        "Mistral",
        7_248_000_000,
        "Apache-2.0",
        False,
        "too_big_for_target",
        False,
    ),
    ("Qwen/Qwen3-32B", "Qwen3 32B", "Qwen3", 32_760_000_000, "Apache-2.0", False, "too_big_to_train", False),
)


_REASONS = {
    "good": "It trains comfortably on the RTX 4090 and runs at about 24 tokens/s on a laptop of 16 GiB.",
    "tight": "It trains, but fills nine tenths of the memory that is free now.",
    "small": "It runs anywhere; a larger one would learn more from the same data.",
    "too_big_for_target": "Its file and context need more than a laptop of 16 GiB leaves free.",
    "too_big_to_train": "Training it needs about 71 GiB; 21.9 GiB are free on the RTX 4090.",
}


def ranked(row):
    name, title, family, parameters, license_, gated, verdict, here = row
    model = CatalogModel(
        name=name,
        title=title,
        family=family,
        kind="chat",
        parameters=parameters,
        spec=spec(),
        license=license_,
        license_note="Asks for attribution and limits very large services." if gated else "",
        gated=gated,
        good_for="General chat in many languages; follows instructions well for its size.",
        released="2025-04",
        exports=True,
    )
    return RankedModel(
        model=model,
        verdict=verdict,
        reason=_REASONS[verdict],
        here=here,
        path=name if here else "",
        train_bytes=int(parameters * 3.1),
        tokens_per_s=4.4e13 / parameters,
        file_bytes=int(parameters * 1.07),
        run_bytes=int(parameters * 1.3),
        quant="Q8_0",
        download_bytes=parameters * 2,
    )


def catalog():
    return [ranked(row) for row in _CATALOG]


def plan(*, fits=True, **changes):
    scale = 1.0 if fits else 14.0
    parts = [
        MemoryPart(name="base weights", bytes=int(1.2e9 * scale), note="596 M weights, bf16"),
        MemoryPart(name="adapter", bytes=40_370_176, note="10,092,544 weights, fp32"),
        MemoryPart(name="gradients", bytes=40_370_176, note="fp32"),
        MemoryPart(name="optimizer", bytes=80_740_352, note="AdamW, two moments, fp32"),
        MemoryPart(name="activations", bytes=int(1.5e9 * scale), note="kept by 28 layers: products"),
        MemoryPart(name="head and loss", bytes=int(0.6e9 * scale), note="2,048 learned tokens at once"),
        MemoryPart(name="workspace", bytes=int(0.2e9 * scale), note="of a layer's two passes"),
        MemoryPart(name="graph pools", bytes=80_000_000, note="captured passes, cuBLAS workspace"),
        MemoryPart(name="fragmentation", bytes=60_000_000, note="of the allocator"),
        MemoryPart(name="CUDA context", bytes=460_000_000, note="driver, kernels, graphs"),
    ]
    fields = {
        "device": "NVIDIA GeForce RTX 4090",
        "memory": parts,
        "memory_bytes": sum(part.bytes for part in parts),
        "memory_free_bytes": int(21.9 * GIB),
        "memory_total_bytes": 24 * GIB,
        "host_bytes": 3 * GIB,
        "host_free_bytes": 48 * GIB,
        "disk_bytes": int(1.9 * GIB),
        "disk_free_bytes": 412 * GIB,
        "fits": fits,
        "problems": [] if fits else ["It needs 46.3 GiB and 21.9 GiB are free. train.recompute brings it to 19 GiB."],
        "trainable_parameters": 10_092_544,
        "steps": 248,
        "tokens": 462_960,
        "tokens_per_s": 18_400.0,
        "seconds": 31.0 if fits else 700.0,
        "speed_source": "estimated",
    }
    return RunPlan(**{**fields, **changes})


def suggestion(recipe=None, **changes):
    recipe = recipe or Recipe.model_validate(
        {
            "train": {"epochs": 3.0, "learning_rate": 1e-4, "micro_batch_tokens": 4096},
            "adapter": {"rank": 32, "alpha": 64.0},
            "data": {"max_length": 768},
            "task": {"metric": "json"},
        }
    )
    fields = {
        "recipe": dump_recipe(recipe),
        "model": recipe.model.path,
        "plan": plan(),
        "choices": [
            SettingChoice(
                key="train.epochs", value="3", reason="About a thousand rows are learned well in three passes."
            ),
            SettingChoice(
                key="train.learning_rate", value="0.0001", reason="Usual for a LoRA of rank 32 on a model below 1 B."
            ),
            SettingChoice(key="adapter.rank", value="32", reason="143 k learned tokens give enough to fill rank 32."),
            SettingChoice(
                key="task.metric",
                value="json",
                reason="The rows' replies are JSON. So replies to 50 held-out rows can be scored.",
            ),
            SettingChoice(key="data.max_length", value="768", reason="99 % of the rows are shorter."),
            SettingChoice(key="train.micro_batch_tokens", value="4096", reason="Fills the GPU and leaves memory free."),
            SettingChoice(
                key="export.quants", value="Q8_0", reason="Practically lossless, and small enough for a laptop."
            ),
        ],
    }
    return Suggestion(**{**fields, **changes})
