"""Measure the gain of preparing a micro-batch's metadata once, against a step that rebuilds it for each layer.

Engines rebuild it whose attention finds out for itself, layer by layer, where documents begin: boundaries, positions
and the list of tiles are computed on the host and copied to the device, which waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from burnish_engine.bench.step import StepBench
from burnish_engine.bench.step_options import StepOptions
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.packed_batch import (
    BatchCounts,
    BatchFields,
    BucketLayout,
    StepScalars,
    fill_buffer,
    write_scalars,
)
from burnish_kernels.attention.documents import Documents

_UNTIMED, _TIMED = 2, 10  # repetitions


@dataclass
class RebuiltBatch:
    """Stand-in for `SequenceMetadata` that computes and uploads the fields at every access.

    Attributes:
        batch: documents of the micro-batch.
        layout: layout of the bucket.
        device: device to upload to.
    """

    batch: MicroBatch
    layout: BucketLayout
    device: torch.device

    @property
    def table_index_T(self) -> torch.Tensor:
        """Row of the rope table for each token, rebuilt."""
        found: torch.Tensor = self._fields().rope_row_T
        return found

    @property
    def documents(self) -> Documents:
        """Bounds and attention tiles of the documents, rebuilt."""
        fields = self._fields()
        return Documents(fields.start_T, fields.end_T, fields.tiles_G4, self.layout.tile_rows)

    def _fields(self) -> BatchFields:
        return self.layout.views(_host_buffer(self.batch, self.layout)[0].to(self.device))


def metadata_ablation(options: StepOptions) -> dict[str, Any]:
    """Time forward and backward of one micro-batch in ms: metadata once, metadata per layer, and captured.

    Args:
        options: settings of the measurement; steps and warm-up are not used.
    """
    bench = StepBench(replace(options, graphs=False))
    batch = bench.packs[0]
    buffer, counts = _host_buffer(batch, bench.layout)
    inputs = buffer.to(bench.device)
    program = MicroBatchStep(
        bench.model, bench.layout, inputs, bench.plan.layers, torch.zeros(1, dtype=torch.float32, device=bench.device)
    )
    once = _timed(program, counts)
    cached = program.metadata
    program.metadata = RebuiltBatch(batch, bench.layout, bench.device)  # type: ignore[assignment]
    rebuilt = _timed(program, counts)
    program.metadata = cached
    row = {"shape": options.shape, "tokens": options.tokens, "once_ms": once, "per_layer_ms": rebuilt}
    row["gain"] = rebuilt / once - 1
    if bench.device.type == "cuda":
        program.capture(torch.cuda.graph_pool_handle(), torch.cuda.Stream())
        row["captured_ms"] = _timed(program, counts)
    return row


def _timed(program: MicroBatchStep, counts: BatchCounts) -> float:
    times = []
    for _ in range(_UNTIMED + _TIMED):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        program.run(counts)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times[_UNTIMED:]))


def _host_buffer(batch: MicroBatch, layout: BucketLayout) -> tuple[torch.Tensor, BatchCounts]:
    buffer = torch.zeros(layout.size, dtype=torch.int32)
    counts = fill_buffer(batch, layout, buffer.numpy())
    write_scalars(StepScalars(1 / max(counts.supervised, 1), 0.0), layout, buffer.numpy())
    return buffer, counts
