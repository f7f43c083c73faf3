"""Predicts the memory peak of a run on the fast engine, tensor by tensor. Loads no torch.

What is kept between forward and backward, and what else lives at the worst moment, is read off `models.decoder_layer`
and `train.fast_pass`; tests hold it to the bytes of the real tensors. Only the constants at the top were measured.
"""

from __future__ import annotations

from typing import Literal

from burnish_engine.advise.fast_shape import frozen_weights, head_rows, is_fused, stacks
from burnish_engine.advise.shape import BYTES_OF, MIB, adapter_parameters
from burnish_engine.advise.workload import Pass
from burnish_engine.contract.advice import MemoryPart
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.recipe import AdapterSection, Recipe

Level = Literal["products", "narrow", "attention"]
"""What is kept of a layer: see `models.decoder_layer.KEEP_LEVELS`."""

# One H100, torch 2.11, six configurations: what torch holds is 0.6 to 1.9 % more than the tensors in use, and the
# process 0.74 GiB more than torch.
_POOL_SHARE, _POOL_BYTES = 0.01, 32 * MIB
_CONTEXT_BYTES = 760 * MIB
_LIBRARIES_BYTES = 600 * MIB
_LAYERS_NOT_RETURNED = 3.5  # as many layers' tensors glibc keeps after they were freed: four runs of a 135 M
_PARTS = 792  # programs, each with sums for the columns of a tile: see burnish_kernels.swiglu.adapted.tiles
_SCORE_BLOCK = 512  # queries whose scores the CPU's attention holds at once


def fast_memory(
    recipe: Recipe, spec: DecoderSpec, largest: Pass, *, cuda: bool, precision: str, nf4: bool, evaluates: bool
) -> list[MemoryPart]:
    """Components of the peak on the training device, which sum up to what the process holds at its worst moment.

    Args:
        recipe: The run.
        spec: The base model's shape.
        largest: Its largest pass.
        cuda: An NVIDIA GPU; else the CPU.
        precision: What the base model computes in.
        nf4: Whether the frozen weights stand in 4 bits.
        evaluates: Whether held-out rows are looked at during training.
    """
    width, adapter = BYTES_OF[precision], recipe.adapter
    rows, trained = largest.static_rows, adapter_parameters(spec, adapter)
    level: Level = "attention" if recipe.train.recompute else "products"
    weights = frozen_weights(spec, adapter, precision, nf4=nf4)
    parts = [
        MemoryPart(name="base weights", bytes=weights.stored, note=f"NF4, the rest {precision}" if nf4 else precision),
        MemoryPart(name="adapter", bytes=trained * 4, note=f"{trained:,} weights, fp32"),
        MemoryPart(name="gradients", bytes=trained * 4, note="fp32"),
        MemoryPart(name="optimizer", bytes=trained * 8, note="AdamW, two moments, fp32"),
    ]
    if nf4:
        parts.append(MemoryPart(name="unpacked weights", bytes=weights.scratch, note="one matrix of each shape"))
    kept = rows * (spec.num_layers * kept_bytes(spec, adapter, width, level) + pass_bytes(spec, width))
    how = "layer inputs and attention, the rest is computed again" if recipe.train.recompute else "what products need"
    parts.append(MemoryPart(name="activations", bytes=kept, note=f"{rows:,} tokens a pass, {how}"))
    # The head's pass and a layer's backward pass are never at work at the same time.
    head = head_bytes(spec, min(largest.supervised, rows), width, cuda=cuda)
    layer = rows * backward_bytes(spec, adapter, width, level, cuda=cuda) + parts_bytes(spec, adapter, cuda=cuda)
    if not cuda:
        layer += max(_cpu_attention_bytes(spec, largest), rows * spec.intermediate_size * 16)
    if head >= layer:
        parts.append(MemoryPart(name="head and loss", bytes=head, note=f"{largest.supervised:,} learned tokens"))
    else:
        parts.append(MemoryPart(name="backward pass of a layer", bytes=layer))
    forward = rows * forward_bytes(spec, adapter, width)
    if not cuda:
        slack = int(_LAYERS_NOT_RETURNED * forward)
        parts.append(MemoryPart(name="allocator", bytes=slack, note="fragmentation"))
        return [*parts, MemoryPart(name="libraries", bytes=_LIBRARIES_BYTES, note="torch, tokenizers")]
    if evaluates:  # captured passes keep their memory, so this comes on top
        size = max(forward, rows * 2 * spec.hidden_size * width + head)
        parts.append(MemoryPart(name="evaluation", bytes=size, note="held-out rows, beside the captured passes"))
    slack = int(_POOL_SHARE * sum(part.bytes for part in parts)) + _POOL_BYTES
    parts.append(MemoryPart(name="allocator", bytes=slack, note="fragmentation, cuBLAS workspace"))
    return [*parts, MemoryPart(name="CUDA context", bytes=_CONTEXT_BYTES, note="driver, kernels, graphs")]


def kept_bytes(spec: DecoderSpec, adapter: AdapterSection, width: int, level: Level) -> int:
    """What a layer keeps of one token between forward and backward, bytes.

    Args:
        spec: The model's shape.
        adapter: Its ranks are kept too.
        width: Bytes of a number.
        level: What is kept.
    """
    hidden, made = spec.hidden_size, stacks(spec, adapter)
    qkv, o, gate_up, down = made["qkv"], made["o"], made["gate_up"], made["down"]
    numbers = hidden + o.inputs + o.rank + down.rank  # the stream, attention's output, the down projection's xA
    singles = 1 + spec.num_heads  # the norm's inverse, attention's log-sum-exp; fp32 whatever the width
    sandwich = int(spec.sandwich_norms)  # norms after attention and feed-forward keep their input
    numbers, singles = numbers + sandwich * hidden, singles + sandwich
    if level != "attention":
        numbers += qkv.outputs + qkv.rank + (1 + sandwich) * hidden  # also the stream between the halves
        singles += 1 + sandwich
    if level == "products":
        numbers += gate_up.outputs + gate_up.rank
    return numbers * width + singles * 4


def pass_bytes(spec: DecoderSpec, width: int) -> int:
    """What lives of one token through a whole pass: the last hidden state, its sum, its gradient, and its rotation."""
    tables = [rope.partial for rope in (spec.rope, spec.local_rope) if rope is not None]
    return 3 * spec.hidden_size * width + 4 + sum(4 * int(spec.head_dim * partial) for partial in tables)


def head_bytes(spec: DecoderSpec, supervised: int, width: int, *, cuda: bool) -> int:
    """Logits of a chunk, which become their own gradient, and the gradient of its rows.

    The CPU's cross entropy has two more copies in fp32.
    """
    logit = width + (0 if cuda else 8)
    return head_rows(supervised, cuda=cuda) * (spec.vocab_size * logit + spec.hidden_size * width)


def backward_bytes(spec: DecoderSpec, adapter: AdapterSection, width: int, level: Level, *, cuda: bool) -> int:
    """What lives of one token at the widest moment of a layer's backward pass beside all that is kept, bytes.

    It is inside the feed-forward, when its gradients and, where it is written out, its activation are there;
    attention, whose own gradients are narrower, comes when these are gone.
    """
    hidden, wide, made = spec.hidden_size, spec.intermediate_size, stacks(spec, adapter)
    qkv, gate_up, down = made["qkv"], made["gate_up"], made["down"]
    numbers = hidden + max(stack.rank for stack in made.values())  # the stream's gradient
    numbers += wide + gate_up.outputs + gate_up.rank  # of the activation, and of gate and up
    numbers += 0 if is_fused(made, adapter, cuda=cuda) else wide  # the activation itself
    singles = 0
    if spec.sandwich_norms:
        numbers += hidden + down.rank
    if level == "narrow":
        numbers += hidden + gate_up.outputs + gate_up.rank
    if level == "attention":  # the layer from its start, without attention itself
        numbers += 3 * hidden + qkv.outputs + qkv.rank + gate_up.outputs + gate_up.rank
        numbers += _rotated(spec) + (hidden if spec.sandwich_norms else 0)
        singles += 2 if spec.sandwich_norms else 1
    return numbers * width + singles * 4


def parts_bytes(spec: DecoderSpec, adapter: AdapterSection, *, cuda: bool) -> int:
    """Partial sums of the fused activation's backward pass, for as many programs as fill a card; fp32."""
    made = stacks(spec, adapter)
    if not is_fused(made, adapter, cuda=cuda):
        return 0
    widest = max(made["gate_up"].widest, made["down"].widest)
    columns = _PARTS * (128 if widest <= 32 else 64)
    return 4 * columns * (made["gate_up"].rank + made["down"].rank)


def forward_bytes(spec: DecoderSpec, adapter: AdapterSection, width: int) -> int:
    """What lives of one token at the widest moment of a layer's forward pass that keeps nothing, bytes."""
    hidden, made = spec.hidden_size, stacks(spec, adapter)
    qkv, o, gate_up, down = made["qkv"], made["o"], made["gate_up"], made["down"]
    numbers = 7 * hidden + (2 * hidden if spec.sandwich_norms else 0)  # streams, both norms' outputs, two outputs
    numbers += qkv.outputs + qkv.rank + _rotated(spec) + o.inputs + o.rank
    numbers += gate_up.outputs + gate_up.rank + down.inputs + down.rank
    return numbers * width + 4 * (spec.num_heads + 2 + 2 * spec.sandwich_norms)


def _rotated(spec: DecoderSpec) -> int:
    """Queries and keys that are no longer where the projection put them: those that were normalized."""
    return (spec.num_heads + spec.num_kv_heads) * spec.head_dim if spec.qk_norm else 0


def _cpu_attention_bytes(spec: DecoderSpec, largest: Pass) -> int:
    """Scores and their exponentials that autograd keeps of all documents of a pass, fp32."""
    longest = min(largest.longest or largest.tokens, largest.tokens)
    spans = [(longest, longest), (largest.tokens - longest, min(largest.span or longest, longest))]
    pairs = sum(tokens * min(span, (span + _SCORE_BLOCK) / 2) for tokens, span in spans)
    return int(8 * spec.num_heads * pairs)
