"""Predicts the memory peak of a run on the fast engine with a memory plan, tensor by tensor. Loads no torch.

The prediction walks through a micro-batch layer by layer: in the forward pass saved activations pile up, in the
backward pass they are freed, and each layer's own work comes on top. `fast_layer` counts one layer, and
`models.host_memory.offloader` defines when copies free or fill memory; tests compare all of it with the bytes of the
real tensors. Only the constants at the top were measured.

Many plans are counted at once, as arrays; `fast_parts` lists one plan part by part for people. Evaluation takes less
than a training step, in the same memory, so it is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.shape import BYTES_OF, MIB, adapter_parameters, embedding_parameters
from burnish_engine.advise.facts.trained_bytes import OptimizerBytes, exchange_bytes, flat_optimizer_bytes
from burnish_engine.advise.predict.cpu_memory import LIBRARIES_BYTES, kept_by_allocator, workspace_bytes
from burnish_engine.advise.predict.fast_layer import (
    LayerBytes,
    layer_bytes,
    layer_shapes,
    offloaded_bytes,
)
from burnish_engine.advise.predict.fast_shape import frozen_weights, hosted_layer
from burnish_engine.advise.predict.fragmentation import PlanPeaks, fragmentation
from burnish_engine.advise.predict.level_mixes import SaveLevels
from burnish_engine.advise.predict.plan_options import Bytes, PlanOptions, split_plan
from burnish_engine.advise.predict.pool_sizes import (
    Counts,
    PoolSizes,
    backward_pool_sizes,
    forward_pool_sizes,
)
from burnish_engine.advise.predict.transfers import PART_ALIGNMENT, PIECE_BYTES, SLOTS
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan

POOL_SHARE, POOL_BYTES = 0.01, 64 * MIB
"""Memory that torch holds beyond the tensors in use: a share of them, and bytes. On an H100 with torch 2.11 it is 0.6
to 1.9 %, and more with small micro-batches: the usual stream, Burnish's stream and the graphs have a pool each, which
grows by 20 MiB, and one of them has cuBLAS's 32 MiB."""
CONTEXT_BYTES = 760 * MIB
"""Memory that the process holds on a GPU beside torch's allocator: the CUDA context and libraries."""
_INPUT_BYTES = 6 * 4 + 2  # bytes of a token in the static input buffers: six int32 fields, and attention's tiles


class LayerTables(NamedTuple):
    """The memory of layers, bytes, each [kinds of layers, levels]; see `LayerBytes`."""

    kept: Bytes  # bytes that stay on the device between forward and backward pass
    offloaded: Bytes  # bytes that are in host memory meanwhile
    forward: Bytes  # peak of the forward pass
    backward: Bytes  # peak of the backward pass


_SIZES: tuple[Callable[[LayerBytes], int], ...] = (
    lambda one: one.kept, lambda one: sum(one.offloaded), lambda one: one.forward, lambda one: one.backward,
)  # fmt: skip
"""The figures of `LayerTables`, in its order."""


class FastMemory:
    """Counts the memory of one run for any number of plans.

    Args:
        run: the run.

    Attributes:
        run: the run.
        tokens: number of tokens of the largest micro-batch, padding included.
        weights: bytes of the frozen weights.
        blocks: bytes of each layer's frozen weights in host memory, if they are there.
    """

    def __init__(self, run: FastRun) -> None:
        self.run = run
        self._width = BYTES_OF[run.precision]
        self._shapes, kinds = layer_shapes(run)
        self._rank = max(shape.rank for shape in self._shapes)
        self._kinds = np.array(kinds)
        self.tokens = run.largest.padded_tokens
        most = max(self.tokens, run.recipe.train.micro_batch_tokens)
        section, precision = run.recipe.adapter, run.precision
        self.weights = frozen_weights(run.spec, section, precision, nf4=run.nf4, eight_bits=run.eight_bits, tokens=most)
        hosted = [
            hosted_layer(run.spec, section, one.layer, precision, nf4=run.nf4, eight_bits=run.eight_bits)
            for one in self._shapes
        ]
        self.blocks = np.array([hosted[kind].block for kind in self._kinds], dtype=np.float64)
        self._freed = np.array([hosted[kind].freed for kind in self._kinds], dtype=np.float64)
        self._freed_experts = np.array([hosted[kind].experts for kind in self._kinds], dtype=np.float64)
        self._layers: dict[int, LayerTables] = {}
        self._known: dict[tuple[object, ...], tuple[float, float]] = {}

    def layers(self, mlp_chunk_tokens: int) -> LayerTables:
        """Count the memory of each kind of layer at each of `LEVEL_NAMES`."""
        if mlp_chunk_tokens not in self._layers:
            found = [
                [layer_bytes(shape, level, self.tokens, mlp_chunk_tokens, self._rank) for level in LEVEL_NAMES]
                for shape in self._shapes
            ]
            self._layers[mlp_chunk_tokens] = LayerTables(
                *(
                    np.array([[size(one) for one in by_level] for by_level in found], dtype=np.float64)
                    for size in _SIZES
                )
            )
        return self._layers[mlp_chunk_tokens]

    def totals(self, levels: SaveLevels, options: PlanOptions) -> Bytes:
        """The peak of the device's memory that the process holds, bytes, [plans]."""
        return self.totals_of([(levels, options)])

    def totals_of(self, plans: Sequence[tuple[SaveLevels, PlanOptions]]) -> Bytes:
        """The values of `totals` for several sets of options at once, bytes, [plans].

        Args:
            plans: (save levels of several plans, [plans, layers], and their options) for each set of options; results
                are concatenated in this order.
        """
        chunks = np.concatenate([np.full(len(levels), options.mlp_chunk_tokens) for levels, options in plans])
        by_options = [
            (self.head_bytes(options), self._logits_bytes(options), self._permanent_bytes(options))
            for _, options in plans
        ]
        head, logits, permanent = np.repeat(np.array(by_options).T, [len(levels) for levels, _ in plans], axis=1)
        every, sizes = np.vstack([levels for levels, _ in plans]), np.empty(len(chunks))
        for chunk in dict.fromkeys(options.mlp_chunk_tokens for _, options in plans):
            own = chunks == chunk
            levels, found = every[own], self.peaks(every[own], chunk)
            most = np.maximum(found.activations + head[own], found.pass_peak)
            loose = self._fragmentation(found, levels, chunk, head[own], logits[own])
            sizes[own] = most + permanent[own] + loose
        return self._with_overhead(sizes)

    def peaks(self, levels: SaveLevels, mlp_chunk_tokens: int) -> PlanPeaks:
        """Walk through a micro-batch with several plans and note their peaks."""
        layers = self.layers(mlp_chunk_tokens)
        kept = self._per_layer(levels, layers.kept)
        if not self.run.cuda:  # the host's memory is the device's
            kept += self._per_layer(levels, layers.offloaded)
        above = np.cumsum(kept, axis=1)
        below = above - kept
        forward = below + self._per_layer(levels, layers.forward)
        pool, in_flight = forward_pool_sizes(levels, self._outputs)
        forward += self._pool_bytes(pool)[:, None]
        forward += self._inputs
        if self.run.cuda:  # the CPU copies at once
            forward += in_flight * self._buffer_bytes[1]
        backward = (
            below
            + self._per_layer(levels, layers.backward)
            + self._pool_bytes(backward_pool_sizes(levels, self._outputs))
        )
        backward += self._inputs + self._on_cpu(mlp_chunk_tokens)
        pass_peak = np.maximum(forward.max(axis=1), backward.max(axis=1))
        return PlanPeaks(above[:, -1] + self._inputs, pass_peak, backward[:, -1], pool)

    def host_bytes(self, levels: SaveLevels, options: PlanOptions) -> Bytes:
        """The host memory that several plans take beside the device's, page-locked where possible, bytes, [plans]."""
        if not self.run.cuda:
            return np.zeros(len(levels))
        offloaded = self._per_layer(levels, self.layers(options.mlp_chunk_tokens).offloaded).sum(axis=1)
        return offloaded + self.weights_on_host(options)

    def least_totals(self, counts: Bytes, choices: Sequence[PlanOptions]) -> Bytes:
        """A lower bound of `totals`, from the number of layers of each save level, bytes, [choices, plans].

        Args:
            counts: number of layers of each level, [plans, levels].
            choices: options to count with, all with one chunk of the feed-forward.
        """
        chunk = choices[0].mlp_chunk_tokens
        layers = self.layers(chunk)
        # The top layer is differentiated while everything is kept; it keeps the most.
        last = self._kinds[-1]
        order = np.argsort(layers.kept[last], kind="stable")[::-1]
        top_layer = order[np.argmax(counts[:, order] > 0, axis=1)]
        working = (layers.backward - layers.kept)[last][top_layer] + self._on_cpu(chunk)
        least = counts @ layers.kept.min(axis=0) + self._inputs  # whichever layers have a level
        head = np.array([[self.head_bytes(options)] for options in choices])
        permanent = np.array([[self._permanent_bytes(options)] for options in choices])
        return self._with_overhead(least + np.maximum(head, working) + permanent)

    def least_host_bytes(self, counts: Bytes, choices: Sequence[PlanOptions]) -> Bytes:
        """The values of `host_bytes` from the number of layers of each save level; arguments as in `least_totals`."""
        offloaded = counts @ self.layers(choices[0].mlp_chunk_tokens).offloaded.min(axis=0)
        return offloaded + np.array([[self.weights_on_host(options)] for options in choices])

    def least_workspace(self, mlp_chunk_tokens: int) -> float:
        """The least workspace of a layer, bytes; a chunk of the head that takes less saves nothing."""
        layers = self.layers(mlp_chunk_tokens)
        return float((layers.backward - layers.kept).min()) + self._on_cpu(mlp_chunk_tokens)

    @cached_property
    def exchange(self) -> int:
        """Bytes beside the gradient that several GPUs need to add it up."""
        return exchange_bytes(self.run.recipe, self.trained)

    @cached_property
    def _inputs(self) -> int:
        """Bytes of a micro-batch's inputs, the rotation tables, and one number a token of the last norm.

        Also of what layers leave for others: gradients of keys and values that are lent, embeddings that inputs of the
        layers' own are made of, and the rows gathered for two layers.
        """
        spec, lent = self.run.spec, 0
        tables = [(spec.rope, spec.largest_head)] + [(spec.local_rope, spec.head_dim)] * (spec.local_rope is not None)
        turned = sum(4 * int(head * rope.partial) for rope, head in tables if rope is not None)
        for layer in spec.layers:
            own = spec.of_layer(layer)
            lent += 2 * own.num_kv_heads * own.head_dim if layer.keys == "lent" else 0
        own_inputs = spec.hidden_size + 2 * spec.per_layer_size if spec.per_layer_size else 0
        return self.tokens * (_INPUT_BYTES + 4 + turned + 4 * lent + own_inputs * self._width)

    @cached_property
    def trained(self) -> int:
        """The number of weights in the adapter."""
        return adapter_parameters(self.run.spec, self.run.recipe.adapter)

    @cached_property
    def optimizer(self) -> OptimizerBytes:
        """The size of the optimizer's state."""
        recipe = self.run.recipe
        masked = recipe.masking.is_active
        return flat_optimizer_bytes(
            self.run.spec, recipe.adapter, recipe.train.optimizer, cuda=self.run.cuda, masked=masked
        )

    @cached_property
    def embedding_bytes(self) -> int:
        """The size of the token embeddings, bytes."""
        return embedding_parameters(self.run.spec) * self._width

    def head_bytes(self, options: PlanOptions) -> int:
        """The peak of head and loss, bytes.

        It has the last hidden state, its sum and its gradient; a chunk's logits, which their gradient overwrites, and
        the gradient of the chunk's hidden states.

        The CPU's cross entropy has two more copies in fp32. A head in host memory comes in pieces, and the gradient is
        their sum in fp32. Where logits are products of INT8, a chunk's hidden states and a piece exist as
        codes too; without a GPU the product makes an fp32 copy of all codes.
        """
        spec = self.run.spec
        coded = spec.hidden_size + 4 if self.run.eight_bits.logits_in_int8 else 0
        token = spec.vocab_size * (self._width + (0 if self.run.cuda else 8)) + spec.hidden_size * self._width
        hidden = self.tokens * (3 * spec.hidden_size + self._rank) * self._width
        token += coded
        if not options.head_on_host:
            copied = 0 if self.run.cuda or not coded else 4 * spec.vocab_size * spec.hidden_size
            return hidden + options.head_chunk_tokens * token + copied
        piece = min(PIECE_BYTES, self.embedding_bytes)
        codes = coded * piece // (spec.hidden_size * self._width)
        return hidden + options.head_chunk_tokens * (token + 4 * spec.hidden_size) + 2 * piece + codes

    def head_codes(self, options: PlanOptions) -> int:
        """Bytes of the head's codes of INT8 beside its weights; none where these are in host memory."""
        spec = self.run.spec
        if not self.run.eight_bits.logits_in_int8 or (options.head_on_host and self.run.cuda):
            return 0
        return spec.vocab_size * (spec.hidden_size + 4)

    def tables_on_host(self, options: PlanOptions) -> int:
        """Bytes of embeddings and head in host memory; tied ones can only be there together. None without a GPU.

        The table of inputs of the layers' own is always there.
        """
        spec = self.run.spec
        if not self.run.cuda:
            return 0
        own = spec.per_layer_vocab * spec.num_layers * spec.per_layer_size * self._width
        if spec.tied_embeddings:
            return own + (self.embedding_bytes if options.embedding_on_host and options.head_on_host else 0)
        return own + self.embedding_bytes * (int(options.embedding_on_host) + int(options.head_on_host))

    def weights_on_host(self, options: PlanOptions) -> float:
        """Bytes of embeddings, head and layers in host memory."""
        return self._by_place(options)[0]

    def slot_bytes(self, options: PlanOptions) -> int:
        """Bytes of the slots on the device that the weights of streamed layers pass through."""
        layers = options.streamed
        return int(min(SLOTS, len(layers)) * self.blocks[layers].max()) if layers else 0

    def share_bytes(self, options: PlanOptions) -> int:
        """Bytes of the part that this process holds of the layers' weights that several share."""
        parts = np.ceil(self.blocks[list(options.layers_on_ranks)] / (self.run.ranks * PART_ALIGNMENT))
        return int(parts.sum()) * PART_ALIGNMENT

    def freed_bytes(self, options: PlanOptions) -> int:
        """Bytes of layers' weights that are streamed instead of being on the device all the time."""
        layers = options.streamed
        freed = self._freed[layers].sum() + self._freed_experts[layers].sum()
        return int(freed if self.run.cuda else freed - self.blocks[list(options.layers_on_host)].sum())

    def freed_experts(self, options: PlanOptions) -> int:
        """Bytes of experts that are streamed instead of being on the device all the time."""
        return int(self._freed_experts[options.streamed].sum()) if self.run.cuda else 0

    def _permanent_bytes(self, options: PlanOptions) -> float:
        """Bytes that exist all the time: weights, adapters, gradients, optimizer state."""
        return self._by_place(options)[1]

    def _by_place(self, options: PlanOptions) -> tuple[float, float]:
        """Bytes in host memory and on the device that follow from the weights' places, and are asked for by the 100."""
        away = options[2:]  # embeddings, head, layers
        if away not in self._known:
            trained = 8 * self.trained + self.optimizer.device + self.exchange  # with its gradient
            tables = self.tables_on_host(options)
            here = self.weights.stored - tables - self.freed_bytes(options) + self.share_bytes(options)
            permanent = here + self.slot_bytes(options) + self.weights.scratch + trained + self.head_codes(options)
            self._known[away] = tables + float(self.blocks[list(options.layers_on_host)].sum()), permanent
        return self._known[away]

    def fragmentation_bytes(self, found: PlanPeaks, levels: SaveLevels, options: PlanOptions) -> Bytes:
        """Bytes that fragmentation between pool buffers and saved activations adds, [plans]."""
        own = self.head_bytes(options), self._logits_bytes(options)
        return self._fragmentation(found, levels, options.mlp_chunk_tokens, *own)

    def _logits_bytes(self, options: PlanOptions) -> int:
        return options.head_chunk_tokens * self.run.spec.vocab_size * self._width

    def _fragmentation(
        self, found: PlanPeaks, levels: SaveLevels, mlp_chunk_tokens: int, head_bytes: Bytes | int, logits: Bytes | int
    ) -> Bytes:
        if not self.run.cuda:
            return np.zeros(len(levels))
        share = mlp_chunk_tokens / self.tokens if mlp_chunk_tokens < self.tokens else 0.0
        return fragmentation(found, levels, self._buffer_bytes, chunk_share=share, head_bytes=head_bytes, logits=logits)

    @cached_property
    def _buffer_bytes(self) -> tuple[int, ...]:
        """Bytes of one pool buffer for gate and up, for a layer's input, and for attention's output."""
        by_kind = [(*offloaded_bytes(one, "offloaded"), *offloaded_bytes(one, "host")[:2]) for one in self._shapes]
        return tuple(self.tokens * max(sizes) for sizes in zip(*by_kind, strict=True))

    @cached_property
    def _outputs(self) -> int:
        """The number of outputs of a layer's feed-forward that norms follow; each is as large as the layer's input."""
        return max(len(offloaded_bytes(one, "input")) for one in self._shapes) - 1

    def _pool_bytes(self, pool: PoolSizes) -> Counts:
        """The bytes of the pool's device buffers."""
        wide, layer_input, attention = self._buffer_bytes
        inputs = pool.layer_input + pool.shared_output + pool.output
        return pool.gate_up * wide + inputs * layer_input + pool.attention * attention

    def _with_overhead(self, sizes: Bytes) -> Bytes:
        if not self.run.cuda:
            return sizes + self.cpu_slack + LIBRARIES_BYTES
        return sizes * (1 + POOL_SHARE) + POOL_BYTES + CONTEXT_BYTES

    def _on_cpu(self, mlp_chunk_tokens: int) -> int:
        """Bytes of the CPU's unfused operations beside a layer's tensors; none on a GPU."""
        return 0 if self.run.cuda else workspace_bytes(self.run, self._shapes, mlp_chunk_tokens or self.tokens)

    @cached_property
    def cpu_slack(self) -> int:
        """Bytes that the CPU's allocator keeps after they were freed."""
        return kept_by_allocator(self.run, self._shapes, self.tokens)

    def _per_layer(self, levels: SaveLevels, table: Bytes) -> Bytes:
        """Look a figure up for each layer by its kind and save level, [plans, layers]."""
        return np.asarray(table[self._kinds, levels])


@lru_cache(maxsize=4)
def memory_of(run: FastRun) -> FastMemory:
    """The memory counter of a run; kept, because plans of one run are compared by the hundred."""
    return FastMemory(run)


def host_bytes(run: FastRun, plan: MemoryPlan) -> int:
    """The host memory that a plan takes, page-locked where possible, bytes."""
    return int(memory_of(run).host_bytes(*split_plan(plan))[0])
