"""Predicts training speed on the fast engine from a device's rates and a memory plan. Loads no torch.

A captured pass waits for no host: its time is that of its matrix products, its attention and the bytes that everything
else moves, one after the other; what layers compute again comes on top, and where they move what they keep to host
memory, the time that they wait for the link. The shares of the peaks are those of one H100 (`tests/bench/LOG.md`):
products and memory by the profiles of a 0.6 B and a 4 B, attention by the times of its tuned kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from burnish_engine.advise.fast_layer import LayerShape, parked_bytes
from burnish_engine.advise.fast_memory import Bytes, Pieces, of_plan
from burnish_engine.advise.fast_shape import NF4_BYTES, Stack, is_fused, stacks
from burnish_engine.advise.level_mixes import Levels
from burnish_engine.advise.planned_run import FastRun
from burnish_engine.advise.shape import BYTES_OF, embedding_parameters
from burnish_engine.advise.transfers import AHEAD, PIECE_BYTES, Seconds, backward_seconds, forward_seconds
from burnish_engine.advise.workload import Pass
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.machine import GpuFacts, PcieFacts
from burnish_engine.contract.memory_plan import LEVELS, Level, MemoryPlan
from burnish_engine.hardware.gpu_table import facts_for

_GEMM_SHARE = 0.71  # of the dense tensor peak
_ATTENTION_SHARE = 0.37  # of that peak
_ATTENTION_EDGE = 320  # hidden tokens that a token's tiles compute with too: documents of 660 and of 15,000 to 58,000
_MEMORY_SHARE = 0.93  # of the memory's peak, a second read of what was just written not counted
_LAYER_S = 40e-6  # beginnings and ends of a layer's kernels, forward and backward
_AGAIN_S = {"narrow": 4e-6, "attention": 14e-6, "host": 14e-6, "input": 16e-6}  # the same of what runs once more
_TILE_S = 20e-6  # the same of the feed-forward, which is all of a tile
_TILE_FILL = 96  # rows as long as each further tile's products take to fill the multiprocessors, and to drain
_FP32_RATE = 0.125  # of the tensor peak, where fp32 has no tensor cores
# Numbers that a layer moves for one token outside the products, forward and in all: for each of hidden size, query
# and key width, and feed-forward width. Norms touch four forward and five backward; the adapters' skinny products read
# each input and output once forward and twice backward.
_HIDDEN, _HEADS, _NORMED_HEADS, _WIDE, _WIDE_FUSED = (10, 26), (6, 16), (7, 19), (4, 15), (3, 11)
_SANDWICH = (4, 14)  # hidden sizes of two more norms
# The same of what is computed again: norms, the adapters' skinny products, and rotation.
_NARROW_HIDDEN, _ATTENTION_HIDDEN, _ATTENTION_HEADS = 2, 6, 3
_ROTATED_HEADS, _ALL_HIDDEN = 2, 2  # not moved where more is kept
_LOGIT_PASSES = 3  # the loss reads the logits twice and writes them once
_CPU_GFLOPS_PER_CORE = {"fp32": 60.0, "bf16": 85.0, "fp16": 60.0}
_CPU_UNPACKED_PER_S_AND_CORE = 500e6  # NF4 weights
_CPU_GB_S = 20.0  # of memory, whatever the processor: little of the time
_LINK_SHARE = 0.85  # of what a PCIe lane carries: an H100's 16 lanes of generation 5, 63 GB/s, move 54
_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # by generation, one way
_LINK_UNKNOWN_GB_S = 11.0  # generation 3 with 16 lanes, or 4 with 8: laptops

_EVERYTHING = ["gate_up", "o", "qkv"]
_AGAIN = {"narrow": ["gate_up"], "attention": _EVERYTHING, "host": _EVERYTHING, "input": _EVERYTHING}
"""Stacks that are multiplied with once more, by level."""


class Rates(NamedTuple):
    """What a device reaches.

    Attributes:
        products: Operations of matrix products, 1/s.
        attention: Those of attention.
        memory: Bytes, 1/s.
        unpacking: NF4 weights that are unpacked, 1/s.
        link: Bytes to or from host memory, 1/s.
    """

    products: float
    attention: float
    memory: float
    unpacking: float
    link: float


class FastSpeed:
    """The time of a pass of one run, for any number of memory plans.

    Args:
        run: The run.
        one: The pass.
    """

    def __init__(self, run: FastRun, one: Pass) -> None:
        self._run, self._one = run, one
        self._width, self._rates = BYTES_OF[run.precision], rates(run)
        self._stacks = stacks(run.spec, run.recipe.adapter)
        self._layers: dict[int, tuple[Seconds, Seconds]] = {}

    def seconds(self, plans: Sequence[tuple[Levels, Pieces]]) -> Seconds:
        """Time of a forward and backward pass, of several plans: all with the first pieces, then with the next."""
        parked = np.array([[*sizes, 0, 0][:2] for sizes in self._parked], dtype=np.float64)
        levels = np.vstack([one for one, _ in plans])
        both = [[self.layer(pieces.mlp_rows)[way][one] for one, pieces in plans] for way in (0, 1)]
        times = 2.5 + (levels == LEVELS.index("input"))
        forward, backward = np.vstack(both[0]) + self._attention, np.vstack(both[1]) + times * self._attention
        outside = np.concatenate([np.full(len(one), self.outside(pieces)) for one, pieces in plans])
        copies = parked[levels] / self._rates.link
        if not copies.any():
            return forward.sum(axis=1) + backward.sum(axis=1) + outside
        return forward_seconds(forward, copies) + backward_seconds(backward, copies, AHEAD[levels]) + outside

    def nearly(self, counts: Bytes, pieces: Pieces) -> Seconds:
        """About the same, from how many layers there are of each level.

        Args:
            counts: [plans, levels].
            pieces: What else the plans decide.
        """
        found = np.full(len(counts), self.outside(pieces))
        copies = counts @ np.array([sum(sizes) for sizes in self._parked], dtype=np.float64) / self._rates.link
        count = self._run.spec.num_layers
        again = counts[:, LEVELS.index("input")] / count
        for one, factor in zip(self.layer(pieces.mlp_rows), (1.0, 2.5 + again), strict=True):
            compute = counts @ one + factor * self._attention.sum()
            found += np.maximum(compute, copies + compute / count)  # what leaves last, or comes first, is waited for
        return found

    def layer(self, mlp_rows: int) -> tuple[Seconds, Seconds]:
        """Time of a layer's forward and backward pass without attention, at each of `LEVELS`."""
        if mlp_rows not in self._layers:
            both = [self._layer(level, mlp_rows) for level in LEVELS]
            self._layers[mlp_rows] = np.array([one for one, _ in both]), np.array([one for _, one in both])
        return self._layers[mlp_rows]

    def outside(self, pieces: Pieces) -> float:
        """Time of everything outside the layers: embedding, head and loss."""
        spec, one, at, width = self._run.spec, self._one, self._rates, self._width
        weights, chunks = embedding_parameters(spec), -(-one.supervised // pieces.head_rows)
        moves = at.link if pieces.head_on_host else at.memory  # while the one before is multiplied
        filled = pieces.head_rows + _TILE_FILL * (chunks - 1) / max(chunks, 1)
        product = max(2.0 * filled * weights / at.products, weights * width / moves)
        total = 2 * chunks * product + one.supervised * spec.vocab_size * _LOGIT_PASSES * width / at.memory
        if pieces.head_on_host:  # the gradient is added up piece by piece
            sums = chunks * pieces.head_rows * spec.hidden_size * weights * width / PIECE_BYTES
            total += sums * (8 + width) / at.memory
        if pieces.embedding_on_host:
            total += one.static_rows * spec.hidden_size * width / at.link
        return total

    @cached_property
    def _parked(self) -> list[tuple[int, ...]]:
        shape = LayerShape(self._run.spec, self._run.recipe.adapter, self._width, self._run.cuda)
        rows = self._one.static_rows
        return [tuple(rows * size for size in parked_bytes(shape, level)) for level in LEVELS]

    @cached_property
    def _attention(self) -> Seconds:
        """Of each layer, forward."""
        edge = _ATTENTION_EDGE if self._run.cuda else 0
        return np.array(attention_operations(self._run.spec, self._one, edge)) / self._rates.attention

    def _layer(self, level: Level, mlp_rows: int) -> tuple[float, float]:
        one, at, width, made = self._one, self._rates, self._width, self._stacks
        again = _AGAIN.get(level, [])
        if level == "input" and mlp_rows:
            again = [*again, "qkv"]
        forward = sum(self._product(name, mlp_rows) for name in made)
        backward = sum(self._product(name, mlp_rows, turned=True) for name in made)
        # In the feed-forward's backward pass a matrix is unpacked once for all that is done with it.
        backward += sum(self._product(name, mlp_rows, unpacks=name != "gate_up") for name in again)
        moved = one.static_rows * width / at.memory
        first, both = self._moved
        more = self._moved_again(level)
        tiles = -(-one.static_rows // mlp_rows) - 1 if mlp_rows else 0
        starts = _LAYER_S + tiles * _TILE_S if self._run.cuda else 0.0
        forward += first * moved + 0.4 * starts
        return forward, backward + (both - first + more) * moved + 0.6 * starts + _AGAIN_S.get(level, 0.0)

    def _product(self, name: str, mlp_rows: int, *, turned: bool = False, unpacks: bool = True) -> float:
        """Time of a stack's product with all rows of the pass, or of that with its gradient."""
        stack, rows, at = self._stacks[name], self._one.static_rows, self._rates
        step = min(mlp_rows or rows, rows) if name in {"gate_up", "down"} else rows
        tiles = -(-rows // step)
        operations = 2.0 * (rows + (tiles - 1) * _TILE_FILL) * _weights(stack, turned=turned)
        taken = max(operations / at.products, tiles * stack.outputs * stack.inputs * self._width / at.memory)
        return taken + (stack.outputs * stack.inputs / at.unpacking if self._run.nf4 and unpacks else 0.0)

    @cached_property
    def _moved(self) -> tuple[int, int]:
        """Numbers that a layer moves for a token outside the products, forward and in all."""
        spec, adapter = self._run.spec, self._run.recipe.adapter
        heads = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
        wide = _WIDE_FUSED if is_fused(self._stacks, adapter, cuda=self._run.cuda) else _WIDE
        by_head = _NORMED_HEADS if spec.qk_norm else _HEADS
        first, both = (
            (_HIDDEN[way] + (_SANDWICH[way] if spec.sandwich_norms else 0)) * spec.hidden_size
            + by_head[way] * heads
            + wide[way] * spec.intermediate_size
            for way in (0, 1)
        )
        return first, both

    def _moved_again(self, level: Level) -> int:
        """What comes on top at a level, or is spared."""
        spec = self._run.spec
        heads = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
        if level == "narrow":
            return _NARROW_HIDDEN * spec.hidden_size
        if level in {"attention", "host", "input"}:
            return _ATTENTION_HIDDEN * spec.hidden_size + _ATTENTION_HEADS * heads
        spared = _ROTATED_HEADS * heads if spec.qk_norm and level in {"all", "rotated"} else 0
        return -spared - (_ALL_HIDDEN * spec.hidden_size if level == "all" else 0)


def fast_seconds(run: FastRun, one: Pass, plan: MemoryPlan) -> float:
    """Predicted time of a forward and backward pass, seconds.

    Args:
        run: The run.
        one: The pass, such as an average one.
        plan: How memory is used.
    """
    return float(FastSpeed(run, one).seconds([of_plan(plan)])[0])


def attention_operations(spec: DecoderSpec, one: Pass, edge: float) -> list[float]:
    """Each layer's attention within documents, forward: a token sees half of its own, 4 operations a pair and number.

    Backward takes 2.5 times as many.

    Args:
        spec: The model's shape.
        one: The pass.
        edge: By how many tokens longer a document is to be taken.
    """
    span = one.span or one.tokens
    local = min(span, float(spec.sliding_window or span))
    spans = [local if layer.kind == "sliding_attention" else span for layer in spec.layers]
    return [4.0 * one.tokens * (seen + edge) / 2 * spec.num_heads * spec.head_dim for seen in spans]


def rates(run: FastRun) -> Rates:
    """What the run's device reaches. A GPU that nothing is known of is taken for a slow one."""
    width = BYTES_OF[run.precision]
    if not run.cuda:
        cores = max(run.cpu_cores, 1)
        operations = _CPU_GFLOPS_PER_CORE[run.precision] * 1e9 * cores
        return Rates(operations, operations, _CPU_GB_S * 1e9, _CPU_UNPACKED_PER_S_AND_CORE * cores, 1.0)
    gpu = run.gpu or GpuFacts(index=0, name="")
    found = facts_for(gpu)
    peak = found.bf16_tflops * 1e12 * (_FP32_RATE if run.precision == "fp32" else 1.0)
    memory = found.bandwidth_gb_s * 1e9 * _MEMORY_SHARE
    link = 1e9 * link_gb_s(gpu.pcie)
    return Rates(peak * _GEMM_SHARE, peak * _ATTENTION_SHARE, memory, memory / (NF4_BYTES + width), link)


def link_gb_s(pcie: PcieFacts | None) -> float:
    """Rate of copies between page-locked host memory and the GPU in the slower direction, 10^9 bytes/s.

    As measured (`burnish doctor --bandwidth`), else by what card and slot can do together.
    """
    if pcie is None:
        return _LINK_UNKNOWN_GB_S
    if pcie.to_gpu_gb_s and pcie.from_gpu_gb_s:
        return min(pcie.to_gpu_gb_s, pcie.from_gpu_gb_s)
    generation, width = pcie.best_generation or pcie.generation, pcie.best_width or pcie.width
    if generation is None or width is None:
        return _LINK_UNKNOWN_GB_S
    return _LINK_SHARE * width * _LANE_GB_S[min(max(generation, 1), max(_LANE_GB_S))]


def _weights(stack: Stack, *, turned: bool) -> int:
    """Elements of the matrix that is multiplied with."""
    if turned:
        return (stack.outputs + stack.rank) * stack.inputs
    return stack.outputs * (stack.inputs + stack.rank)
