"""Which engine trains a run: ours wherever it knows the model and the adapter, else transformers and PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from burnish_engine.advise.engine_choice import check_optimizer, check_plain, idle_pins, plain_note
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe import Recipe
from burnish_engine.models.source import ModelSource
from burnish_engine.train.engine import Engine
from burnish_engine.train.fast_engine import FastEngine, why_not
from burnish_engine.train.plain_engine import PlainEngine
from burnish_engine.train.smaller_plan import read_plan
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
    plan: str = "",
) -> Engine:
    """Load the model into an engine.

    Args:
        source: The base model.
        recipe: The run.
        stream: Its micro-batches.
        tokenizer: For replies.
        precision: "fp32", "bf16" or "fp16".
        device: Where to train.
        adapter: Folder of what was trained so far (adapter or whole model), to go on with; None starts anew.
        name: The engine of the run so far; None chooses.
        layout: How rows were laid out so far.
        plan: How to use memory, as `Engine.memory_plan` said it, or `SMALLEST`; empty for as the engine chooses.

    Raises:
        UsageError: The recipe asks for what the engine that it asks for, or is left with, does not do.
    """
    check_optimizer(recipe)
    asked = name or recipe.train.engine
    reason = "" if asked == "plain" else why_not(source, recipe, device)
    if reason and asked == "fast":
        remedy = 'Set train.engine = "plain" (or "auto") to train it with transformers and PEFT.'
        raise UsageError(f"{reason}.", "Start a new run; the fast engine began this one." if name else remedy)
    if asked == "plain" or reason:
        check_plain(recipe, precision, reason)
        plain = PlainEngine(
            source,
            recipe,
            stream,
            tokenizer,
            precision=precision,
            device=device,
            adapter=adapter,
            layout=layout,
            plan=plan,
        )
        notes = [plain_note("" if name else reason), idle_pins(recipe)]
        plain.notes[:0] = [note for note in notes if note]
        return plain
    assert source.spec is not None
    memory = read_plan(plan, source.spec)
    return FastEngine(
        source, recipe, stream, tokenizer, precision=precision, device=device, adapter=adapter, plan=memory
    )
