"""The schemas of the recipe's sections `export` and `target`."""

from __future__ import annotations

from typing import Literal

from burnish_engine.contract.recipe.recipe_section import Section, Step, setting, when

GgufType = Literal[
    "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS",
    "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_XXS", "Q2_K", "IQ2_M",
]  # fmt: skip
MergeOnto = Literal["base", "dequantized"]
COARSE_TYPES: tuple[GgufType, ...] = ("Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_XXS", "Q2_K", "IQ2_M")
"""GGUF types below four bits, which lose so much that a person is warned."""


class ExportSection(Section):
    """The files to make of the trained model."""

    quants: list[GgufType] = setting(
        lambda: ["Q8_0"], "GGUF types to write. Each is verified against the trained model before it is called done.",
        label="Quantization types (files to make)",
    )  # fmt: skip
    importance: bool = setting(
        True,
        "Round least what the training rows use most: an importance matrix is computed on them, and codes are chosen "
        "so that errors make up for one another (GPTQ), for every type but F16, BF16 and Q8_0. Takes one more pass "
        "over some rows, of large models a few, and some disk meanwhile.",
        label="Importance matrix (careful rounding)",
    )
    importance_tokens: int = setting(
        16_384, "Tokens of training rows for the importance matrix.", label="Importance matrix tokens", unit="tokens",
        used_if=when("importance", True), step=Step(doubles=True), ge=512, le=1_048_576,
    )  # fmt: skip
    merge_onto: MergeOnto = setting(
        "base",
        "What an adapter trained on 4-bit weights (model.quantize = nf4) is added to. base: the 16-bit base, which is "
        "nearer to the original model. dequantized: the rounded weights it was trained on, nearer to the trained "
        "model.",
        label="Add the adapter to",
        choices={"base": "the 16-bit base", "dequantized": "the 4-bit weights it trained on"},
        used_if=when("model.quantize", "nf4"),
    )
    size_limit_mb: float = setting(
        0.0, "Largest file wanted; the best one below it is suggested. 0: as [target] allows.",
        label="Largest file wanted", unit="MB", zero="auto", step=Step(1000), ge=0.0, le=1e9,
    )  # fmt: skip


class TargetSection(Section):
    """The device that the result will run on."""

    kind: Literal["laptop", "phone", "desktop", "server"] = setting("laptop", "Kind of device.", page="model")
    ram_gib: float = setting(16.0, "Memory of that device.", unit="GiB", page="model", gt=0.0, le=16384.0)
    context: int = setting(
        2048, "Context the result is used with.", label="Context it is used with", unit="tokens",
        step=Step(doubles=True), ge=128, le=1_048_576,
    )  # fmt: skip
    quant: GgufType | Literal["auto"] = setting(
        "auto", "Preferred GGUF type. auto: the finest that runs well on that device; see export.quants.",
        label="Preferred file",
        choices={"auto": "the finest that runs well there"},
    )  # fmt: skip
