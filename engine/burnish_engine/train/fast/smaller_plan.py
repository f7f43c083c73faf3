"""Memory plans of the fast engine from larger to smaller; a run falls back to the next when memory runs out."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import ValidationError

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan, SaveLevel
from burnish_engine.train.base.engine import SMALLEST

_Tiles = tuple[int, int]
_STEPS: tuple[SaveLevel | _Tiles, ...] = (
    *("products", "narrow", "attention", "host"),
    (2048, 1024),
    "input",  # before it, chunks: without them this level takes more memory than "host" at its peak
    (512, 256),
)
"""Limits to apply in this order: a level caps the activations that layers save, which changes no computed bit; a pair
caps the tokens that pass the feed-forward at once and the supervised tokens whose logits exist at once."""


def smaller_plan(plan: MemoryPlan, tokens: int, *, barred: Collection[SaveLevel] = ()) -> MemoryPlan | None:
    """Return the next smaller plan; None where there is none.

    Args:
        plan: plan that ran out of memory.
        tokens: capacity of the largest bucket.
        barred: levels that the host has no memory for.
    """
    for step in _STEPS:
        if isinstance(step, tuple):
            tile = min(plan.mlp_rows or tokens, step[0])
            changed: dict[str, object] = {"mlp_rows": tile if tile < tokens else plan.mlp_rows}
            changed["head_rows"] = min(plan.head_rows, step[1])
        elif step in barred:
            continue
        else:
            changed = {"layers": tuple(max(one, step, key=LEVEL_NAMES.index) for one in plan.layers)}
        smaller = plan.model_copy(update=changed)
        if smaller != plan:
            return smaller
    return None


def read_memory_plan(text: str, spec: DecoderSpec) -> MemoryPlan | None:
    """Parse the text of `EngineFacts.memory_plan`; None leaves the choice to the engine.

    Args:
        text: JSON of a plan, `SMALLEST`, or empty; other text is ignored.
        spec: shape of the model.
    """
    if text != SMALLEST:
        try:
            return MemoryPlan.model_validate_json(text)
        except ValidationError:
            return None
    mlp_rows, head_rows = next(step for step in reversed(_STEPS) if isinstance(step, tuple))
    return MemoryPlan(
        layers=("input",) * spec.num_layers,
        mlp_rows=mlp_rows,
        head_rows=head_rows,
        embedding_on_host=True,
        head_on_host=True,
    )


def what_changed(old: MemoryPlan, new: MemoryPlan) -> str:
    """Describe the difference between two plans as half a sentence."""
    found = []
    if new.layers != old.layers:
        found.append(f"layers keep {new.text} (before: {old.text})")
    if new.mlp_rows != old.mlp_rows:
        found.append(f"{new.mlp_rows:,} tokens pass the feed-forward at once")
    if new.head_rows != old.head_rows:
        found.append(f"the logits of {new.head_rows:,} tokens exist at once")
    return ", ".join(found)
