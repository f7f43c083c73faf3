"""The specification that an engine is loaded from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import ExchangeMeasured
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.host_memory.layer_shares import RankMemory
from burnish_engine.train.base.exchange import GradientExchange
from burnish_engine.train.base.stream import BatchStream


@dataclass(frozen=True, eq=False)
class EngineSpec:
    """Specification of an engine: what it trains, on what, and where it continues.

    Attributes:
        source: base model.
        recipe: recipe of the run.
        stream: micro-batches of the run.
        tokenizer: tokenizer that decodes replies.
        precision: "fp32", "bf16" or "fp16"; the plain engine does not train in fp16.
        device: device to train on.
        adapter: folder of the weights trained so far (adapter or whole model); None starts anew.
        name: engine of a resumed run, "fast" or "plain"; None chooses by the recipe.
        layout: arrangement of rows in a resumed run, which the plain engine keeps where possible; None chooses.
        plan: text of `EngineFacts.memory_plan`, or `SMALLEST`; empty leaves the choice to the engine.
        products: number format of products with the frozen weights, "16" or one of `EIGHT_BITS`; empty: the recipe
        exchange: exchange with the other ranks that share the steps; None: this process makes them alone.
        exchange_timed: function that receives what one exchange of gradients took, where there are other ranks.
        memory: memory of the ranks that share layers' frozen weights; None: all that is needed is here.
        progress: function that receives the number of layers loaded and the number of all layers; None: nobody asks.
    """

    source: ModelSource
    recipe: Recipe
    stream: BatchStream
    tokenizer: Any
    precision: str
    device: torch.device
    adapter: Path | None = None
    name: str | None = None
    layout: str | None = None
    plan: str = ""
    products: str = ""
    progress: Callable[[int, int], object] | None = None
    exchange: GradientExchange | None = None
    exchange_timed: Callable[[ExchangeMeasured], object] = lambda _event: None
    memory: RankMemory | None = None
