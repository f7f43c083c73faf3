"""What it is worth to prepare a pass's metadata once: the same step with everything rebuilt for each layer that asks.

Rebuilding is what engines do whose attention finds out for itself, layer by layer, where documents begin: boundaries,
positions and the list of tiles are computed on the host and copied to the device, which waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from burnish_engine.bench.step import StepBench, StepOptions
from burnish_engine.data.pack import MicroBatch
from burnish_engine.train.fast_pass import PassProgram
from burnish_engine.train.packed_batch import Counts, Fields, PackedLayout, StepScalars, fill_buffer, write_scalars
from burnish_kernels.attention.op import Documents


@dataclass
class RebuiltPack:
    """Stands in for a `Pack`: every look at it computes and uploads it anew.

    Attributes:
        batch: The documents.
        layout: Of the bucket.
        device: Where to.
        looks: How often it was rebuilt.
    """

    batch: MicroBatch
    layout: PackedLayout
    device: torch.device
    looks: int = 0

    @property
    def table_index_T(self) -> torch.Tensor:
        """See `Pack`."""
        found: torch.Tensor = self._fields().rope_row_T
        return found

    @property
    def documents(self) -> Documents:
        """See `Pack`."""
        fields = self._fields()
        return Documents(fields.start_T, fields.end_T, fields.tiles_G4, self.layout.tile_rows)

    def _fields(self) -> Fields:
        self.looks += 1
        return self.layout.views(_host_buffer(self.batch, self.layout)[0].to(self.device))


def metadata_ablation(options: StepOptions, passes: int = 10) -> dict[str, Any]:
    """Milliseconds of forward and backward passes on one pack: metadata once, metadata per layer, and captured.

    Args:
        options: What to measure; its steps and warm-up are not used.
        passes: Timed, after two that are not.
    """
    bench = StepBench(replace(options, graphs=False))
    batch = bench.packs[0]
    buffer, counts = _host_buffer(batch, bench.layout)
    inputs = buffer.to(bench.device)
    program = PassProgram(
        bench.model, bench.layout, inputs, bench.keep(), torch.zeros(1, dtype=torch.float32, device=bench.device)
    )
    once = _timed(program, counts, passes)
    cached = program.pack
    program.pack = RebuiltPack(batch, bench.layout, bench.device)  # type: ignore[assignment]
    rebuilt = _timed(program, counts, passes)
    program.pack = cached
    row = {"shape": options.shape, "tokens": options.tokens, "once_ms": once, "per_layer_ms": rebuilt}
    row["gain"] = rebuilt / once - 1
    if bench.device.type == "cuda":
        program.capture(torch.cuda.graph_pool_handle(), torch.cuda.Stream())
        row["captured_ms"] = _timed(program, counts, passes)
    return row


def _timed(program: PassProgram, counts: Counts, passes: int) -> float:
    times = []
    for _ in range(passes + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        program.run(counts)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times[2:]))


def _host_buffer(batch: MicroBatch, layout: PackedLayout) -> tuple[torch.Tensor, Counts]:
    buffer = torch.zeros(layout.size, dtype=torch.int32)
    counts = fill_buffer(batch, layout, buffer.numpy())
    write_scalars(StepScalars(1 / max(counts.supervised, 1), 0.0), layout, buffer.numpy())
    return buffer, counts
