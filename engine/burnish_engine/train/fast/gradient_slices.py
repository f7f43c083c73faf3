"""Cut the flat gradient into slices that the backward pass completes one after another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.models.decoder.layer_tensors import OFFLOADING
from burnish_engine.train.base.exchange import GradientSlice
from burnish_kernels.adamw.op import FlatLayout

_LAYER = re.compile(r"\.layers\.(\d+)\.")


def gradient_slices(names: Sequence[str], layout: FlatLayout, most: int) -> tuple[GradientSlice, ...]:
    """Cut a flat gradient between layers into slices of about the same size.

    Args:
        names: name of each segment.
        layout: layout of the gradient.
        most: most slices.

    Returns:
        Those of the upper layers first; none where there would be fewer than two, or segments are not in the order of
        their layers, as where experts have adapters.
    """
    found = [_LAYER.search(name) for name in names]
    layers = [int(match[1]) for match in found if match]
    if most < 2 or len(layers) < len(names) or layers != sorted(layers):
        return ()
    starts = {layer: layout.starts[next(run)[0]] for layer, run in groupby(enumerate(layers), key=lambda pair: pair[1])}
    slices, end = list[GradientSlice](), layout.total
    for layer, start in reversed(starts.items()):
        wanted = (len(slices) + 1) * layout.total / most
        if layout.total - start >= wanted:
            slices.append(GradientSlice(layer, start, end))
            end = start
    return tuple(slices) if len(slices) > 1 else ()


def backward_cuts(slices: Sequence[GradientSlice], plan: MemoryPlan) -> tuple[int, ...]:
    """List the layers at which the backward pass is cut for its slices to be exchanged; none where it must be whole.

    Copies of activations and weights run beside the pass, ahead of the layers that they are for, and would have to wait
    at every cut.
    """
    if OFFLOADING.intersection(plan.layers) or plan.layers_on_host or plan.layers_on_ranks:
        return ()
    return tuple(part.lowest for part in slices[:-1])
