"""Which memory plan a run of the fast engine starts with: what the recipe pins, and for the rest what fits now."""

from __future__ import annotations

from burnish_engine.contract.memory_plan import AUTO, MemoryPlan, parse_levels
from burnish_engine.contract.recipe import Recipe, TrainSection
from burnish_engine.train.fast_model import TrainableDecoder
from burnish_engine.train.packed_batch import buckets
from burnish_engine.train.stream import BatchStream

_HEAD_ROWS = 4096
"""Most rows of a chunk of the head. Fewer leave multiprocessors idle in its backward product; more only take memory."""
_HEAD_ROWS_CPU = 256
_HEAD_STEP = 256


def choose_memory_plan(recipe: Recipe, stream: BatchStream, model: TrainableDecoder) -> MemoryPlan:
    """The plan to start with, for a model whose weights, adapter and optimizer are on the device already."""
    spec, device = model.loaded.decoder.spec, model.device
    section, pinned = recipe.train, recipe.memory
    rows = pass_buckets(section, stream)[-1]
    head = pinned.head_rows or head_rows(min(stream.most_supervised, rows), cpu=device.type == "cpu")
    text = pinned.layers
    if text == AUTO:
        text = "attention" if section.recompute else "products"
    return MemoryPlan(layers=parse_levels(text, spec.num_layers), mlp_rows=pinned.mlp_rows, head_rows=head)


def pass_buckets(section: TrainSection, stream: BatchStream) -> list[int]:
    """Rows of the buckets that a run's passes fall into."""
    return buckets(section.micro_batch_tokens, section.pack, stream.most_tokens)


def lockable_memory() -> int | None:
    """Bytes of host memory that may be page-locked; None: as the system allows."""
    return None


def head_rows(supervised: int, *, cpu: bool = False) -> int:
    """Rows of one chunk of the head.

    Chunks are of equal size, and few of their rows are padding in the pass that learns from the most tokens.

    Args:
        supervised: Most supervised rows of a pass.
        cpu: Padding costs time there, and small products nothing.
    """
    most = _HEAD_ROWS_CPU if cpu else _HEAD_ROWS
    rows = max(supervised, 1)
    chunks = -(-rows // most)
    return -(-rows // chunks // _HEAD_STEP) * _HEAD_STEP
