"""Predicts training speed on the plain engine from a device's rates. Loads no torch.

A micro-batch takes the longer of two times: the host's, to start its kernels, and the device's, to run them (matrix
products at a share of the peak, everything else at the speed of memory). The shares were fitted to the runs of
`python tests/bench plan_accuracy`.
"""

from __future__ import annotations

from burnish_engine.advise.facts.planned_run import PlannedDevice
from burnish_engine.advise.facts.shape import (
    BYTES_OF,
    NF4_BYTES,
    UNPACKED_PER_S_AND_CORE,
    adapted,
    adapter_parameters,
    embedding_parameters,
    parameters,
    parameters_in_4_bits,
    projection_parameters,
    visited,
)
from burnish_engine.advise.facts.trained_bytes import optimizer_bytes
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.plain.memory import uses_own_attention
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.hardware.gpu.gpu_table import gpu_rates

_GEMM_SHARE = 0.60  # share of the dense tensor peak that cuBLAS reaches on these shapes
_ATTENTION_SHARE = 0.20  # share of that peak: masked attention, all blocks computed
_DOCUMENTS_SHARE = 0.25  # the same: Burnish's attention over documents of some hundred tokens, on the fast engine
_MEMORY_SHARE = 0.75  # share of the memory's peak rate that elementwise kernels reach
_HOST_S_PER_LAYER = 0.0081  # forward and backward of a layer with seven adapters: some 350 kernels started from Python
_HOST_S_PER_WHOLE_LAYER = 0.0036  # a layer without adapters: fitted to a Llama 55M and a Qwen3-0.6B on an H100
_HOST_QK_NORM = 1.16
_HOST_FP32 = 0.5  # no casts around the adapters
_HOST_S_PER_PASS = 0.035  # embedding, mask, head, loss, clipping, optimizer
_HOST_S_PER_WHOLE_PASS = 0.020  # fitted to the same two models
_RECOMPUTED_TRAFFIC = 1.4
# Bytes moved forward and backward for one number of each kind, a token: an adapted map's inputs and outputs (its fp32
# branch and the casts around it), hidden states (norms, residuals), rotated heads without and with their norms, the
# feed-forward's width, and logits.
_INPUT, _OUTPUT, _HIDDEN, _HEADS, _NORMED_HEADS, _WIDE, _LOGIT = 40, 75, 180, 40, 120, 30, 40
_UPDATED = 30  # bytes a weight: its gradient summed, scaled and read, the master read and written, its copy written
_PAGED = (
    60  # times the bytes of paged moments, as pages go over the link, some forty times slower than memory, and back
)
_CPU_GB_S = 8.0  # rate of memory, single operations one after the other
_CPU_GFLOPS_PER_CORE = {"fp32": 60.0, "bf16": 85.0}  # oneDNN on AVX-512 cores, run alone; about half with AVX2


def plain_seconds(
    recipe: Recipe, spec: DecoderSpec, micro_batch: MicroBatchSize, machine: MachineFacts, device: PlannedDevice
) -> float:
    """Predicted time of a forward and backward pass, seconds.

    Args:
        recipe: recipe of the run.
        spec: shape of the base model.
        micro_batch: size of an average micro-batch.
        machine: facts of the machine that has the device.
        device: device that computes.
    """
    operations = _operations(recipe, spec, micro_batch)
    gpu = device.gpu(machine)
    if gpu is None:
        operations += _attention_operations(recipe, spec, micro_batch)
        computing = operations / (_CPU_GFLOPS_PER_CORE[device.precision] * 1e9 * max(machine.cpu_cores, 1))
        computing += _unpacked(recipe, spec) / (UNPACKED_PER_S_AND_CORE * max(machine.cpu_cores, 1))
        return computing + _update_traffic(recipe, spec) / (_CPU_GB_S * 1e9)
    rates = gpu_rates(gpu)
    # Without tensor cores for it, fp32 runs at about an eighth of the dense bf16 rate.
    peak = rates.bf16_tflops * 1e12 * (0.125 if device.precision == "fp32" else 1.0)
    moved = micro_batch.tokens * sum(_traffic(recipe, spec, layer) for layer in spec.layers)
    moved *= _RECOMPUTED_TRAFFIC if recipe.train.recompute else 1.0
    moved += micro_batch.supervised_tokens * spec.vocab_size * _LOGIT
    moved += _update_traffic(recipe, spec)
    moved += _unpacked(recipe, spec) * (NF4_BYTES + BYTES_OF[device.precision])
    busy = operations / (peak * _GEMM_SHARE)
    if uses_own_attention(recipe, spec, gpu):
        pairs = (
            (micro_batch.span or micro_batch.longest or micro_batch.tokens) / 2 / micro_batch.tokens
        )  # share of all documents' operations
        busy += pairs * _attention_operations(recipe, spec, micro_batch) / (peak * _DOCUMENTS_SHARE)
    else:
        busy += _attention_operations(recipe, spec, micro_batch) / (peak * _ATTENTION_SHARE)
    busy += moved / (rates.bandwidth_gb_s * 1e9 * _MEMORY_SHARE)
    repeats = 1.4 if recipe.train.recompute else 1.0
    repeats *= _HOST_QK_NORM if spec.qk_norm else 1.0
    whole = recipe.adapter.method == "full"
    repeats *= _HOST_FP32 if device.precision == "fp32" and not whole else 1.0
    layer_s = _HOST_S_PER_WHOLE_LAYER if whole else _HOST_S_PER_LAYER
    host = len(spec.layers) * layer_s * repeats + (_HOST_S_PER_WHOLE_PASS if whole else _HOST_S_PER_PASS)
    return max(busy, host)


def _operations(recipe: Recipe, spec: DecoderSpec, micro_batch: MicroBatchSize) -> float:
    """Count the floating-point operations of a micro-batch outside attention; a multiply-add counts as two.

    A frozen weight costs 2 forward and 2 backward a token (no gradient of its own), a trained one 2 and 4; recomputing
    adds a forward pass.
    """
    repeats = 2 if recipe.train.recompute else 1
    if recipe.adapter.method == "full":
        return (
            micro_batch.tokens * projection_parameters(spec) * (2 * repeats + 4)
            + micro_batch.supervised_tokens * embedding_parameters(spec) * 6
        )
    layers = projection_parameters(spec) * (2 * repeats + 2)
    adapters = adapter_parameters(spec, recipe.adapter) * (2 * repeats + 4)
    return micro_batch.tokens * (layers + adapters) + micro_batch.supervised_tokens * embedding_parameters(spec) * 4


def _unpacked(recipe: Recipe, spec: DecoderSpec) -> int:
    """Count the 4-bit weights that a micro-batch dequantizes: for each product, and for the gradient of its input."""
    if recipe.model.quantize != "nf4":
        return 0
    return sum(parameters_in_4_bits(spec)) * (3 if recipe.train.recompute else 2)


def _update_traffic(recipe: Recipe, spec: DecoderSpec) -> float:
    """Bytes that clipping and the update read and write per micro-batch: master weights, gradients, moments."""
    if recipe.adapter.method != "full":
        return 0.0  # included in the measured time of a micro-batch
    state = optimizer_bytes(spec, recipe.adapter, recipe.train.optimizer, cuda=True)
    return (parameters(spec) * _UPDATED + 2 * state.device + _PAGED * state.host) / recipe.train.accumulation


def _attention_operations(recipe: Recipe, spec: DecoderSpec, micro_batch: MicroBatchSize) -> float:
    """Count attention's operations over T tokens: 4 T^2 q forward and 2.5 times that backward, all blocks computed."""
    layers = sum(layer.attends for layer in spec.layers)
    repeats = 2 if recipe.train.recompute else 1
    return 4.0 * micro_batch.tokens**2 * spec.num_heads * spec.head_dim * layers * (repeats + 2.5)


def _traffic(recipe: Recipe, spec: DecoderSpec, layer: LayerSpec) -> float:
    """Bytes that a layer's elementwise work and adapters move for one token, forward and backward."""
    heads = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
    total = spec.hidden_size * _HIDDEN + spec.intermediate_size * _WIDE
    total += heads * (_NORMED_HEADS if spec.qk_norm else _HEADS)
    return total + sum(
        visited(spec, matrix) * (matrix.columns * _INPUT + matrix.rows * _OUTPUT)
        for matrix in adapted(spec, layer, recipe.adapter)
    )
