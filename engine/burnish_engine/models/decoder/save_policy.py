"""Selective activation recomputation: which activations a layer saves for its backward pass, by level."""

from __future__ import annotations

from dataclasses import dataclass, replace

from burnish_engine.contract.recipe.memory_plan import SaveLevel


@dataclass(frozen=True)
class SavePolicy:
    """The activations that a layer saves for its backward pass; the others are recomputed (activation checkpointing).

    The stream before the attention norm is always saved, and the down projection never runs again. Attention's inputs
    are not saved without its output, nor is the stream between the halves.

    Attributes:
        elementwise: whether to save norm outputs and activations.
        qkv: whether to save the output of the query, key and value projections.
        attention: whether to save attention's output and its log-sum-exp.
        middle: whether to save the stream between attention and feed-forward.
        gate_up: whether to save the output of the gate and up projections.
        rotated: whether to save rotated queries and keys where QK norm makes them differ from `qkv`.
        host: names of the fields of `SavedActivations` that are offloaded to host memory (see `offloader`).
    """

    elementwise: bool
    qkv: bool
    attention: bool
    middle: bool
    gate_up: bool
    rotated: bool = False
    host: tuple[str, ...] = ()


SAVE_ALL = SavePolicy(elementwise=True, qkv=True, attention=True, middle=True, gate_up=True, rotated=True)
SAVE_ROTATED = SavePolicy(elementwise=False, qkv=True, attention=True, middle=True, gate_up=True, rotated=True)
SAVE_PRODUCTS = SavePolicy(elementwise=False, qkv=True, attention=True, middle=True, gate_up=True)
SAVE_OFFLOADED = replace(SAVE_PRODUCTS, host=("gate_up_TJ",))
"""Keep what `SAVE_PRODUCTS` keeps, the widest output in host memory: free of charge while the link keeps up."""
SAVE_NARROW = SavePolicy(elementwise=False, qkv=True, attention=True, middle=True, gate_up=False)
"""Recompute the gate and up projections, whose outputs are the widest of all."""
SAVE_ATTENTION = SavePolicy(elementwise=False, qkv=False, attention=True, middle=False, gate_up=False)
"""Recompute the layer from its input, but not attention."""
SAVE_HOST = replace(SAVE_ATTENTION, host=("start_TH", "o_TE"))
"""Keep what `SAVE_ATTENTION` keeps in host memory; on the device a layer leaves only a few numbers a token."""
SAVE_INPUT = replace(SAVE_ATTENTION, attention=False, host=("start_TH",))
"""Recompute attention too, from the layer's input in host memory: the link moves a third to a half of the bytes."""
SAVE_LEVELS: dict[SaveLevel, SavePolicy] = {
    "all": SAVE_ALL,
    "rotated": SAVE_ROTATED,
    "products": SAVE_PRODUCTS,
    "offloaded": SAVE_OFFLOADED,
    "narrow": SAVE_NARROW,
    "attention": SAVE_ATTENTION,
    "host": SAVE_HOST,
    "input": SAVE_INPUT,
}
"""Levels by name, from fastest to smallest."""
