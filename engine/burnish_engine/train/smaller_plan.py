"""Memory plans of the fast engine from larger to smaller: what a run falls back to when memory runs out."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import ValidationError

from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.memory_plan import LEVELS, Level, MemoryPlan
from burnish_engine.train.engine import SMALLEST

_Tiles = tuple[int, int]
_STEPS: tuple[Level | _Tiles, ...] = (
    *("products", "narrow", "attention", "host"),
    (2048, 1024),
    "input",  # in tiles, without which it works with more than "host" does
    (512, 256),
)
"""By turns: what layers keep at most, which does not change a bit of what is computed, or tokens that pass the
feed-forward at once and learned tokens whose logits exist at once."""


def smaller_plan(plan: MemoryPlan, rows: int, *, barred: Collection[Level] = ()) -> MemoryPlan | None:
    """The next smaller plan; None where there is none.

    Args:
        plan: What ran out of memory.
        rows: Of the largest pass.
        barred: Levels that the host has no memory for.
    """
    for step in _STEPS:
        if isinstance(step, tuple):
            tile = min(plan.mlp_rows or rows, step[0])
            changed: dict[str, object] = {"mlp_rows": tile if tile < rows else plan.mlp_rows}
            changed["head_rows"] = min(plan.head_rows, step[1])
        elif step in barred:
            continue
        else:
            changed = {"layers": tuple(max(one, step, key=LEVELS.index) for one in plan.layers)}
        smaller = plan.model_copy(update=changed)
        if smaller != plan:
            return smaller
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
    mlp_rows, head_rows = next(step for step in reversed(_STEPS) if isinstance(step, tuple))
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
