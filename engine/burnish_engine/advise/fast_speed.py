"""Predicts training speed on the fast engine from a device's rates. Loads no torch.

A captured pass waits for no host: its time is that of its matrix products, its attention and the bytes that everything
else moves, one after the other. The shares of the peaks are those of one H100 (`tests/bench/LOG.md`): products and
memory by the profiles of a 0.6 B and a 4 B, attention by the times of its tuned kernels.
"""

from __future__ import annotations

from burnish_engine.advise.fast_memory import Level
from burnish_engine.advise.fast_shape import NF4_BYTES, Stack, head_rows, is_fused, stacks
from burnish_engine.advise.planned_run import Device
from burnish_engine.advise.shape import BYTES_OF, embedding_parameters
from burnish_engine.advise.workload import Pass
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.machine import MachineFacts
from burnish_engine.contract.recipe import Recipe
from burnish_engine.hardware.gpu_table import facts_for

_GEMM_SHARE = 0.71  # of the dense tensor peak
_ATTENTION_SHARE = 0.25  # of that peak, counting only pairs of tokens that see each other
_MEMORY_SHARE = 0.93  # of the memory's peak, a second read of what was just written not counted
_LAYER_S = 40e-6  # beginnings and ends of a layer's kernels, forward and backward
_FP32_RATE = 0.125  # of the tensor peak, where fp32 has no tensor cores
# Numbers that a layer moves for one token, forward and backward, outside the products: for each of hidden size, query
# and key width, and feed-forward width. Norms touch four forward and five backward; the adapters' skinny products read
# each input and output once forward and twice backward.
_HIDDEN, _HEADS, _NORMED_HEADS, _WIDE, _WIDE_FUSED = 26, 16, 19, 15, 11
_SANDWICH = 14  # hidden sizes of two more norms
_LOGIT_PASSES = 3  # the loss reads the logits twice and writes them once
_CPU_GFLOPS_PER_CORE = {"fp32": 60.0, "bf16": 85.0, "fp16": 60.0}
_CPU_UNPACKED_PER_S_AND_CORE = 500e6  # NF4 weights


def fast_seconds(
    recipe: Recipe, spec: DecoderSpec, one: Pass, machine: MachineFacts, device: Device, *, nf4: bool
) -> float:
    """Predicted time of a forward and backward pass, seconds.

    Args:
        recipe: The run.
        spec: The base model's shape.
        one: An average pass.
        machine: Has the device.
        device: Which it is.
        nf4: Whether the frozen weights stand in 4 bits.
    """
    level: Level = "attention" if recipe.train.recompute else "products"
    products = product_operations(recipe, spec, one, level, cuda=device.cuda)
    attention = attention_operations(spec, one)
    unpacked = unpacked_weights(recipe, spec, level) if nf4 else 0
    gpu = device.gpu(machine)
    if gpu is None:
        cores = max(machine.cpu_cores, 1)
        busy = (products + attention) / (_CPU_GFLOPS_PER_CORE[device.precision] * 1e9 * cores)
        return busy + unpacked / (_CPU_UNPACKED_PER_S_AND_CORE * cores)
    rates = facts_for(gpu)
    peak = rates.bf16_tflops * 1e12 * (_FP32_RATE if device.precision == "fp32" else 1.0)
    width = BYTES_OF[device.precision]
    moved = width * moved_numbers(recipe, spec, one) + unpacked * (NF4_BYTES + width)
    return (
        products / (peak * _GEMM_SHARE)
        + attention / (peak * _ATTENTION_SHARE)
        + moved / (rates.bandwidth_gb_s * 1e9 * _MEMORY_SHARE)
        + spec.num_layers * _LAYER_S
    )


def product_operations(recipe: Recipe, spec: DecoderSpec, one: Pass, level: Level, *, cuda: bool) -> float:
    """Floating-point operations of the matrix products, each multiply-add counted twice; padding counts.

    Frozen weights have no gradient: 2 a weight and token forward, 2 backward, 2 more where it is computed again.
    """
    made = stacks(spec, recipe.adapter)
    again = _again(made, level)
    layer = sum(
        stack.outputs * (stack.inputs + stack.rank) * (2 if name in again else 1)
        + (stack.outputs + stack.rank) * stack.inputs
        for name, stack in made.items()
    )
    chunk = head_rows(one.supervised, cuda=cuda)
    head = -(-one.supervised // chunk) * chunk * embedding_parameters(spec) * 4
    return 2.0 * one.static_rows * spec.num_layers * layer + head


def attention_operations(spec: DecoderSpec, one: Pass) -> float:
    """Attention within documents: each token sees half of its own; 4 a pair and number forward, 2.5 times that back."""
    span = one.span or one.tokens
    local = min(span, float(spec.sliding_window or span))
    spans = sum(local if layer.kind == "sliding_attention" else span for layer in spec.layers)
    return 4.0 * 3.5 * one.tokens * spans / 2 * spec.num_heads * spec.head_dim


def moved_numbers(recipe: Recipe, spec: DecoderSpec, one: Pass) -> int:
    """Numbers that everything outside the products reads and writes."""
    fused = is_fused(stacks(spec, recipe.adapter), recipe.adapter, cuda=True)
    heads = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
    layer = (_HIDDEN + (_SANDWICH if spec.sandwich_norms else 0)) * spec.hidden_size
    layer += (_NORMED_HEADS if spec.qk_norm else _HEADS) * heads
    layer += (_WIDE_FUSED if fused else _WIDE) * spec.intermediate_size
    return one.static_rows * spec.num_layers * layer + one.supervised * spec.vocab_size * _LOGIT_PASSES


def _again(made: dict[str, Stack], level: Level) -> set[str]:
    """Stacks whose product runs forward a second time."""
    return {"products": set[str](), "narrow": {"gate_up"}, "attention": set(made) - {"down"}}[level]


def unpacked_weights(recipe: Recipe, spec: DecoderSpec, level: Level) -> int:
    """NF4 weights that a pass unpacks: each stack's for every product with it."""
    made = stacks(spec, recipe.adapter)
    again = _again(made, level)
    layer = sum(stack.outputs * stack.inputs * (3 if name in again else 2) for name, stack in made.items())
    return spec.num_layers * layer
