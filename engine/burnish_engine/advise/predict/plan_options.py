"""A memory plan as the predictions count it: save levels as numbers, and the options that hold for the whole model."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.predict.level_mixes import SaveLevels
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan

Bytes: TypeAlias = npt.NDArray[np.float64]


class PlanOptions(NamedTuple):
    """The options of a `MemoryPlan` that hold for the whole model, beside the layers' save levels."""

    mlp_chunk_tokens: int  # number of tokens that pass the feed-forward at once; 0: all (`MemoryPlan.mlp_rows`)
    head_chunk_tokens: int  # number of supervised tokens whose logits exist at once (`MemoryPlan.head_rows`)
    embedding_on_host: bool = False  # whether the embedding table stays in host memory
    head_on_host: bool = False  # whether the head's matrix stays in host memory
    layers_on_host: tuple[int, ...] = ()  # numbers of the layers whose frozen weights stay in host memory
    layers_on_ranks: tuple[int, ...] = ()  # numbers of the layers whose frozen weights the processes of the run share

    @property
    def streamed(self) -> list[int]:
        """The numbers of the layers whose frozen weights are copied to the device in every pass, from the lowest."""
        return sorted({*self.layers_on_host, *self.layers_on_ranks})


def split_plan(plan: MemoryPlan) -> tuple[SaveLevels, PlanOptions]:
    """Split a plan into its layers' save levels, [1, layers], and its options."""
    levels = np.array([[LEVEL_NAMES.index(level) for level in plan.layers]], dtype=np.int8)
    away = plan.embedding_on_host, plan.head_on_host, plan.layers_on_host, plan.layers_on_ranks
    return levels, PlanOptions(plan.mlp_rows, plan.head_rows, *away)
