"""What a decoder layer keeps between its forward and its backward pass: the levels that memory plans name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from burnish_engine.contract.memory_plan import Level


@dataclass(frozen=True)
class Keep:
    """What is kept from the forward to the backward pass; the rest is computed again.

    The stream before the attention norm is always kept, and the down projection never runs again. Attention's inputs
    are not kept without its output, nor the stream between the halves.

    Attributes:
        elementwise: Norm outputs and activations.
        qkv: Output of the query, key and value projections.
        attention: Attention's output and its log-sum-exp.
        middle: The stream between attention and feed-forward.
        gate_up: Output of the gate and up projections.
        rotated: Rotated queries and keys, where they are not what stands in `qkv` anyway (with QK norm).
        host: Fields of `Saved` that are kept in host memory (see `offload`).
    """

    elementwise: bool
    qkv: bool
    attention: bool
    middle: bool
    gate_up: bool
    rotated: bool = False
    host: tuple[str, ...] = ()


KEEP_ALL = Keep(elementwise=True, qkv=True, attention=True, middle=True, gate_up=True, rotated=True)
KEEP_ROTATED = Keep(elementwise=False, qkv=True, attention=True, middle=True, gate_up=True, rotated=True)
KEEP_PRODUCTS = Keep(elementwise=False, qkv=True, attention=True, middle=True, gate_up=True)
KEEP_OFFLOADED = replace(KEEP_PRODUCTS, host=("gate_up_TJ",))
"""The widest of them in host memory: what is moved costs no time as long as the link keeps up."""
KEEP_NARROW = Keep(elementwise=False, qkv=True, attention=True, middle=True, gate_up=False)
"""Recompute the gate and up projections, whose outputs are the widest of all."""
KEEP_ATTENTION = Keep(elementwise=False, qkv=False, attention=True, middle=False, gate_up=False)
"""Recompute the layer from its input, but not attention."""
KEEP_HOST = replace(KEEP_ATTENTION, host=("start_TH", "o_TE"))
"""The same with both in host memory: on the device a layer leaves only a few numbers a token."""
KEEP_INPUT = replace(KEEP_ATTENTION, attention=False, host=("start_TH",))
"""Recompute attention too: only the layer's input is there, in host memory. A third to a half for the link to carry."""
KEEP_LEVELS: dict[Level, Keep] = {
    "all": KEEP_ALL,
    "rotated": KEEP_ROTATED,
    "products": KEEP_PRODUCTS,
    "offloaded": KEEP_OFFLOADED,
    "narrow": KEEP_NARROW,
    "attention": KEEP_ATTENTION,
    "host": KEEP_HOST,
    "input": KEEP_INPUT,
}
"""Levels by name, from fastest to smallest."""
