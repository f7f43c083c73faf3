"""Predicts training speed on the fast engine from a device's rates and a memory plan. Loads no torch.

A captured micro-batch does not wait for the host: its time is the sum of its matrix products, its attention and the
bytes that everything else moves. Recomputation comes on top, and, where layers offload activations, the time that they
wait for the link. The shares of the peaks are those of an H100 and an H200 (`tests/bench/LOG.md`): products and memory
by the profiles of sixteen steps, attention by the times of its tuned kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.shape import (
    BYTES_OF,
    NF4_BYTES,
    UNPACKED_PER_S_AND_CORE,
    embedding_parameters,
    packed_width,
)
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.expert_speed import ROWS_SHARE, ExpertRates, expert_work
from burnish_engine.advise.predict.fast_layer import LayerShape, layer_shapes, offloaded_bytes
from burnish_engine.advise.predict.fast_memory import memory_of
from burnish_engine.advise.predict.fast_shape import (
    StackShape,
    attention_operations,
    backward_operations,
    is_fused,
)
from burnish_engine.advise.predict.level_mixes import SaveLevels
from burnish_engine.advise.predict.plan_options import Bytes, PlanOptions, split_plan
from burnish_engine.advise.predict.transfers import (
    AHEAD,
    BOTH_WAYS_SHARE,
    PIECE_BYTES,
    SLOTS,
    Seconds,
    backward_seconds,
    forward_seconds,
    link_gb_s,
)
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan, SaveLevel
from burnish_engine.hardware.gpu.gpu_table import gpu_rates
from burnish_engine.models.decoder.frozen.declared import coded_bytes, norm_coded
from burnish_engine.models.decoder.layer_tensors import RECOMPUTED, stacks_again
from burnish_engine.models.decoder.mixers.declared import declared_mixer
from burnish_engine.models.families.matrices import StackName

_GEMM_SHARE = 0.681  # share of the dense tensor peak that matrix products reach
_HEAD_SHARE = 0.72  # the same of products with the head, which are larger than those of layers
_FP8_RATE = 2.0  # dense tensor peak in FP8, fp32 sums, times that in bf16 (H100, Ada and Blackwell whitepapers)
_EIGHT_BIT_SHARE = 0.58  # share of the peak that products in 8 bits reach (FP8, H100); MXFP8: not measured
# The same in INT8, where the sum runs over many columns; and the columns whose time beginning and ending a tile takes.
# Fitted to whole steps on an H200: alone, four stacks on an H100 reached 6 % less (1,330 TFLOP/s over 16,384 columns).
_INT8_SHARE, _INT8_EDGE = 0.735, 560
_ROTATED_PER_OPERATION = 0.57e12 / 989e12  # weights in NF4 rotated and rounded to INT8 by operations of the bf16 peak
_ATTENTION_SHARE = 0.425  # share of the bf16 peak that attention reaches forward
_BACKWARD_CPU = 2.5  # time of attention's backward pass by that of the forward pass on processors: five products to two
_ATTENTION_EDGE = 400  # tokens by which documents count as longer: rows of a tile past the diagonal, loads, stores
_MEMORY_SHARE = 0.965  # share of the memory's peak rate; a second read of what was just written is not counted
# Most bytes/s that a multiprocessor moves in kernels that compute as well: an H200's copies are faster, but not these.
_MULTIPROCESSOR_BYTES_S = 29e9
_LAYER_S = 105e-6  # time to begin a layer's kernels and for their last programs to end, forward and backward
_AGAIN_S = {"narrow": 4e-6, "attention": 14e-6, "host": 14e-6, "input": 16e-6}  # the same of recomputed kernels
_TILE_S = 20e-6  # the same time for one further chunk of the feed-forward
_TILE_FILL = 96  # tokens whose time equals that of filling and draining the multiprocessors once more for a chunk
_FP32_RATE = 0.125  # share of the tensor peak that fp32 reaches without tensor cores
# Numbers that a layer moves for one token outside the products and its mixer, forward and in all: for each of hidden
# size and feed-forward width, by kernel on an H200: norms take 17 hidden sizes, the adapters' skinny products 12, and 3
# widths of the feed-forward; its activation 9. In INT8 the activation's backward kernel takes 2 widths more (tiles are
# narrower, for the rows' largest magnitudes); the rest of what steps in INT8 take is not attributed to a kernel.
_HIDDEN, _WIDE, _WIDE_FUSED = (10, 29), (4, 16), (3, 12)
_WIDE_UNGATED = (3, 10)  # without a gate; counted in the code, not measured
_WIDE_INT8 = 5.5
_SANDWICH = (4, 14)  # hidden sizes of two more norms
# The same of what is recomputed: norms, and the adapters' skinny products.
_NARROW_HIDDEN, _RECOMPUTED_HIDDEN = 2, 8
_ALL_HIDDEN = 2  # not moved where norm outputs are kept
_MAGNITUDES_MOVED = 9  # outputs of a stack, in the backward pass of DoRA; counted in the code, not measured
_LOGIT_PASSES = 3  # the loss reads the logits twice and writes them once
_CPU_GFLOPS_PER_CORE = {"fp32": 60.0, "bf16": 85.0, "fp16": 60.0}
_CPU_GB_S = 20.0  # rate of memory on any CPU; it is a small part of the time
_WEIGHTS_SHARE = 0.9  # share of a link's measured rate that layers' weights reach, one copy after the other for a step


class Rates(NamedTuple):
    """The rates that a device reaches."""

    products: float  # rate of matrix products in layers, operations/s
    head: float  # rate of matrix products with the head, operations/s
    eight_bits: float  # rate of matrix products in the run's 8-bit format, operations/s
    int8: float  # the same in INT8, in which logits are beside any of them; sums over few columns reach less
    rotating: float  # rate of rotating weights in NF4 and rounding them to INT8, weights/s
    attention: float  # rate of attention, operations/s
    memory: float  # rate of memory, bytes/s
    unpacking: float  # rate of unpacking NF4, weights/s
    link_in: float  # rate of copies from host memory, bytes/s
    link_out: float  # rate of copies to host memory, bytes/s
    peer: float  # rate of copies from another process's device, bytes/s
    experts: ExpertRates  # rates of products with experts


class FastSpeed:
    """Predicts the time of a micro-batch of one run, for any number of memory plans.

    Args:
        run: the run.
        micro_batch: size of the micro-batch.
        at: rates to count with; None: those of the run's device.
    """

    def __init__(self, run: FastRun, micro_batch: MicroBatchSize, at: Rates | None = None) -> None:
        self._run, self._micro_batch = run, micro_batch
        self._width, self._rates = BYTES_OF[run.precision], at or rates(run)
        self._shapes, kinds = layer_shapes(run)
        self._kinds = np.array(kinds)
        self._layers: dict[int, tuple[Seconds, Seconds]] = {}

    def seconds(self, plans: Sequence[tuple[SaveLevels, PlanOptions]]) -> Seconds:
        """Predict the time of a forward and backward pass, seconds, [plans].

        Args:
            plans: (save levels of several plans, [plans, layers], and their options) for each set of options; results
                are concatenated in this order.
        """
        levels, kinds = np.vstack([one for one, _ in plans]), self._kinds
        both = [[self.layers(options.mlp_chunk_tokens)[way][kinds, one] for one, options in plans] for way in (0, 1)]
        again = levels == LEVEL_NAMES.index("input")
        forward = np.vstack(both[0]) + self._attention
        backward = np.vstack(both[1]) + self._attention_backward + again * self._attention
        outside = np.concatenate([np.full(len(one), self.outside(options)) for one, options in plans])
        sizes, at = self._offloaded[kinds, levels], self._rates
        moved, coming = (
            np.vstack([np.broadcast_to(of(options), one.shape) for one, options in plans])
            for of in (self._streamed, self._copy_seconds)
        )
        if not sizes.any() and not moved.any():
            return forward.sum(axis=1) + backward.sum(axis=1) + outside
        written = moved / at.memory
        forward, backward = forward + written, backward + written
        seconds = forward_seconds(forward, sizes / at.link_out, coming)
        return seconds + backward_seconds(backward, sizes / at.link_in, AHEAD[levels], coming) + outside

    def approximate_seconds(self, counts: Bytes, choices: Sequence[PlanOptions]) -> Seconds:
        """Approximate `seconds` from the number of layers of each save level, [choices, plans].

        Args:
            counts: number of layers of each level, [plans, levels].
            choices: options to count with, all with one chunk of the feed-forward.
        """
        places = {options[-2:]: options for options in choices}  # of layers, on hosts and ranks
        number = [list(places).index(options[-2:]) for options in choices]
        coming = [self._copy_seconds(options) for options in places.values()]
        weights, first = (np.array([[size(one)] for one in coming]) for size in (np.sum, np.max))
        moved = np.array([[self._streamed(options).sum()] for options in places.values()])
        sizes = counts @ self._mean(self._offloaded.sum(axis=2))
        leaving, returning = sizes / self._rates.link_out, sizes / self._rates.link_in
        count, written = self._run.spec.num_layers, moved / self._rates.memory
        back = np.maximum(weights - SLOTS * first, 0.0)  # the first to come is waited for
        again = counts[:, LEVEL_NAMES.index("input")] / count
        slower = leaving * (1.0 / BOTH_WAYS_SHARE - 1.0) * (moved > 0)
        out = np.ones_like(again), leaving + slower, weights + first + slower
        backward = self._attention_backward.sum() / self._attention.sum()
        ways = (out, (backward + again, returning + back, back))  # out and in at once; both in
        found = np.array([[self.outside(options)] for options in choices])
        for one, (factor, copied, inward) in zip(self.layers(choices[0].mlp_chunk_tokens), ways, strict=True):
            compute = counts @ self._mean(one) + factor * self._attention.sum() + written
            # The last tensor to leave, or the first to come, is waited for.
            found = found + np.maximum(np.maximum(compute, inward), copied + compute / count)[number]
        return found

    def _streamed(self, options: PlanOptions) -> Bytes:
        """The bytes of each layer's weights that are copied to the device in each pass, [layers]; 0: they are there."""
        found, layers = np.zeros(len(self._kinds)), options.streamed
        found[layers] = memory_of(self._run).blocks[layers]
        return found

    def _copy_seconds(self, options: PlanOptions) -> Seconds:
        """The time to copy each layer's weights to the device, seconds, [layers]; 0: they are there."""
        at, found = self._rates, self._streamed(options)
        own = 1 / self._run.ranks  # the part that is on this device, read and written there
        shared = (1 - own) / (at.peer * _WEIGHTS_SHARE) + 2 * own / at.memory
        pace = np.full(len(found), 1 / (at.link_in * _WEIGHTS_SHARE))
        pace[list(options.layers_on_ranks)] = shared
        return found * pace

    @property
    def reads_peers_faster(self) -> bool:
        """Whether weights come faster from other processes' devices than from host memory."""
        return self._run.peer_gb_s * 1e9 > self._rates.link_in

    def layers(self, mlp_chunk_tokens: int) -> tuple[Seconds, Seconds]:
        """The times of layers' forward and backward passes without attention, seconds, [kinds of layers, levels]."""
        if mlp_chunk_tokens not in self._layers:
            both = np.array(
                [[self._layer(shape, level, mlp_chunk_tokens) for level in LEVEL_NAMES] for shape in self._shapes]
            )
            self._layers[mlp_chunk_tokens] = both[..., 0], both[..., 1]
        return self._layers[mlp_chunk_tokens]

    def _mean(self, table: Seconds) -> Seconds:
        """Average a table [kinds of layers, levels] over the layers, [levels]."""
        return table[0] if len(table) == 1 else np.asarray(table[self._kinds].mean(axis=0))

    def outside(self, options: PlanOptions) -> float:
        """The time of everything outside the layers: embedding, head and loss, seconds."""
        spec, micro_batch, at, width = self._run.spec, self._micro_batch, self._rates, self._width
        weights, chunks = embedding_parameters(spec), -(-micro_batch.supervised_tokens // options.head_chunk_tokens)
        moves = at.link_in if options.head_on_host else at.memory  # while the piece before is multiplied
        filled = options.head_chunk_tokens + _TILE_FILL * (chunks - 1) / max(chunks, 1)
        product = max(2.0 * filled * weights / at.head, weights * width / moves)
        logits = product
        if self._run.eight_bits.logits_in_int8:
            moved_bytes = width if options.head_on_host else 1  # pieces from the host become codes when they arrive
            in_int8 = 2.0 * filled * weights * (1 + _INT8_EDGE / spec.hidden_size) / at.int8
            logits = max(in_int8, weights * moved_bytes / moves)
        moved = micro_batch.supervised_tokens * spec.vocab_size * _LOGIT_PASSES * width
        total = chunks * (logits + product) + moved / at.memory
        if options.head_on_host:  # the gradient is summed piece by piece
            sums = chunks * options.head_chunk_tokens * spec.hidden_size * weights * width / PIECE_BYTES
            total += sums * (8 + width) / at.memory
        if options.embedding_on_host:
            total += micro_batch.padded_tokens * spec.hidden_size * width / at.link_in
        return total

    @cached_property
    def _offloaded(self) -> Seconds:
        """The bytes of each tensor that leaves, [kinds of layers, levels, tensors]; 0: none."""
        sizes = [[offloaded_bytes(one, level) for level in LEVEL_NAMES] for one in self._shapes]
        most = max(len(tensors) for by_level in sizes for tensors in by_level)
        padded = [[tensors + (0,) * (most - len(tensors)) for tensors in by_level] for by_level in sizes]
        return np.array(padded, dtype=np.float64) * self._micro_batch.padded_tokens

    @cached_property
    def _attention(self) -> Seconds:
        """The time of each layer's attention, forward, seconds."""
        edge = _ATTENTION_EDGE if self._run.cuda else 0
        return np.array(attention_operations(self._run.spec, self._micro_batch, edge)) / self._rates.attention

    @cached_property
    def _attention_backward(self) -> Seconds:
        """The time of each layer's attention, backward, seconds."""
        spec, micro_batch = self._run.spec, self._micro_batch
        if not self._run.cuda:
            return _BACKWARD_CPU * self._attention
        operations = attention_operations(spec, micro_batch, _ATTENTION_EDGE)
        return np.array(backward_operations(spec, micro_batch, operations)) / self._rates.attention

    def _layer(self, shape: LayerShape, level: SaveLevel, mlp_chunk_tokens: int) -> tuple[float, float]:
        micro_batch, at, width, made = self._micro_batch, self._rates, self._width, shape.stacks
        again = stacks_again(shape.tensors, level, chunked=0 < mlp_chunk_tokens < micro_batch.padded_tokens)
        forward = sum(self._product(name, made[name], mlp_chunk_tokens) for name in made)
        backward = sum(self._product(name, made[name], mlp_chunk_tokens, turned=True) for name in made)
        # In the feed-forward's backward pass a matrix is unpacked once for all that is done with it.
        backward += sum(
            self._product(name, made[name], mlp_chunk_tokens, unpacks=name != "gate_up")
            for name in again
            if name in made
        )
        for name in made:  # DoRA: outputs are scaled, and most computed again for the magnitudes' gradients
            if made[name].is_dora:
                scaled = made[name].outputs * micro_batch.padded_tokens * width / at.memory
                forward += 2 * scaled
                backward += _MAGNITUDES_MOVED * scaled
                backward += self._product(name, made[name], mlp_chunk_tokens) if name != "gate_up" else 0.0
        moved = micro_batch.padded_tokens * width / at.memory
        first, both = self._moved(shape)
        more = self._moved_again(shape, level)
        if shape.experts:
            work = expert_work(shape, micro_batch.padded_tokens, mlp_chunk_tokens, at.experts)
            repeats = again.count("gate_up")
            forward += work.gate_up_s + work.down_s
            backward += (1 + repeats) * work.gate_up_s + work.down_s
            first, both = first + work.moved / ROWS_SHARE, both + work.moved_in_all / ROWS_SHARE
            more += repeats * work.moved_again / ROWS_SHARE
        tiles = -(-micro_batch.padded_tokens // mlp_chunk_tokens) - 1 if mlp_chunk_tokens else 0
        starts = _LAYER_S + tiles * _TILE_S if self._run.cuda else 0.0
        forward += first * moved + 0.4 * starts
        return forward, backward + (both - first + more) * moved + 0.6 * starts + _AGAIN_S.get(level, 0.0)

    def _product(
        self, name: StackName, stack: StackShape, mlp_chunk_tokens: int, *, turned: bool = False, unpacks: bool = True
    ) -> float:
        """The time of a stack's product with all tokens of the micro-batch, or with their gradient, seconds."""
        tokens, at = self._micro_batch.padded_tokens, self._rates
        step = min(mlp_chunk_tokens or tokens, tokens) if name in {"gate_up", "down"} else tokens
        tiles = -(-tokens // step)
        operations = 2.0 * (tokens + (tiles - 1) * _TILE_FILL) * _weights(stack, turned=turned)
        if self._run.eight_bits.products:
            return self._eight_bit_product(name, stack, operations, tiles, turned=turned)
        taken = max(operations / at.products, tiles * stack.outputs * stack.inputs * self._width / at.memory)
        if self._run.eight_bits.stored and unpacks:  # codes are copied, then scaled in place
            taken += stack.outputs * stack.inputs * (1 + 3 * self._width) / at.memory
        return taken + (stack.outputs * stack.inputs / at.unpacking if self._run.nf4 and unpacks else 0.0)

    def _eight_bit_product(
        self, name: StackName, stack: StackShape, operations: float, tiles: int, *, turned: bool
    ) -> float:
        """The time of a stack's product in 8 bits, with the operand's codes, and the weight's where made anew."""
        at, tokens, weights = self._rates, self._micro_batch.padded_tokens, stack.outputs * stack.inputs
        columns = stack.outputs if turned else stack.inputs
        codes = coded_bytes(columns, self._run.eight_bits.products)
        handed_over = name in norm_coded(self._run.spec, self._run.eight_bits.products, turned=turned)
        read = 0 if handed_over else columns * self._width  # what is read twice is in the cache
        coded = tokens * (read + codes) / at.memory
        if self._run.eight_bits.products == "int8":
            operations *= 1 + _INT8_EDGE / columns
        anew = (NF4_BYTES + 1 if self._run.nf4 else 2.0 if turned else 0.0) * weights / at.memory
        if self._run.nf4 and self._run.eight_bits.products == "int8":
            anew = max(anew, weights / at.rotating)
        return max(operations / at.eight_bits, tiles * weights / at.memory) + coded + anew

    def _moved(self, shape: LayerShape) -> tuple[float, float]:
        """The numbers that a layer moves for a token outside the products, forward and in all."""
        spec, layer = self._run.spec, shape.layer
        mixer = declared_mixer(spec, layer).moved(spec.of_layer(layer))
        fused = is_fused(shape.stacks, shape.adapter, cuda=self._run.cuda)
        wide: Sequence[float] = _WIDE_FUSED if fused else _WIDE if spec.mlp_gate else _WIDE_UNGATED
        width = shape.stacks["down"].inputs if "down" in shape.stacks else 0
        if self._run.eight_bits.products == "int8" and fused:
            wide = (wide[0], wide[1] + _WIDE_INT8)
        first, both = (
            (_HIDDEN[way] + (_SANDWICH[way] if spec.sandwich_norms else 0)) * spec.hidden_size + wide[way] * width
            for way in (0, 1)
        )
        return first + mixer.forward, both + mixer.forward + mixer.backward

    def _moved_again(self, shape: LayerShape, level: SaveLevel) -> float:
        """The numbers that a save level moves in addition for a token, negative where it moves fewer."""
        hidden = {"narrow": _NARROW_HIDDEN, "all": -_ALL_HIDDEN} | dict.fromkeys(RECOMPUTED, _RECOMPUTED_HIDDEN)
        spec, layer = self._run.spec, shape.layer
        again = declared_mixer(spec, layer).moved_again(spec.of_layer(layer), level)
        return hidden.get(level, 0) * spec.hidden_size + again


def fast_seconds(run: FastRun, micro_batch: MicroBatchSize, plan: MemoryPlan) -> float:
    """Predicted time of a forward and backward pass, seconds.

    Args:
        run: the run.
        micro_batch: size of the micro-batch, such as an average one.
        plan: memory plan.
    """
    return float(FastSpeed(run, micro_batch).seconds([split_plan(plan)])[0])


def rates(run: FastRun) -> Rates:
    """The rates that the run's device reaches. An unknown GPU counts as a slow one."""
    width = BYTES_OF[run.precision]
    if not run.cuda:
        cores = max(run.cpu_cores, 1)
        operations = _CPU_GFLOPS_PER_CORE[run.precision] * 1e9 * cores
        unpacking = UNPACKED_PER_S_AND_CORE * cores
        experts = ExpertRates.of_cpu(run, operations, unpacking)
        memory = _CPU_GB_S * 1e9
        every = (operations,) * 6  # nothing is computed in 8 bits there
        return Rates(*every, memory, unpacking, memory, memory, memory, experts)
    gpu = run.gpu or GpuFacts(index=0, name="")
    found = gpu_rates(gpu)
    peak = found.bf16_tflops * 1e12 * (_FP32_RATE if run.precision == "fp32" else 1.0)
    memory = found.bandwidth_gb_s * 1e9 * _MEMORY_SHARE
    memory = min(memory, (found.multiprocessors or math.inf) * _MULTIPROCESSOR_BYTES_S)
    link_in, link_out = (1e9 * rate for rate in link_gb_s(gpu.pcie))
    attention = peak * _ATTENTION_SHARE
    unpacking = memory / (packed_width(run.spec) + width)
    int8 = found.bf16_tflops * 1e12 * found.int8_rate * _INT8_SHARE
    rate = _FP8_RATE if run.eight_bits.products == "fp8" else found.int8_rate
    eight_bits = int8 if run.eight_bits.products == "int8" else found.bf16_tflops * 1e12 * rate * _EIGHT_BIT_SHARE
    peer = 1e9 * run.peer_gb_s or min(link_in, link_out)  # what cannot be read directly goes through host memory
    experts = ExpertRates.of_gpu(run, peak, eight_bits, memory)
    products, head = peak * _GEMM_SHARE, peak * _HEAD_SHARE
    rotating = found.bf16_tflops * 1e12 * _ROTATED_PER_OPERATION
    return Rates(
        products, head, eight_bits, int8, rotating, attention, memory, unpacking, link_in, link_out, peer, experts
    )  # fmt: skip


def _weights(stack: StackShape, *, turned: bool) -> int:
    """The number of elements of the matrix in a product."""
    if turned:
        return (stack.outputs + stack.rank) * stack.inputs
    return stack.outputs * (stack.inputs + stack.rank)
