"""Predicts the time of a mixture layer's experts on the fast engine, from rates and rows an expert. Loads no torch.

The rates are those of products measured on an H100 (`tests/bench/LOG.md`, products of experts); other cards have less
shared memory and take smaller tiles, which reached 1 / 1.35 of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.shape import BYTES_OF, NF4_BYTES
from burnish_engine.advise.predict.fast_experts import TILE_ROWS, UNPACK_ROWS, ExpertStackShape, is_packed
from burnish_engine.advise.predict.fast_layer import LayerShape

_HOPPER = (9, 0)
_GROUPED_SHARE = {True: 0.61, False: 0.455}
"""Share of the tensor peak that products with unpacked experts reach, on a Hopper and on other cards."""
_DECODING_SHARE = {"nf4": (0.27, 0.20), "mxfp4": (0.385, 0.285)}
"""The same of products that decode four bits on the way, beside `_FIRST_READ_SHARE`, on a Hopper and on other cards."""
_FIRST_READ_SHARE = {"nf4": 0.69, "mxfp4": 1.02}
"""Share of the rate of unpacking a whole matrix at which such products read weights for the first time; for further
tiles of an expert they are in the cache. An even router's products took 0.83, 1.20 and 3.54 ms at 128, 256 and 1,024
rows an expert (Qwen3-30B-A3B), and 0.75, 1.82 and 6.16 ms at 128, 512 and 2,048 (gpt-oss-20b): a time for the weights,
and one for each tile."""
_UNPACKING_SHARE = {"nf4": 0.62, "mxfp4": 0.58}
"""Share of the rate of unpacking a whole matrix that groups of experts reach. NF4 was 0.52 by products of Qwen3-30B-A3B
(0.64 ms for the weights of gate and up, 0.32 for down); the kernel of whole matrices, which groups have since, unpacks
2.72 TB/s where the former one unpacked 2.33. MXFP4: 518 TFLOP/s beside 626 (gpt-oss-20b)."""
_CODES_SHARE = {"nf4": 0.71, "mxfp4": 0.42, "": 0.58}
"""Share of the memory's rate, by what is read and written, at which experts become FP8 codes, or codes are transposed.
NF4 by a step of Qwen3-30B-A3B (0.77 ms a layer), MXFP4 by one of gpt-oss-20b; the last not measured."""
_CODED_SHARE = {True: 0.85, False: 0.63}
"""Share of the rate of dense products in FP8 that experts' reach, on a Hopper and on other cards. On an H100 they reach
913 TFLOP/s together (Qwen3-30B-A3B, 16,384 tokens); others: not measured, as in 16 bits."""
ROWS_SHARE = 0.88
"""Share of the memory's rate at which kernels read and write experts' rows, by steps of OLMoE and gpt-oss (H100)."""
_LEAST_RANK_COLUMNS = 16
"""Columns that a product has for an adapter of the least rank."""


@dataclass(frozen=True)
class ExpertRates:
    """The rates that a device reaches with experts."""

    products: float  # rate of products with unpacked weights, operations/s
    decoding: float = 0.0  # rate of products that decode packed weights on the way, operations/s; 0: they never do
    first_read: float = 0.0  # rate at which these read weights for the first time, weights/s
    unpacking: float = 0.0  # rate of unpacking groups of experts, weights/s; 0: they are not packed
    unpack_rows: int = 0  # rows of an expert from which that is faster
    coded: float = 0.0
    """Numbers whose bytes a row's codes take for each of its numbers, where products are in FP8; else 0."""

    @staticmethod
    def of_gpu(run: FastRun, peak: float, eight_bits: float, memory: float) -> ExpertRates:
        """Return the rates of a run's GPU.

        Args:
            run: the run.
            peak: dense tensor peak of the precision, operations/s.
            eight_bits: rate of dense products in the run's 8-bit format, operations/s.
            memory: rate of memory, bytes/s.
        """
        hopper = run.gpu is not None and run.gpu.compute_capability == _HOPPER
        width = BYTES_OF[run.precision]
        if run.eight_bits.products:
            # Made codes for each product; or codes that are there are transposed for every other one.
            storage = "mxfp4" if run.spec.has_mxfp4_experts else "nf4" if run.nf4 else ""
            unpacking = memory / (NF4_BYTES + 1 if storage else 1) * _CODES_SHARE[storage]
            return ExpertRates(eight_bits * _CODED_SHARE[hopper], unpacking=unpacking, coded=1 + 1 / width)
        products, unpacking = peak * _GROUPED_SHARE[hopper], memory / (NF4_BYTES + width)
        if not is_packed(run.spec, nf4=run.nf4):
            return ExpertRates(products)
        storage = "mxfp4" if run.spec.has_mxfp4_experts else "nf4"
        decoding = peak * _DECODING_SHARE[storage][not hopper]
        return ExpertRates(
            products,
            decoding,
            first_read=unpacking * _FIRST_READ_SHARE[storage],
            unpacking=unpacking * _UNPACKING_SHARE[storage],
            unpack_rows=UNPACK_ROWS[storage],
        )

    @staticmethod
    def of_cpu(run: FastRun, operations: float, unpacking: float) -> ExpertRates:
        """Return the rates of a processor, which unpacks all experts for each product.

        Args:
            run: the run.
            operations: rate of matrix products, operations/s.
            unpacking: rate of unpacking, weights/s.
        """
        return ExpertRates(operations, unpacking=unpacking if is_packed(run.spec, nf4=run.nf4) else 0.0)


class ExpertWork(NamedTuple):
    """The work of a layer's experts for a micro-batch."""

    gate_up_s: float  # time of the first map's product, or of its input's gradient, seconds
    down_s: float  # the same of the second map
    moved: float  # numbers moved for a token in the forward pass, outside of the products
    moved_in_all: float  # the same in both passes
    moved_again: float  # the same where the first map is computed again


def expert_work(shape: LayerShape, tokens: int, mlp_chunk_tokens: int, at: ExpertRates) -> ExpertWork:
    """Count what the experts of a layer do.

    A token's rows are read through their expert's order inside the products. Beside these, the activation reads gate
    and up and writes half as much, its gradient three times that, and each token's outputs and input gradients are
    summed. Of an adapter, the narrow products read each row once forward, and both sides' rows backward. In FP8 the
    rows of each product become codes before: those of tokens for the first map and for the second one's gradient.

    The maps of an expert that sees every token count as a dense feed-forward. Around them the stream is read for its
    scale, and its output is summed; backward, the output's gradient is scaled, and two gradients of the stream added.

    Args:
        shape: shape of the layer.
        tokens: number of tokens of the micro-batch.
        mlp_chunk_tokens: number of tokens that pass the experts at once; 0: all.
        at: rates of the device.
    """
    step = min(mlp_chunk_tokens or tokens, tokens)
    gate_up, down = shape.experts["gate_up"], shape.experts["down"]
    slots, hidden, size = shape.spec.experts_per_token, gate_up.inputs, down.inputs
    first, second = bool(gate_up.rank), bool(down.rank)
    forward = slots * (3 * size + hidden + first * hidden + second * size) + at.coded * (hidden + slots * size)
    backward: float = slots * (6 * size + hidden + first * (hidden + 4 * size) + second * (2 * hidden + size))
    backward += at.coded * (hidden + slots * 2 * size)
    if "down" in shape.stacks:
        forward, backward = forward + 2 * hidden, backward + 5 * hidden
    chunks = [min(step, tokens - begin) * slots for begin in range(0, tokens, step)]
    return ExpertWork(
        gate_up_s=sum(_product_s(gate_up, rows, at) for rows in chunks),
        down_s=sum(_product_s(down, rows, at) for rows in chunks),
        moved=forward,
        moved_in_all=forward + backward,
        moved_again=slots * first * hidden + at.coded * hidden,
    )


def _product_s(stack: ExpertStackShape, rows: int, at: ExpertRates) -> float:
    """The time of one map's product with so many sorted rows, seconds.

    The last tile of each expert is half full. Where an expert has so few rows that its weights are decoded, a router
    that is not even makes more tiles but leaves experts out, whose weights are not read: there it counts as even.
    """
    columns = stack.inputs + (max(stack.rank, _LEAST_RANK_COLUMNS) if stack.rank else 0)
    operations, reached = 2.0 * stack.outputs * columns, min(stack.experts, rows)
    if at.decoding and rows / stack.experts < at.unpack_rows:
        first_read = stack.weights * reached / stack.experts / at.first_read
        return max(rows, reached * TILE_ROWS) * operations / at.decoding + first_read
    unpacking = stack.weights / at.unpacking if at.unpacking else 0.0
    return (rows + reached * TILE_ROWS // 2) * operations / at.products + unpacking
