"""Choose the engine of a run: the fast one wherever it supports model and adapter, else transformers and PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from burnish_engine.advise.facts.engine_choice import check_optimizer, check_plain_engine, plain_note, unused_pins_note
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.fast.fast_engine import FastEngine, why_not
from burnish_engine.train.fast.smaller_plan import read_plan
from burnish_engine.train.plain.plain_engine import PlainEngine


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
        source: base model.
        recipe: recipe of the run.
        stream: micro-batches of the run.
        tokenizer: tokenizer that decodes replies.
        precision: "fp32", "bf16" or "fp16".
        device: device to train on.
        adapter: folder of the weights trained so far (adapter or whole model); None starts anew.
        name: engine of a resumed run; None chooses by the recipe.
        layout: arrangement of rows in a resumed run; None chooses.
        plan: text of `Engine.memory_plan`, or `SMALLEST`; empty leaves the choice to the engine.

    Raises:
        UsageError: The recipe asks for something that its engine, named or left, does not support.
    """
    check_optimizer(recipe)
    asked = name or recipe.train.engine
    reason = "" if asked == "plain" else why_not(source, recipe, device)
    if reason and asked == "fast":
        remedy = 'Set train.engine = "plain" (or "auto") to train it with transformers and PEFT.'
        raise UsageError(f"{reason}.", "Start a new run; the fast engine began this one." if name else remedy)
    if asked == "plain" or reason:
        check_plain_engine(recipe, precision, reason)
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
        notes = [plain_note("" if name else reason), unused_pins_note(recipe)]
        plain.notes[:0] = [note for note in notes if note]
        return plain
    assert source.spec is not None
    memory = read_plan(plan, source.spec)
    return FastEngine(
        source, recipe, stream, tokenizer, precision=precision, device=device, adapter=adapter, plan=memory
    )
