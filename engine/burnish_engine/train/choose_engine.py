"""Which engine trains a run: ours wherever it knows the model and the adapter, else transformers and PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.recipe import Recipe
from burnish_engine.models.source import ModelSource
from burnish_engine.train.engine import Engine
from burnish_engine.train.fast_engine import FastEngine, why_not
from burnish_engine.train.plain_engine import PlainEngine
from burnish_engine.train.stream import BatchStream


def make_engine(
    source: ModelSource,
    recipe: Recipe,
    stream: BatchStream,
    tokenizer: Any,
    *,
    precision: str,
    device: torch.device,
    adapter: Path | None = None,
    name: str | None = None,
    layout: str | None = None,
) -> Engine:
    """Load the model into an engine.

    Args:
        source: The base model.
        recipe: The run.
        stream: Its micro-batches.
        tokenizer: For replies.
        precision: "fp32", "bf16" or "fp16".
        device: Where to train.
        adapter: Folder of the adapter to go on with; None starts a new one.
        name: The engine of the run so far; None chooses.
        layout: How rows were laid out so far.
    """
    asked = name or recipe.train.engine
    reason = "" if asked == "plain" else why_not(source, recipe)
    if asked == "plain" or reason:
        plain = PlainEngine(
            source, recipe, stream, tokenizer, precision=precision, device=device, adapter=adapter, layout=layout
        )
        if reason and name is None:
            plain.notes.insert(0, reason)
        return plain
    return FastEngine(source, recipe, stream, tokenizer, precision=precision, device=device, adapter=adapter)
