"""Counts the bytes that one layer of the fast engine takes at each save level. Loads no torch.

The counts follow `models.decoder.decoder_layer`: a number of bytes for each token of the micro-batch, and inside the
feed-forward for each token of a chunk. Tests compare them with the real tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from burnish_engine.advise.predict.fast_shape import StackShape, is_fused, stacks
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.contract.recipe.recipe_train import AdapterSection

_PROGRAMS, _FEWEST_BLOCKS = 792, 4  # `PROGRAMS`, `_FEWEST_BLOCKS` of `swiglu.adapted.tiles`
_KEEPS_QKV: frozenset[SaveLevel] = frozenset({"all", "rotated", "products", "offloaded", "narrow"})
_HAS_OUTPUT: frozenset[SaveLevel] = _KEEPS_QKV | {"attention", "host"}
"""Save levels that keep attention's output."""
_MAKES_GATE_UP: frozenset[SaveLevel] = frozenset({"all", "rotated", "products", "offloaded"})
"""Save levels that need the whole output of the gate and up projections, on the device or in host memory."""


@dataclass(frozen=True)
class LayerBytes:
    """The memory of a layer at one save level, bytes.

    Attributes:
        kept: bytes that stay on the device between the layer's forward and its backward pass.
        offloaded: bytes of each tensor that is in host memory meanwhile, in the order in which they leave.
        forward: peak of the layer's forward pass, without saved activations of other layers and pool buffers.
        backward: peak of the layer's backward pass, without saved activations of layers below and pool buffers.
    """

    kept: int
    offloaded: tuple[int, ...]
    forward: int
    backward: int


@dataclass(frozen=True)
class LayerShape:
    """The properties of a layer that its counts follow from.

    Attributes:
        spec: shape of the model.
        adapter: adapter section of the recipe.
        width: bytes of a number in the compute dtype.
        cuda: whether a GPU trains; otherwise the CPU does.
    """

    spec: DecoderSpec
    adapter: AdapterSection
    width: int
    cuda: bool

    @cached_property
    def stacks(self) -> dict[str, StackShape]:
        """The layer's stacked matrices, from `fast_shape.stacks`."""
        return stacks(self.spec, self.adapter)

    @property
    def gradient(self) -> int:
        """The numbers of a token in the residual stream's gradient, which has room for the widest adapter's columns."""
        return self.spec.hidden_size + max(stack.rank for stack in self.stacks.values())

    @property
    def rotated(self) -> int:
        """The numbers of a token's normalized queries and keys, which lie outside the projection's output; else 0."""
        spec = self.spec
        return (spec.num_heads + spec.num_kv_heads) * spec.head_dim if spec.qk_norm else 0


def layer_bytes(shape: LayerShape, level: SaveLevel, tokens: int, mlp_chunk_tokens: int) -> LayerBytes:
    """Count the memory of a layer.

    Args:
        shape: shape of the layer.
        level: save level of the layer.
        tokens: number of tokens of the micro-batch, padding included.
        mlp_chunk_tokens: number of tokens that pass the feed-forward at once; 0: all.
    """
    return LayerBytes(
        kept=tokens * kept_bytes(shape, level, tiled=0 < mlp_chunk_tokens < tokens),
        offloaded=tuple(tokens * size for size in offloaded_bytes(shape, level)),
        forward=_forward_bytes(shape, level, tokens, mlp_chunk_tokens),
        backward=_backward_bytes(shape, level, tokens, mlp_chunk_tokens),
    )


def kept_bytes(shape: LayerShape, level: SaveLevel, *, tiled: bool) -> int:
    """Count the bytes that a layer keeps of one token on the device.

    Args:
        shape: shape of the layer.
        level: save level of the layer.
        tiled: whether the feed-forward is done in chunks; then no save level keeps its inputs.
    """
    return _attention_kept(shape, level) + _mlp_kept(shape, level, tiled=tiled) - sum(offloaded_bytes(shape, level))


def offloaded_bytes(shape: LayerShape, level: SaveLevel) -> tuple[int, ...]:
    """Count the bytes that a layer keeps of one token in host memory, for each tensor in the order they leave."""
    made, width = shape.stacks, shape.width
    if level == "offloaded":
        return (made["gate_up"].outputs * width,)
    if level == "input":
        return (shape.spec.hidden_size * width,)
    if level == "host":
        return shape.spec.hidden_size * width, (made["o"].inputs + made["o"].rank) * width
    return ()


def evaluated_bytes(shape: LayerShape, tokens: int, mlp_chunk_tokens: int) -> int:
    """The peak of a layer's forward pass that keeps nothing for a backward pass, bytes."""
    made, hidden, tile = shape.stacks, shape.spec.hidden_size, mlp_chunk_tokens or tokens
    sandwich = int(shape.spec.sandwich_norms)
    attention = hidden + _first_half(shape)
    whole = (3 + 2 * sandwich) * hidden
    tiled = hidden + made["gate_up"].rank + made["gate_up"].outputs + made["down"].inputs + made["down"].rank
    singles = 4 * tokens * (shape.spec.num_heads + 2 + 2 * sandwich)
    return max(tokens * attention, tokens * whole + min(tile, tokens) * tiled) * shape.width + singles


def parts_bytes(shape: LayerShape, tokens: int) -> int:
    """Count the fp32 partial sums of the fused activation's backward pass over a number of tokens, bytes.

    `burnish_kernels.swiglu.adapted.tiles.backward_plan` starts as many programs as fill a card, each with blocks of
    columns and tokens.
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


def _attention_kept(shape: LayerShape, level: SaveLevel) -> int:
    """Bytes of a token that the attention half of a layer keeps, on the device or in host memory."""
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


def _mlp_kept(shape: LayerShape, level: SaveLevel, *, tiled: bool) -> int:
    """Bytes of a token that the feed-forward half of a layer keeps."""
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
    """The numbers of a token from the normalized residual stream to attention's output."""
    qkv, o = shape.stacks["qkv"], shape.stacks["o"]
    return shape.spec.hidden_size + qkv.rank + qkv.outputs + shape.rotated + o.inputs + o.rank


def _forward_bytes(shape: LayerShape, level: SaveLevel, tokens: int, mlp_chunk_tokens: int) -> int:
    """The peak of the forward pass, without the residual stream that the layer below may keep anyway."""
    made, hidden, width = shape.stacks, shape.spec.hidden_size, shape.width
    tile, gate_up, down = min(mlp_chunk_tokens or tokens, tokens), made["gate_up"], made["down"]
    sandwich, whole = int(shape.spec.sandwich_norms), level in _MAKES_GATE_UP
    # The pool buffer that holds gate and up, or attention's output.
    slot = 0 if level == "input" else tokens * sum(offloaded_bytes(shape, level)[-1:])
    # Attention itself: buffers of what the layer will keep or hand on exist already.
    placed = (1 + sandwich) * hidden + down.rank + (gate_up.outputs + gate_up.rank if whole else 0)
    placed += made["qkv"].rank if level in _KEEPS_QKV and level != "all" else 0
    placed += (1 + sandwich) * hidden if level in _KEEPS_QKV else 0
    attention = tokens * (hidden + _first_half(shape) + placed) * width - slot
    # In the feed-forward: what the attention half keeps exists, the residual stream reuses the output's buffer, and the
    # norm's input is dropped only after the layer.
    late_drop = 0 if level in _KEEPS_QKV else sandwich * hidden
    mlp = tokens * (_attention_kept(shape, level) + (2 * hidden + late_drop + gate_up.rank + down.rank) * width)
    mlp += tokens * gate_up.outputs * width if whole else 0
    tiled = hidden + gate_up.rank + down.inputs + down.rank + (0 if whole else gate_up.outputs)
    mlp += tile * tiled * width + tokens * sandwich * hidden * width  # with the last norm's output
    return max(attention + 4 * tokens * (1 + shape.spec.num_heads), mlp - slot)


def _backward_bytes(shape: LayerShape, level: SaveLevel, tokens: int, mlp_chunk_tokens: int) -> int:
    """The peak of the backward pass, with the residual stream's gradient and all that the layer kept."""
    offloaded = tokens * sum(offloaded_bytes(shape, level))  # in pool buffers
    inside = max(
        _mlp_backward(shape, level, tokens, mlp_chunk_tokens) - offloaded,
        _attention_backward(shape, level, tokens, mlp_chunk_tokens) - (0 if level == "offloaded" else offloaded),
    )
    return tokens * shape.gradient * shape.width + inside


def _mlp_backward(shape: LayerShape, level: SaveLevel, tokens: int, mlp_chunk_tokens: int) -> int:
    spec, made, width = shape.spec, shape.stacks, shape.width
    hidden, wide, gate_up, down = spec.hidden_size, spec.intermediate_size, made["gate_up"], made["down"]
    tile, is_tiled = min(mlp_chunk_tokens or tokens, tokens), 0 < mlp_chunk_tokens < tokens
    whole = _attention_kept(shape, level) + _mlp_kept(shape, level, tiled=is_tiled)
    tiled = 0  # numbers of a token of the chunk
    if level not in _HAS_OUTPUT:
        whole += (made["o"].inputs + made["o"].rank) * width + 4 * spec.num_heads
        if not mlp_chunk_tokens:
            whole += (hidden + made["qkv"].rank + made["qkv"].outputs + shape.rotated) * width
    if level not in _KEEPS_QKV:  # the residual stream between the halves is recomputed
        whole += (1 + int(spec.sandwich_norms)) * hidden * width + 4
        if not mlp_chunk_tokens:
            whole += (hidden + gate_up.rank) * width
    if level not in _MAKES_GATE_UP:
        tiled += gate_up.outputs + (hidden + gate_up.rank if mlp_chunk_tokens or level in _KEEPS_QKV else 0)
    if spec.sandwich_norms:
        tiled += hidden + down.rank
    fused = is_fused(made, shape.adapter, cuda=shape.cuda)
    keeps_active = level == "all" and not is_tiled
    activation = tiled + wide + gate_up.outputs + gate_up.rank + (0 if fused or keeps_active else wide)
    gone = 0 if mlp_chunk_tokens or level == "offloaded" else gate_up.outputs
    inputs = gate_up.outputs + gate_up.rank + 2 * hidden - gone
    return tokens * whole + max(tile * activation * width + parts_bytes(shape, tile), tile * inputs * width)


def _attention_backward(shape: LayerShape, level: SaveLevel, tokens: int, mlp_chunk_tokens: int) -> int:
    spec, made = shape.spec, shape.stacks
    hidden, qkv, o = spec.hidden_size, made["qkv"], made["o"]
    numbers = 0
    if level not in _KEEPS_QKV:  # recomputed from the layer's input
        numbers += qkv.outputs + qkv.rank + (0 if mlp_chunk_tokens else hidden) + (hidden if spec.sandwich_norms else 0)
    if level not in {"all", "rotated"}:
        numbers += shape.rotated
    numbers += o.inputs + qkv.outputs + qkv.rank
    singles = spec.num_heads
    if level not in _HAS_OUTPUT:
        numbers, singles = numbers + o.inputs + o.rank, 2 * singles
    return tokens * (_attention_kept(shape, level) + numbers * shape.width + 4 * singles)
