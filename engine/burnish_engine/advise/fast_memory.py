"""Predicts the memory peak of a run on the fast engine with a memory plan, tensor by tensor. Loads no torch.

A pass is walked through layer by layer: on the way up what layers keep piles up, on the way down it goes again, and at
each layer its own work comes on top. What a layer takes is in `fast_layer`, when copies free or fill memory is that of
`models.offload`; tests hold all of it to the bytes of the real tensors. Only the constants at the top were measured.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.copy_slots import Slots, backward_slots, forward_slots, starts_leaving
from burnish_engine.advise.fast_layer import LayerBytes, LayerShape, evaluated_bytes, layer_bytes, parked_bytes
from burnish_engine.advise.fast_shape import frozen_weights
from burnish_engine.advise.planned_run import FastRun
from burnish_engine.advise.shape import BYTES_OF, MIB, adapter_parameters, embedding_parameters
from burnish_engine.contract.advice import MemoryPart
from burnish_engine.contract.memory_plan import LEVELS, MemoryPlan

# One H100, torch 2.11, six configurations: what torch holds is 0.6 to 1.9 % more than the tensors in use, and the
# process 0.74 GiB more than torch.
_POOL_SHARE, _POOL_BYTES = 0.01, 32 * MIB
# And where tensors stand in slots on their way to host memory, up to so much of the slots for gate and up and of those
# for attention's output: the allocator followed through 80 plans.
_WIDE_SLOTS_SHARE, _ATTENTION_SLOTS_SHARE = 0.1, 0.5
CONTEXT_BYTES = 760 * MIB
"""What the process holds on a GPU beside torch's tensors."""
_LIBRARIES_BYTES = 600 * MIB
_LAYERS_NOT_RETURNED = 4.8  # as many layers' tensors glibc keeps after they were freed: four runs of a 135 M
_SCORE_BLOCK = 512  # queries whose scores the CPU's attention holds at once
_INPUT_BYTES = 26  # of a token in a pass's static buffer: see train.packed_batch
_PIECE_BYTES = 32 * MIB  # of a head in host memory, twice on the device: see models.streamed_matrix

Levels: TypeAlias = npt.NDArray[np.int8]
"""[plans, layers], numbers of levels in `LEVELS`."""
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
    """

    activations: Bytes
    passing: Bytes


class FastMemory:
    """The memory of one run, for any number of plans.

    Args:
        run: The run.
    """

    def __init__(self, run: FastRun) -> None:
        self.run = run
        self._width = BYTES_OF[run.precision]
        self._shape = LayerShape(run.spec, run.recipe.adapter, self._width, run.cuda)
        self._weights = frozen_weights(run.spec, run.recipe.adapter, run.precision, nf4=run.nf4)
        self._rows = run.largest.static_rows
        self._layers: dict[int, list[LayerBytes]] = {}

    def layer(self, mlp_rows: int) -> list[LayerBytes]:
        """What a layer takes at each of `LEVELS`."""
        if mlp_rows not in self._layers:
            self._layers[mlp_rows] = [layer_bytes(self._shape, level, self._rows, mlp_rows) for level in LEVELS]
        return self._layers[mlp_rows]

    def totals(self, levels: Levels, pieces: Pieces) -> Bytes:
        """What the process holds of the device at its worst moment, of several plans."""
        found = self.peaks(levels, pieces.mlp_rows)
        most = np.maximum(found.activations + self.head_bytes(pieces), found.passing)
        most = np.maximum(most, self._evaluation(pieces))
        return self._with_overhead(most + self._standing(pieces) + self._loose(found, levels, pieces))

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
        if self.run.cuda:  # the CPU copies at once
            forward += starts_leaving(levels) * self._start_bytes
        forward[:, 1:] += _of(levels[:, :-1], [one.leaves_stream for one in layers])
        backward = below + _of(levels, [one.backward for one in layers]) + self._slots(backward_slots(levels))
        backward += self._whole_pass + self._on_cpu(mlp_rows)
        return Peaks(above[:, -1] + self._whole_pass, np.maximum(forward.max(axis=1), backward.max(axis=1)))

    def host_bytes(self, levels: Levels, pieces: Pieces) -> Bytes:
        """Memory of the host that several plans take beside the device's, page-locked where that is possible."""
        if not self.run.cuda:
            return np.zeros(len(levels))
        parked = _of(levels, [sum(one.parked) for one in self.layer(pieces.mlp_rows)]).sum(axis=1)
        return parked + self._tables_on_host(pieces)

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
        most = np.maximum(counts @ kept + self._whole_pass + top, self._evaluation(pieces))
        return self._with_overhead(most + self._standing(pieces))

    def least_host_bytes(self, counts: Bytes, pieces: Pieces) -> Bytes:
        """`host_bytes` from how many layers there are of each level; arguments as in `least_totals`."""
        parked = np.array([sum(one.parked) for one in self.layer(pieces.mlp_rows)], dtype=np.float64)
        return counts @ parked + self._tables_on_host(pieces)

    def least_workspace(self, mlp_rows: int) -> float:
        """What a layer works with beside what it keeps, at least: a smaller chunk of the head saves nothing."""
        return min(one.backward - one.kept for one in self.layer(mlp_rows)) + self._on_cpu(mlp_rows)

    def parts(self, plan: MemoryPlan) -> list[MemoryPart]:
        """Components of the peak with a plan, which sum up to what the process holds at its worst moment."""
        run, weights = self.run, self._weights
        levels, pieces = of_plan(plan)
        found = self.peaks(levels, pieces.mlp_rows)
        activations, head = int(found.activations[0]), self.head_bytes(pieces)
        loose = int(self._loose(found, levels, pieces)[0])
        workspace, evaluation = int(found.passing[0]) - activations, self._evaluation(pieces)
        trained = self._trained
        stored = weights.stored - weights.tables - self._tables_on_host(pieces)
        parts = [MemoryPart(name="base weights", bytes=stored, note=self._weights_note(pieces))]
        if run.nf4:
            parts.append(MemoryPart(name="quantization tables", bytes=weights.tables, note="scales of NF4"))
            parts.append(
                MemoryPart(name="unpacked weights", bytes=weights.scratch, note="gate and up, and one more matrix")
            )
        parts += [
            MemoryPart(name="adapter", bytes=trained * 4, note=f"{trained:,} weights, fp32"),
            MemoryPart(name="gradients", bytes=trained * 4, note="fp32"),
            MemoryPart(name="optimizer", bytes=trained * 8, note="AdamW, two moments, fp32"),
        ]
        if evaluation > activations + max(head, workspace):
            parts.append(MemoryPart(name="evaluation", bytes=evaluation, note="held-out rows, more than a pass takes"))
            return [*parts, *self._overhead(parts, loose)]
        counts = Counter(plan.layers)
        kept = f"{self._rows:,} tokens; " + ", ".join(f"{counts[one]} {one}" for one in LEVELS if counts[one])
        parts.append(MemoryPart(name="activations", bytes=activations, note=kept))
        # The head and a layer are never at work at the same time.
        if head >= workspace:
            note = f"{run.largest.supervised:,} learned tokens, {pieces.head_rows:,} at once"
            parts.append(MemoryPart(name="head and loss", bytes=head, note=note))
        else:
            note = "of one layer" + (f", {pieces.mlp_rows:,} tokens at once" if pieces.mlp_rows else "")
            parts.append(MemoryPart(name="workspace", bytes=workspace, note=note))
        return [*parts, *self._overhead(parts, loose)]

    def _weights_note(self, pieces: Pieces) -> str:
        note = f"NF4, the rest {self.run.precision}" if self.run.nf4 else self.run.precision
        away = {"embeddings": pieces.embedding_on_host, "head": pieces.head_on_host}
        names = " and ".join(name for name, there in away.items() if there)
        return f"{note}; {names} in host memory" if names else note

    @cached_property
    def _whole_pass(self) -> int:
        """What lives through a whole pass: its inputs, the last hidden state, its sum, its gradient, and rotations."""
        spec = self.run.spec
        tables = [rope.partial for rope in (spec.rope, spec.local_rope) if rope is not None]
        token = 3 * spec.hidden_size * self._width + 4 + _INPUT_BYTES
        return self._rows * (token + sum(4 * int(spec.head_dim * partial) for partial in tables))

    @cached_property
    def _trained(self) -> int:
        return adapter_parameters(self.run.spec, self.run.recipe.adapter)

    @cached_property
    def embedding_bytes(self) -> int:
        """Of the token embeddings."""
        return embedding_parameters(self.run.spec) * self._width

    def head_bytes(self, pieces: Pieces) -> int:
        """Logits of a chunk, which become their own gradient, and the gradient of its rows.

        The CPU's cross entropy has two more copies in fp32. A head in host memory comes in pieces, and the gradient is
        their sum in fp32.
        """
        spec = self.run.spec
        token = spec.vocab_size * (self._width + (0 if self.run.cuda else 8)) + spec.hidden_size * self._width
        if not pieces.head_on_host:
            return pieces.head_rows * token
        return pieces.head_rows * (token + 4 * spec.hidden_size) + 2 * min(_PIECE_BYTES, self.embedding_bytes)

    def _tables_on_host(self, pieces: Pieces) -> int:
        """Embeddings and head that are not on the device; where they are one matrix, they are there together."""
        if self.run.spec.tied_embeddings:
            return self.embedding_bytes if pieces.embedding_on_host and pieces.head_on_host else 0
        return self.embedding_bytes * (int(pieces.embedding_on_host) + int(pieces.head_on_host))

    def _standing(self, pieces: Pieces) -> float:
        """What is there all the time."""
        return self._weights.stored + self._weights.scratch + 16 * self._trained - self._tables_on_host(pieces)

    def _evaluation(self, pieces: Pieces) -> int:
        """Looking at held-out rows, in the memory that passes take by turns with it."""
        if not self.run.evaluates:
            return 0
        head = self._rows * 2 * self.run.spec.hidden_size * self._width + self.head_bytes(pieces)
        return max(evaluated_bytes(self._shape, self._rows, pieces.mlp_rows), head)

    @cached_property
    def _start_bytes(self) -> int:
        """A layer's input."""
        return self._rows * self.run.spec.hidden_size * self._width

    def _loose(self, found: Peaks, levels: Levels, pieces: Pieces) -> Bytes:
        """What the allocator does not find room for between slots and what layers keep."""
        if not self.run.cuda:
            return np.zeros(len(levels))
        slots = forward_slots(levels)
        nothing = np.zeros_like(slots.start)
        wide = self._slots(Slots(slots.gate_up, nothing, nothing))
        other = self._slots(Slots(nothing, nothing, slots.attention))
        # The forward pass's slots are free when the head is at work, but of no use for wider logits.
        head = found.activations + self.head_bytes(pieces)
        logits = pieces.head_rows * self.run.spec.vocab_size * self._width
        beside = np.where(wide + other < logits, np.clip(head + wide + other - found.passing, 0.0, wide + other), 0.0)
        return np.maximum(_WIDE_SLOTS_SHARE * wide + _ATTENTION_SLOTS_SHARE * other, beside)

    def _slots(self, slots: Slots) -> Bytes:
        """What moves to host memory stands in these on the device."""
        wide = self._rows * parked_bytes(self._shape, "offloaded")[0]
        start, attention = (self._rows * size for size in parked_bytes(self._shape, "host"))
        return wide * slots.gate_up + float(start) * slots.start + float(attention) * slots.attention

    def _overhead(self, parts: list[MemoryPart], loose: int) -> list[MemoryPart]:
        """What is no tensor, beside all that is."""
        if not self.run.cuda:
            return [
                MemoryPart(name="fragmentation", bytes=self._cpu_slack, note="freed, and kept by the allocator"),
                MemoryPart(name="libraries", bytes=_LIBRARIES_BYTES, note="torch, tokenizers"),
            ]
        loose += int(_POOL_SHARE * (loose + sum(part.bytes for part in parts)))
        return [
            MemoryPart(name="graph pools", bytes=_POOL_BYTES, note="captured passes, cuBLAS workspace"),
            MemoryPart(name="fragmentation", bytes=loose, note="of the allocator"),
            MemoryPart(name="CUDA context", bytes=CONTEXT_BYTES, note="driver, kernels, graphs"),
        ]

    def _with_overhead(self, sizes: Bytes) -> Bytes:
        if not self.run.cuda:
            return sizes + self._cpu_slack + _LIBRARIES_BYTES
        return sizes * (1 + _POOL_SHARE) + _POOL_BYTES + CONTEXT_BYTES

    def _on_cpu(self, mlp_rows: int) -> int:
        """What plain operations make beside a layer's own tensors: attention's scores, or the activation in fp32."""
        if self.run.cuda:
            return 0
        largest, spec = self.run.largest, self.run.spec
        longest = min(largest.longest or largest.tokens, largest.tokens)
        spans = [(longest, longest), (largest.tokens - longest, min(largest.span or longest, longest))]
        # Scores and their exponentials that autograd keeps of all documents of a pass, fp32.
        pairs = sum(tokens * min(span, (span + _SCORE_BLOCK) / 2) for tokens, span in spans)
        return max(int(8 * spec.num_heads * pairs), (mlp_rows or self._rows) * spec.intermediate_size * 16)

    @cached_property
    def _cpu_slack(self) -> int:
        return int(_LAYERS_NOT_RETURNED * evaluated_bytes(self._shape, self._rows, 0))


def of_plan(plan: MemoryPlan) -> tuple[Levels, Pieces]:
    """A plan as it is counted with."""
    levels = np.array([[LEVELS.index(level) for level in plan.layers]], dtype=np.int8)
    return levels, Pieces(plan.mlp_rows, plan.head_rows, plan.embedding_on_host, plan.head_on_host)


@lru_cache(maxsize=4)
def memory_of(run: FastRun) -> FastMemory:
    """The memory of a run."""
    return FastMemory(run)


def fast_memory(run: FastRun, plan: MemoryPlan) -> list[MemoryPart]:
    """Components of the peak on the training device; see `FastMemory.parts`."""
    return memory_of(run).parts(plan)


def host_bytes(run: FastRun, plan: MemoryPlan) -> int:
    """Host memory that a plan takes, page-locked where that is possible."""
    return int(memory_of(run).host_bytes(*of_plan(plan))[0])


def _of(levels: Levels, by_level: list[int]) -> Bytes:
    """A figure for each layer."""
    return np.array(by_level, dtype=np.float64)[levels]
