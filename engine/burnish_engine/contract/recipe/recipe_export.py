"""The schemas of the recipe's sections `export` and `target`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from burnish_engine.contract.recipe.recipe_section import Section, Step, setting, when

GgufType = Literal[
    "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS",
    "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_XXS", "Q2_K", "IQ2_M",
]  # fmt: skip
MergeOnto = Literal["base", "dequantized"]


class GgufTypeFacts(NamedTuple):
    """The facts of a GGUF file type that do not depend on the model."""

    number: int  # `llama_ftype` (llama.h)
    tensors: str  # type of most tensors of such a file (`llama_ftype_get_default_type`)
    kl: float  # mean KL(16-bit file || file) of Llama 3 8B on Wikitext, nats, without an importance matrix
    text: str  # plain description for people, in English
    weighed_kl: float | None = None  # `kl` with an importance matrix; None: only one number was published
    importance: Literal["unused", "used", "needed"] = "used"
    """Whether an importance matrix changes the rounding (ggml-quants.c: Q8_0 ignores it), or llama.cpp makes the type
    only with one (`tensor_requires_imatrix`)."""
    is_coarse: bool = False  # whether it has fewer than four bits and loses so much that a person is warned
    in_form: bool = False  # whether the window offers it before "More types"
    in_chart: bool = False  # whether the window's chart of sizes labels it first
    rough_bits: float | None = None
    """Bits a weight of a mixture whose size is not known in detail; only of the types that `on_target` chooses from."""


GGUF_TYPES: dict[GgufType, GgufTypeFacts] = {
    "F16": GgufTypeFacts(
        1, "F16", 0.0, "Full precision, largest; to convert further", importance="unused", in_chart=True
    ),
    "BF16": GgufTypeFacts(
        32, "BF16", 0.0, "Full precision, largest; range of the training format", importance="unused"
    ),
    "Q8_0": GgufTypeFacts(
        7, "Q8_0", 0.0014, "Practically as good as the trained model", importance="unused", in_form=True, in_chart=True,
        rough_bits=8.5,
    ),
    "Q6_K": GgufTypeFacts(
        18, "Q6_K", 0.0055, "Very good, often a quarter smaller than Q8_0", in_form=True, in_chart=True, rough_bits=6.6
    ),
    "Q5_K_M": GgufTypeFacts(17, "Q5_K", 0.0108, "Good, for when Q4_K_M loses too much", rough_bits=5.7),
    "Q5_K_S": GgufTypeFacts(16, "Q5_K", 0.0166, "Like Q5_K_M, slightly smaller"),
    "Q5_0": GgufTypeFacts(8, "Q5_0", 0.0222, "Older 5-bit type, runs everywhere"),
    "Q4_K_M": GgufTypeFacts(
        15, "Q4_K", 0.0313, "The usual choice for larger models", 0.0282, in_form=True, in_chart=True, rough_bits=4.85
    ),
    "Q4_K_S": GgufTypeFacts(14, "Q4_K", 0.0431, "Like Q4_K_M, slightly smaller", 0.032),
    "Q4_0": GgufTypeFacts(2, "Q4_0", 0.0719, "Small, fast on phones", in_form=True, in_chart=True),
    "Q4_1": GgufTypeFacts(3, "Q4_1", 0.0717, "Like Q4_0, a little better and larger"),
    "IQ4_NL": GgufTypeFacts(25, "IQ4_NL", 0.0357, "Small, fast on phones, better than Q4_0", in_form=True),
    "IQ4_XS": GgufTypeFacts(30, "IQ4_XS", 0.0363, "Smallest that keeps most"),
    "Q3_K_M": GgufTypeFacts(
        12, "Q3_K", 0.1019, "Loses much; for large models in little memory", 0.0844, is_coarse=True
    ),
    "Q3_K_S": GgufTypeFacts(11, "Q3_K", 0.2282, "Loses more than Q3_K_M", 0.1998, is_coarse=True),
    "IQ3_M": GgufTypeFacts(27, "IQ3_S", 0.1025, "Loses much; better than Q3_K_M at its size", is_coarse=True),
    "IQ3_XXS": GgufTypeFacts(23, "IQ3_XXS", 0.1836, "Loses very much", importance="needed", is_coarse=True),
    "Q2_K": GgufTypeFacts(
        10, "Q2_K", 0.4451, "Loses very much; try a smaller model first", 0.3322, is_coarse=True, in_chart=True
    ),
    "IQ2_M": GgufTypeFacts(29, "IQ2_S", 0.326, "Loses very much; smallest", importance="needed", is_coarse=True),
}  # fmt: skip
"""All GGUF types that Burnish makes, from the finest to the smallest. Source of the KL divergences: llama.cpp,
tools/perplexity/README.md, "LLaMA 3 8b Scoreboard"."""

COARSE_TYPES = tuple(quant for quant, facts in GGUF_TYPES.items() if facts.is_coarse)
USE_IMPORTANCE = tuple(quant for quant, facts in GGUF_TYPES.items() if facts.importance != "unused")
NEED_IMPORTANCE = tuple(quant for quant, facts in GGUF_TYPES.items() if facts.importance == "needed")


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
