"""The settings of a measured training step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import SaveLevel, WeightPlace, parse_save_levels, parse_weight_places
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_preference import Objective, PreferenceSection
from burnish_engine.contract.recipe.recipe_train import AUTO, Masking, Optimizer, TrainSection
from burnish_engine.models.decoder.frozen.format_choice import eight_bit_use


@dataclass(frozen=True)
class StepOptions:
    """Settings of a measurement.

    Attributes:
        shape: name of the shape.
        layers: number of layers to keep, from the first; 0: all.
        tokens: tokens of a micro-batch; a step has one.
        method: "lora" or "qlora" (NF4).
        fp8_stored: whether the frozen weights are kept in FP8.
        products: number format that products with the frozen weights are computed in: "16" or one of `EIGHT_BITS`.
        rank: rank of the adapter.
        expert_rank: rank of each expert's adapter; 0: as a recipe's.
        targets: names of the matrices with an adapter, as in a recipe.
        precision: "bf16", "fp16" or "fp32".
        keep: level of saved activations for each layer from the first; the last level is repeated.
        steps: number of measured steps, after the warm-up.
        warmup: number of steps before: the first runs eagerly, the second captures.
        head_rows: tokens of one chunk of the head.
        graphs: whether to capture CUDA graphs.
        device: device to measure on.
        packs: file of recorded micro-batches; None: random ones.
        mlp_rows: tokens that pass the feed-forward at once; 0: all.
        tables_on_host: whether embeddings and head stay in host memory.
        weights: where each layer keeps its frozen weights, from the first; none: all on the device.
        one_document: whether each micro-batch is a single document.
        serial_offload: whether the device waits for every copy to or from host memory, for comparison.
        budget_gib: device memory that the memory plan is chosen for; 0: the settings above are the plan.
        optimizer: optimizer by its recipe name.
        masking: masking by its recipe name.
        objective: objective by its recipe name; the reference's log-probabilities are known before the first step.
        passes_of: objective whose passes are used, so that sft can be timed on the tokens of another.
        exchange: form of the exchange of gradients between several GPUs, as in a recipe: "whole", "sliced" or "bf16".
    """

    shape: str
    tokens: int
    method: str = "lora"
    rank: int = 16
    precision: str = "bf16"
    keep: tuple[SaveLevel, ...] = ("products",)
    steps: int = 24
    warmup: int = 4
    head_rows: int = 4096
    graphs: bool = True
    device: str = "cuda"
    packs: Path | None = None
    mlp_rows: int = 0
    tables_on_host: bool = False
    weights: tuple[WeightPlace, ...] = ()
    one_document: bool = False
    serial_offload: bool = False
    budget_gib: float = 0.0
    optimizer: Optimizer = "adamw"
    masking: Masking = "off"
    objective: Objective = "sft"
    passes_of: Objective = "sft"
    exchange: str = "whole"
    layers: int = 0
    expert_rank: int = 0
    targets: tuple[str, ...] = (AUTO,)
    fp8_stored: bool = False
    products: str = "16"

    @property
    def eight_bits(self) -> EightBitUse:
        """Use of 8 bits in storage and products."""
        model = ModelSection(quantize="fp8" if self.fp8_stored else "none")
        return eight_bit_use(Recipe(model=model), self.products, nf4=self.method == "qlora")

    @property
    def weights_format(self) -> str:
        """Number format of the frozen weights, for people."""
        return "nf4" if self.method == "qlora" else self.eight_bits.stored or self.precision

    @property
    def section(self) -> TrainSection:
        """Optimizer and precision as a recipe's training section."""
        return TrainSection(optimizer=self.optimizer, precision=self.precision)  # type: ignore[arg-type]

    @property
    def preference(self) -> PreferenceSection | None:
        """Objective as a recipe's section; None where rows are learned as they stand."""
        return PreferenceSection(objective=self.objective) if self.objective != "sft" else None


def parse_keep(text: str) -> tuple[SaveLevel, ...]:
    """Parse the option `--keep` with `contract.recipe.memory_plan.parse_save_levels`.

    Raises:
        UsageError: The text has an unknown level or an invalid count.
    """
    try:
        return parse_save_levels(text)
    except ValueError as problem:
        raise UsageError(f"--keep: {problem}.", "Give levels from the first layer on.") from problem


def parse_weights(text: str, layers: int) -> tuple[WeightPlace, ...]:
    """Parse the option `--weights` with `contract.recipe.memory_plan.parse_weight_places`, for as many layers.

    Raises:
        UsageError: The text has an unknown place or an invalid count.
    """
    try:
        return parse_weight_places(text, layers)
    except ValueError as problem:
        raise UsageError(f"--weights: {problem}.", "Give places from the first layer on.") from problem
