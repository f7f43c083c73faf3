"""What one layer of the fast engine takes, by what it keeps: read off `models.decoder_layer` and its halves. No torch.

A layer's memory is a number of bytes for each token of the pass, and inside the feed-forward for each token of a tile.
Tests hold all of it to the real tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from burnish_engine.advise.fast_shape import Stack, is_fused, stacks
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.memory_plan import Level
from burnish_engine.contract.recipe_train import AdapterSection

_PROGRAMS, _FEWEST_BLOCKS = 792, 4  # of the fused activation's backward kernel
_KEEPS_QKV: frozenset[Level] = frozenset({"all", "rotated", "products", "offloaded", "narrow"})
_HAS_OUTPUT: frozenset[Level] = _KEEPS_QKV | {"attention", "host"}
"""They keep attention's output."""
_MAKES_GATE_UP: frozenset[Level] = frozenset({"all", "rotated", "products", "offloaded"})
"""Their gate and up projections' output is needed whole, on the device or in host memory."""


@dataclass(frozen=True)
class LayerBytes:
    """What a layer takes at one level, bytes.

    Attributes:
        kept: On the device between its forward and its backward pass.
        parked: Each of the tensors that it has in host memory meanwhile, in the order they leave.
        forward: Most at a moment of its forward pass, beside what other layers keep and tensors in slots.
        backward: Most at a moment of its backward pass, beside what the layers below keep and tensors in slots.
    """

    kept: int
    parked: tuple[int, ...]
    forward: int
    backward: int


@dataclass(frozen=True)
class LayerShape:
    """What the counts are made from.

    Attributes:
        spec: The model's shape.
        adapter: The adapters.
        width: Bytes of a number.
        cuda: A GPU; else the CPU.
    """

    spec: DecoderSpec
    adapter: AdapterSection
    width: int
    cuda: bool

    @cached_property
    def stacks(self) -> dict[str, Stack]:
        """See `fast_shape.stacks`."""
        return stacks(self.spec, self.adapter)

    @property
    def gradient(self) -> int:
        """Numbers of a token of the stream's gradient, which has room for the widest adapter's columns."""
        return self.spec.hidden_size + max(stack.rank for stack in self.stacks.values())

    @property
    def rotated(self) -> int:
        """Queries and keys of a token that are no longer where the projection put them: those that were normalized."""
        spec = self.spec
        return (spec.num_heads + spec.num_kv_heads) * spec.head_dim if spec.qk_norm else 0


def layer_bytes(shape: LayerShape, level: Level, rows: int, mlp_rows: int) -> LayerBytes:
    """What a layer takes.

    Args:
        shape: Of the layer.
        level: What it keeps.
        rows: Tokens of the pass.
        mlp_rows: Tokens that pass the feed-forward at once; 0: all.
    """
    return LayerBytes(
        kept=rows * kept_bytes(shape, level, tiled=0 < mlp_rows < rows),
        parked=tuple(rows * size for size in parked_bytes(shape, level)),
        forward=_forward_bytes(shape, level, rows, mlp_rows),
        backward=_backward_bytes(shape, level, rows, mlp_rows),
    )


def kept_bytes(shape: LayerShape, level: Level, *, tiled: bool) -> int:
    """What a layer keeps of one token on the device.

    Args:
        shape: Of the layer.
        level: What it keeps.
        tiled: Whether the feed-forward is done in tiles; then its inputs are not kept by any level.
    """
    return _attention_kept(shape, level) + _mlp_kept(shape, level, tiled=tiled) - sum(parked_bytes(shape, level))


def parked_bytes(shape: LayerShape, level: Level) -> tuple[int, ...]:
    """What a layer keeps of one token in host memory: each tensor, in the order they leave."""
    made, width = shape.stacks, shape.width
    if level == "offloaded":
        return (made["gate_up"].outputs * width,)
    if level == "input":
        return (shape.spec.hidden_size * width,)
    if level == "host":
        return shape.spec.hidden_size * width, (made["o"].inputs + made["o"].rank) * width
    return ()


def evaluated_bytes(shape: LayerShape, rows: int, mlp_rows: int) -> int:
    """Most at a moment of a forward pass that keeps nothing, bytes."""
    made, hidden, tile = shape.stacks, shape.spec.hidden_size, mlp_rows or rows
    sandwich = int(shape.spec.sandwich_norms)
    attention = hidden + _first_half(shape)
    whole = (3 + 2 * sandwich) * hidden
    tiled = hidden + made["gate_up"].rank + made["gate_up"].outputs + made["down"].inputs + made["down"].rank
    singles = 4 * rows * (shape.spec.num_heads + 2 + 2 * sandwich)
    return max(rows * attention, rows * whole + min(tile, rows) * tiled) * shape.width + singles


def parts_bytes(shape: LayerShape, tokens: int) -> int:
    """Partial sums of the fused activation's backward pass over so many tokens, fp32.

    As `burnish_kernels.swiglu.adapted.tiles.backward_plan` cuts it: as many programs as fill a card, each with blocks
    of columns and tokens.
    """
    made, size = shape.stacks, shape.spec.intermediate_size
    if not is_fused(made, shape.adapter, cuda=shape.cuda):
        return 0
    widest = max(made["gate_up"].widest, made["down"].widest)
    columns, block = (128, 32) if widest <= 32 and shape.width == 2 else (64, 16)
    blocks = -(-tokens // block)
    splits = max(1, min(_PROGRAMS // -(-size // columns), blocks // _FEWEST_BLOCKS))
    splits = -(-blocks // -(-blocks // splits))
    return 4 * splits * size * (made["gate_up"].rank + made["down"].rank)


def _attention_kept(shape: LayerShape, level: Level) -> int:
    """Of a token, by the half of a layer that ends with attention's output projection; wherever it is kept."""
    spec, made = shape.spec, shape.stacks
    numbers, singles = spec.hidden_size, 1
    if level in _HAS_OUTPUT:
        numbers, singles = numbers + made["o"].inputs + made["o"].rank, singles + spec.num_heads
    if level in _KEEPS_QKV:
        numbers += made["qkv"].outputs + made["qkv"].rank
        if spec.sandwich_norms:
            numbers, singles = numbers + spec.hidden_size, singles + 1
    if level in {"all", "rotated"}:
        numbers += shape.rotated
    if level == "all":
        numbers += spec.hidden_size
    return numbers * shape.width + 4 * singles


def _mlp_kept(shape: LayerShape, level: Level, *, tiled: bool) -> int:
    """Of a token, by the feed-forward."""
    spec, made = shape.spec, shape.stacks
    numbers, singles = made["down"].rank, 0
    if spec.sandwich_norms:
        numbers, singles = numbers + spec.hidden_size, singles + 1
    if level in _KEEPS_QKV:
        numbers, singles = numbers + spec.hidden_size, singles + 1
    if level in _MAKES_GATE_UP:
        numbers += made["gate_up"].outputs + made["gate_up"].rank
    if level == "all" and not tiled:
        numbers += spec.hidden_size + made["gate_up"].rank + made["down"].inputs + made["down"].rank
    return numbers * shape.width + 4 * singles


def _first_half(shape: LayerShape) -> int:
    """Numbers of a token from the normalized stream to attention's output."""
    qkv, o = shape.stacks["qkv"], shape.stacks["o"]
    return shape.spec.hidden_size + qkv.rank + qkv.outputs + shape.rotated + o.inputs + o.rank


def _forward_bytes(shape: LayerShape, level: Level, rows: int, mlp_rows: int) -> int:
    """Most at a moment of the forward pass, without the stream that the layer below may keep anyway."""
    made, hidden, width = shape.stacks, shape.spec.hidden_size, shape.width
    tile, gate_up, down = min(mlp_rows or rows, rows), made["gate_up"], made["down"]
    sandwich, whole = int(shape.spec.sandwich_norms), level in _MAKES_GATE_UP
    slot = 0 if level == "input" else rows * sum(parked_bytes(shape, level)[-1:])  # gate and up, or attention's output
    # Attention itself. What the layer will keep or hand on has its place already.
    placed = (1 + sandwich) * hidden + down.rank + (gate_up.outputs + gate_up.rank if whole else 0)
    placed += made["qkv"].rank if level in _KEEPS_QKV and level != "all" else 0
    placed += (1 + sandwich) * hidden if level in _KEEPS_QKV else 0
    attention = rows * (hidden + _first_half(shape) + placed) * width - slot
    # In the feed-forward, what attention's half keeps is there; the stream is where the output was, to which it is
    # added; the norm's input is dropped after the layer only.
    late_drop = 0 if level in _KEEPS_QKV else sandwich * hidden
    mlp = rows * (_attention_kept(shape, level) + (2 * hidden + late_drop + gate_up.rank + down.rank) * width)
    mlp += rows * gate_up.outputs * width if whole else 0
    tiled = hidden + gate_up.rank + down.inputs + down.rank + (0 if whole else gate_up.outputs)
    mlp += tile * tiled * width + rows * sandwich * hidden * width  # with the last norm's output
    return max(attention + 4 * rows * (1 + shape.spec.num_heads), mlp - slot)


def _backward_bytes(shape: LayerShape, level: Level, rows: int, mlp_rows: int) -> int:
    """Most at a moment of the backward pass, with the stream's gradient and everything that the layer kept."""
    parked = rows * sum(parked_bytes(shape, level))  # in slots
    inside = max(
        _mlp_backward(shape, level, rows, mlp_rows) - parked,
        _attention_backward(shape, level, rows, mlp_rows) - (0 if level == "offloaded" else parked),
    )
    return rows * shape.gradient * shape.width + inside


def _mlp_backward(shape: LayerShape, level: Level, rows: int, mlp_rows: int) -> int:
    spec, made, width = shape.spec, shape.stacks, shape.width
    hidden, wide, gate_up, down = spec.hidden_size, spec.intermediate_size, made["gate_up"], made["down"]
    tile, is_tiled = min(mlp_rows or rows, rows), 0 < mlp_rows < rows
    whole = _attention_kept(shape, level) + _mlp_kept(shape, level, tiled=is_tiled)
    tiled = 0  # numbers of a token of the tile
    if level not in _HAS_OUTPUT:
        whole += (made["o"].inputs + made["o"].rank) * width + 4 * spec.num_heads
        if not mlp_rows:
            whole += (hidden + made["qkv"].rank + made["qkv"].outputs + shape.rotated) * width
    if level not in _KEEPS_QKV:  # the stream between the halves is made again
        whole += (1 + int(spec.sandwich_norms)) * hidden * width + 4
        if not mlp_rows:
            whole += (hidden + gate_up.rank) * width
    if level not in _MAKES_GATE_UP:
        tiled += gate_up.outputs + (hidden + gate_up.rank if mlp_rows or level in _KEEPS_QKV else 0)
    if spec.sandwich_norms:
        tiled += hidden + down.rank
    fused = is_fused(made, shape.adapter, cuda=shape.cuda)
    keeps_active = level == "all" and not is_tiled
    activation = tiled + wide + gate_up.outputs + gate_up.rank + (0 if fused or keeps_active else wide)
    gone = 0 if mlp_rows or level == "offloaded" else gate_up.outputs
    inputs = gate_up.outputs + gate_up.rank + 2 * hidden - gone
    return rows * whole + max(tile * activation * width + parts_bytes(shape, tile), tile * inputs * width)


def _attention_backward(shape: LayerShape, level: Level, rows: int, mlp_rows: int) -> int:
    spec, made = shape.spec, shape.stacks
    hidden, qkv, o = spec.hidden_size, made["qkv"], made["o"]
    numbers = 0
    if level not in _KEEPS_QKV:  # made again from the layer's input
        numbers += qkv.outputs + qkv.rank + (0 if mlp_rows else hidden) + (hidden if spec.sandwich_norms else 0)
    if level not in {"all", "rotated"}:
        numbers += shape.rotated
    numbers += o.inputs + qkv.outputs + qkv.rank
    singles = spec.num_heads
    if level not in _HAS_OUTPUT:
        numbers, singles = numbers + o.inputs + o.rank, 2 * singles
    return rows * (_attention_kept(shape, level) + numbers * shape.width + 4 * singles)
