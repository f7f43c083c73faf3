"""Memory plans of the fast engine from larger to smaller: what a run falls back to when memory runs out."""

from __future__ import annotations

from pydantic import ValidationError

from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.memory_plan import LEVELS, Level, MemoryPlan
from burnish_engine.train.engine import SMALLEST

_LEVEL_STEPS: tuple[Level, ...] = ("products", "narrow", "attention", "host", "input")
"""What layers keep at most, by turns. None of these steps changes a bit of what is computed."""
_TILES = ((2048, 1024), (512, 256))
"""Then tokens that pass the feed-forward at once, and learned tokens whose logits exist at once."""


def smaller_plan(plan: MemoryPlan, rows: int, *, to_host: bool = True) -> MemoryPlan | None:
    """The next smaller plan; None where there is none.

    Args:
        plan: What ran out of memory.
        rows: Of the largest pass.
        to_host: The host has the memory for what layers keep there.
    """
    for level in _LEVEL_STEPS:
        if level in {"host", "input"} and not to_host:
            continue
        layers = tuple(max(one, level, key=LEVELS.index) for one in plan.layers)
        if layers != plan.layers:
            return plan.model_copy(update={"layers": layers})
    for mlp_rows, head_rows in _TILES:
        tile = min(plan.mlp_rows or rows, mlp_rows)
        tiled = plan.model_copy(
            update={"mlp_rows": tile if tile < rows else plan.mlp_rows, "head_rows": min(plan.head_rows, head_rows)}
        )
        if tiled != plan:
            return tiled
    return None


def read_plan(text: str, spec: DecoderSpec) -> MemoryPlan | None:
    """A plan as `Engine.memory_plan` said it; None where it is the engine's to choose.

    Args:
        text: JSON of a plan, `SMALLEST`, or empty; what another version said is passed over.
        spec: Of the model.
    """
    if text != SMALLEST:
        try:
            return MemoryPlan.model_validate_json(text)
        except ValidationError:
            return None
    mlp_rows, head_rows = _TILES[-1]
    return MemoryPlan(
        layers=("input",) * spec.num_layers,
        mlp_rows=mlp_rows,
        head_rows=head_rows,
        embedding_on_host=True,
        head_on_host=True,
    )


def what_changed(old: MemoryPlan, new: MemoryPlan) -> str:
    """The difference, as half a sentence."""
    found = []
    if new.layers != old.layers:
        found.append(f"layers keep {new.text} (before: {old.text})")
    if new.mlp_rows != old.mlp_rows:
        found.append(f"{new.mlp_rows:,} tokens pass the feed-forward at once")
    if new.head_rows != old.head_rows:
        found.append(f"the logits of {new.head_rows:,} tokens exist at once")
    return ", ".join(found)
