"""Predicts the memory peak of a run on the fast engine with a memory plan, tensor by tensor. Loads no torch.

A pass is walked through layer by layer: on the way up what layers keep piles up, on the way down it goes again, and at
each layer its own work comes on top. What a layer takes is in `fast_layer`, when copies free or fill memory is that of
`models.offload`; tests hold all of it to the bytes of the real tensors. Only the constants at the top were measured.
Many plans are counted at once; one of them part by part, for people, in `fast_parts`. Looking at held-out rows takes
less than a pass, in the same memory: it is not counted.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.copy_slots import Counts, Slots, backward_slots, forward_slots, starts_leaving
from burnish_engine.advise.fast_layer import LayerBytes, LayerShape, evaluated_bytes, layer_bytes, parked_bytes
from burnish_engine.advise.fast_shape import frozen_weights
from burnish_engine.advise.level_mixes import MOVING, Levels
from burnish_engine.advise.planned_run import FastRun
from burnish_engine.advise.shape import BYTES_OF, MIB, adapter_parameters, embedding_parameters
from burnish_engine.advise.trained_bytes import OptimizerBytes, flat_optimizer_bytes
from burnish_engine.advise.transfers import PIECE_BYTES
from burnish_engine.contract.memory_plan import LEVELS, MemoryPlan

POOL_SHARE, POOL_BYTES = 0.01, 64 * MIB
"""One H100, torch 2.11: what torch holds is 0.6 to 1.9 % more than the tensors in use (six configurations that keep all
on the device), and more with small passes: it has pools of the usual stream, of ours and of the graphs, which grow by
20 MiB, and in one of them cuBLAS's 32 MiB (pools of two passes looked at). The process holds 0.74 GiB more than
torch."""
# Where tensors stand in slots on their way to host memory, it holds up to so much of the slots for gate and up, and of
# those for attention's output, beside them: the allocator followed through 80 plans.
_WIDE_SLOTS_SHARE, _ATTENTION_SLOTS_SHARE = 0.1, 0.5
# Or, where layers are computed again from their inputs in tiles, as many inputs; and where some of these stay and
# others move: 250 plans.
_INPUTS_LOOSE, _MIXED_INPUTS_LOOSE = 1.0, 2.0
# Inputs' worth of a hole that smaller tensors have taken before a wide one comes: 400 plans that the planner chose.
_IN_THE_WAY = 1.5
CONTEXT_BYTES = 760 * MIB
"""What the process holds on a GPU beside torch's tensors."""
LIBRARIES_BYTES = 600 * MIB
"""What it holds beside tensors on the CPU."""
_LAYERS_NOT_RETURNED = 4.8  # as many layers' tensors glibc keeps after they were freed: four runs of a 135 M
_SCORE_BLOCK = 512  # queries whose scores the CPU's attention holds at once
_INPUT_BYTES = 26  # of a token in a pass's static buffer: see train.packed_batch

Bytes: TypeAlias = npt.NDArray[np.float64]


class Pieces(NamedTuple):
    """What a memory plan decides beside the layers; see `MemoryPlan`."""

    mlp_rows: int
    head_rows: int
    embedding_on_host: bool = False
    head_on_host: bool = False


class Peaks(NamedTuple):
    """Bytes beside all that is there all the time, of several plans.

    Attributes:
        activations: What all layers keep on the device, and what lives through a whole pass.
        passing: The most of what layers keep and work with at once, whatever the head takes.
        topmost: The same while the last layer is differentiated.
    """

    activations: Bytes
    passing: Bytes
    topmost: Bytes


class FastMemory:
    """The memory of one run, for any number of plans.

    Args:
        run: The run.

    Attributes:
        run: The run.
        rows: Of its largest pass.
        weights: What its frozen weights take.
    """

    def __init__(self, run: FastRun) -> None:
        self.run = run
        self._width = BYTES_OF[run.precision]
        self._shape = LayerShape(run.spec, run.recipe.adapter, self._width, run.cuda)
        self.weights = frozen_weights(run.spec, run.recipe.adapter, run.precision, nf4=run.nf4)
        self.rows = run.largest.static_rows
        self._layers: dict[int, list[LayerBytes]] = {}

    def layer(self, mlp_rows: int) -> list[LayerBytes]:
        """What a layer takes at each of `LEVELS`."""
        if mlp_rows not in self._layers:
            self._layers[mlp_rows] = [layer_bytes(self._shape, level, self.rows, mlp_rows) for level in LEVELS]
        return self._layers[mlp_rows]

    def totals(self, levels: Levels, pieces: Pieces) -> Bytes:
        """What the process holds of the device at its worst moment, of several plans."""
        found = self.peaks(levels, pieces.mlp_rows)
        most = np.maximum(found.activations + self.head_bytes(pieces), found.passing)
        return self._with_overhead(most + self._standing(pieces) + self.loose_bytes(found, levels, pieces))

    def peaks(self, levels: Levels, mlp_rows: int) -> Peaks:
        """Walk through a pass with several plans."""
        layers = self.layer(mlp_rows)
        kept = _of(levels, [one.kept for one in layers])
        if not self.run.cuda:  # the host's memory is the device's
            kept += _of(levels, [sum(one.parked) for one in layers])
        above = np.cumsum(kept, axis=1)
        below = above - kept
        forward = below + _of(levels, [one.forward for one in layers])
        forward += self._slots(forward_slots(levels))[:, None]
        forward += self._inputs
        if self.run.cuda:  # the CPU copies at once
            forward += starts_leaving(levels) * self._slot_bytes[1]
        backward = below + _of(levels, [one.backward for one in layers]) + self._slots(backward_slots(levels))
        backward += self._inputs + self._on_cpu(mlp_rows)
        passing = np.maximum(forward.max(axis=1), backward.max(axis=1))
        return Peaks(above[:, -1] + self._inputs, passing, backward[:, -1])

    def host_bytes(self, levels: Levels, pieces: Pieces) -> Bytes:
        """Memory of the host that several plans take beside the device's, page-locked where that is possible."""
        if not self.run.cuda:
            return np.zeros(len(levels))
        parked = _of(levels, [sum(one.parked) for one in self.layer(pieces.mlp_rows)]).sum(axis=1)
        return parked + self.tables_on_host(pieces)

    def least_totals(self, counts: Bytes, pieces: Pieces) -> Bytes:
        """A bound from below of `totals`, from how many layers there are of each level.

        Args:
            counts: [plans, levels].
            pieces: What else the plans decide.
        """
        layers = self.layer(pieces.mlp_rows)
        kept = np.array([one.kept for one in layers], dtype=np.float64)
        working = np.array([one.backward for one in layers], dtype=np.float64) - kept
        # The topmost layer is differentiated while everything is kept; it keeps the most, as the others go first.
        order = np.argsort(kept, kind="stable")[::-1]
        topmost = order[np.argmax(counts[:, order] > 0, axis=1)]
        top = np.maximum(self.head_bytes(pieces), working[topmost] + self._on_cpu(pieces.mlp_rows))
        return self._with_overhead(counts @ kept + self._inputs + top + self._standing(pieces))

    def least_host_bytes(self, counts: Bytes, pieces: Pieces) -> Bytes:
        """`host_bytes` from how many layers there are of each level; arguments as in `least_totals`."""
        parked = np.array([sum(one.parked) for one in self.layer(pieces.mlp_rows)], dtype=np.float64)
        return counts @ parked + self.tables_on_host(pieces)

    def least_workspace(self, mlp_rows: int) -> float:
        """What a layer works with beside what it keeps, at least: a smaller chunk of the head saves nothing."""
        return min(one.backward - one.kept for one in self.layer(mlp_rows)) + self._on_cpu(mlp_rows)

    @cached_property
    def _inputs(self) -> int:
        """A pass's inputs, the tables of rotations, and of the last norm one number a token."""
        spec = self.run.spec
        tables = [rope.partial for rope in (spec.rope, spec.local_rope) if rope is not None]
        return self.rows * (_INPUT_BYTES + 4 + sum(4 * int(spec.head_dim * partial) for partial in tables))

    @cached_property
    def trained(self) -> int:
        """Weights of the adapter."""
        return adapter_parameters(self.run.spec, self.run.recipe.adapter)

    @cached_property
    def optimizer(self) -> OptimizerBytes:
        """State of the optimizer."""
        recipe = self.run.recipe
        masked = recipe.masking.acts
        return flat_optimizer_bytes(
            self.run.spec, recipe.adapter, recipe.train.optimizer, cuda=self.run.cuda, masked=masked
        )

    @cached_property
    def embedding_bytes(self) -> int:
        """Of the token embeddings."""
        return embedding_parameters(self.run.spec) * self._width

    def head_bytes(self, pieces: Pieces) -> int:
        """The last hidden state, its sum and its gradient; logits of a chunk, their gradient in place, and its rows'.

        The CPU's cross entropy has two more copies in fp32. A head in host memory comes in pieces, and the gradient is
        their sum in fp32.
        """
        spec = self.run.spec
        token = spec.vocab_size * (self._width + (0 if self.run.cuda else 8)) + spec.hidden_size * self._width
        hidden = self.rows * (2 * spec.hidden_size + self._shape.gradient) * self._width
        if not pieces.head_on_host:
            return hidden + pieces.head_rows * token
        return hidden + pieces.head_rows * (token + 4 * spec.hidden_size) + 2 * min(PIECE_BYTES, self.embedding_bytes)

    def tables_on_host(self, pieces: Pieces) -> int:
        """Embeddings and head that are not on the device; where they are one matrix, they are there together."""
        if self.run.spec.tied_embeddings:
            return self.embedding_bytes if pieces.embedding_on_host and pieces.head_on_host else 0
        return self.embedding_bytes * (int(pieces.embedding_on_host) + int(pieces.head_on_host))

    def _standing(self, pieces: Pieces) -> float:
        """What is there all the time."""
        trained = 8 * self.trained + self.optimizer.device  # with its gradient
        return self.weights.stored + self.weights.scratch + trained - self.tables_on_host(pieces)

    def loose_bytes(self, found: Peaks, levels: Levels, pieces: Pieces) -> Bytes:
        """What the allocator does not find room for between slots and what layers keep."""
        if not self.run.cuda:
            return np.zeros(len(levels))
        slots, (wide_bytes, one_input, other_bytes) = forward_slots(levels), self._slot_bytes
        wide, other = slots.gate_up * wide_bytes, slots.attention * other_bytes
        head, hole = found.activations + self.head_bytes(pieces), wide + other
        most = np.maximum(head, found.passing)
        # The forward pass's slots are free when the head is at work, but smaller tensors stand in them by then: of no
        # use for logits that would just fit.
        logits = pieces.head_rows * self.run.spec.vocab_size * self._width
        no_room = hole < logits + _IN_THE_WAY * one_input
        beside = np.where(no_room, np.clip(head + hole - most, 0.0, hole), 0.0)
        # Nor are slots of attention's output, and of an input that has left, for the gradient of gate and up in a last
        # layer that stays.
        left, stays = other + one_input, ~np.isin(levels[:, -1], [LEVELS.index(one) for one in MOVING])
        gradient = min(pieces.mlp_rows or self.rows, self.rows) * wide_bytes / self.rows
        no_room = stays & (wide == 0) & (other > 0) & (left < gradient)
        above = np.where(no_room, np.clip(found.topmost + left - most, 0.0, left), 0.0)
        found_loose = np.maximum(_WIDE_SLOTS_SHARE * wide + _ATTENTION_SLOTS_SHARE * other, np.maximum(beside, above))
        if not 0 < pieces.mlp_rows < self.rows:
            return found_loose
        attention, host, alone = ((levels == LEVELS.index(one)).any(axis=1) for one in ("attention", "host", "input"))
        inputs = np.where(alone & (attention | host), _MIXED_INPUTS_LOOSE, _INPUTS_LOOSE * (alone | attention))
        return np.maximum(found_loose, inputs * one_input)

    @cached_property
    def _slot_bytes(self) -> tuple[int, ...]:
        """A slot for the output of gate and up, for a layer's input and for attention's output; as `Slots` has them."""
        sizes = *parked_bytes(self._shape, "offloaded"), *parked_bytes(self._shape, "host")
        return tuple(self.rows * size for size in sizes)

    def _slots(self, slots: Slots) -> Counts:
        """What moves to host memory stands in these on the device."""
        wide, start, attention = self._slot_bytes
        return slots.gate_up * wide + slots.start * start + slots.attention * attention

    def _with_overhead(self, sizes: Bytes) -> Bytes:
        if not self.run.cuda:
            return sizes + self.cpu_slack + LIBRARIES_BYTES
        return sizes * (1 + POOL_SHARE) + POOL_BYTES + CONTEXT_BYTES

    def _on_cpu(self, mlp_rows: int) -> int:
        """What plain operations make beside a layer's own tensors: attention's scores, or the activation in fp32."""
        if self.run.cuda:
            return 0
        largest, spec = self.run.largest, self.run.spec
        longest = min(largest.longest or largest.tokens, largest.tokens)
        spans = [(longest, longest), (largest.tokens - longest, min(largest.span or longest, longest))]
        # Scores and their exponentials that autograd keeps of all documents of a pass, fp32.
        pairs = sum(tokens * min(span, (span + _SCORE_BLOCK) / 2) for tokens, span in spans)
        return max(int(8 * spec.num_heads * pairs), (mlp_rows or self.rows) * spec.intermediate_size * 16)

    @cached_property
    def cpu_slack(self) -> int:
        """What the CPU's allocator keeps of what was freed."""
        return int(_LAYERS_NOT_RETURNED * evaluated_bytes(self._shape, self.rows, 0))


def of_plan(plan: MemoryPlan) -> tuple[Levels, Pieces]:
    """A plan as it is counted with."""
    levels = np.array([[LEVELS.index(level) for level in plan.layers]], dtype=np.int8)
    return levels, Pieces(plan.mlp_rows, plan.head_rows, plan.embedding_on_host, plan.head_on_host)


@lru_cache(maxsize=4)
def memory_of(run: FastRun) -> FastMemory:
    """The memory of a run."""
    return FastMemory(run)


def host_bytes(run: FastRun, plan: MemoryPlan) -> int:
    """Host memory that a plan takes, page-locked where that is possible."""
    return int(memory_of(run).host_bytes(*of_plan(plan))[0])


def _of(levels: Levels, by_level: list[int]) -> Bytes:
    """A figure for each layer."""
    return np.array(by_level, dtype=np.float64)[levels]
