"""Measure what three ways to save time are worth to a training step of one model, each alone and together; prints JSON.

    python tests/bench ablation --shape qwen3-0.6b [--tokens 4096] [--steps 24] [--keep input] [--device cuda]

- "metadata": where documents begin is prepared once for a micro-batch. Without it, each layer finds that out for each
  pass: it reads the documents' rows back from the device, cuts them into tiles on the host and uploads these.
- "reload": what comes back from host memory, activations and frozen weights, is copied while other layers compute.
  Without it, a layer's activations are copied when it is its turn, into one buffer, and the device waits.
- "routing": a mixture's tokens are sorted by one counting sort on the device, whose result is kept. Without it, each
  expert's tokens are searched for, with a wait for their count, in the forward and again in the backward pass.

The parts are replaced here alone; training has no such switch. Steps are launched eagerly, because what waits for the
device cannot be captured, and they compute the same bits with and without each part.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from burnish_engine.bench.shapes import CONFIGS
from burnish_engine.bench.step import GIB, StepBench
from burnish_engine.bench.step_options import StepOptions, parse_keep, parse_weights
from burnish_engine.models.decoder.experts import expert_half
from burnish_engine.models.decoder.experts.expert_half import ExpertHalf
from burnish_engine.models.decoder.layer_types import PassState, SavedActivations, not_none
from burnish_engine.models.host_memory.copy_stream import CopyStream
from burnish_engine.models.host_memory.offloader import HasOffloaded, Offloader
from burnish_engine.train.fast import packed_batch
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_kernels.attention.documents import Documents
from burnish_kernels.moe_sort.order import TILE_ROWS, ExpertOrder, empty_order

PARTS = ("metadata", "reload", "routing")

_LABELS = {
    "metadata": "metadata prepared once",
    "reload": "copies back beside computing",
    "routing": "routing by one sort",
}
_PUBLISHED = {
    "none of them": "",
    _LABELS["metadata"]: "+14.3 %",
    _LABELS["reload"]: "+8.4 %",
    _LABELS["routing"]: "+15 %",
    "all": "about +25 %",
    "all, captured": "",
}
"""Label of a row to the gain that Unsloth and NVIDIA published in May 2026 for such a part of their engine; the first
was measured on Qwen3-14B QLoRA, the third on gpt-oss-20b."""


@dataclass
class RebuiltMetadata:
    """Stand-in for `SequenceMetadata` that finds the documents' boundaries and tiles at every access.

    Attributes:
        table_index_T: row of the rope table, per token.
        uploaded: what the micro-batch's buffer holds.
        state: what layers leave for others.
    """

    table_index_T: torch.Tensor
    uploaded: Documents
    state: PassState | None = None

    @property
    def documents(self) -> Documents:
        """Bounds and attention tiles of the documents, from their first rows on the device."""
        start_T, tile_rows = self.uploaded.start_T, self.uploaded.tile_rows
        boundaries = np.append(np.unique(start_T.cpu().numpy()), len(start_T))
        return Documents.from_boundaries(boundaries, len(start_T), tile_rows, start_T.device)


def sort_expert_by_expert(
    ids_Tk: torch.Tensor, experts: int, *, tile_rows: int = TILE_ROWS, out: ExpertOrder | None = None
) -> ExpertOrder:
    """Sort positions by their expert with a search for each; the same order as `moe_sort.op.sort_by_expert`."""
    if out is None:
        out = empty_order(ids_Tk.numel(), experts, ids_Tk.shape[1], tile_rows=tile_rows, device=ids_Tk.device)
    ids_P = ids_Tk.reshape(-1)
    found = [torch.where(ids_P == expert)[0] for expert in range(experts)]  # each waits for the number of its rows
    counts = np.array([len(rows) for rows in found])
    out.order.copy_(torch.cat(found))
    out.inverse[out.order.long()] = torch.arange(len(ids_P), dtype=torch.int32, device=ids_P.device)
    offsets, heights = np.append(0, np.cumsum(counts)), -(counts // -tile_rows)
    tiles = np.full(tuple(out.tiles.shape), (-1, 0), np.int32)
    rows = [(e, offsets[e] + tile * tile_rows) for e in range(experts) for tile in range(heights[e])]
    tiles[: len(rows)] = np.array(rows, np.int32).reshape(-1, 2)
    tile_starts = np.append(0, np.cumsum(heights))
    for place, values in ((out.offsets, offsets), (out.tile_starts, tile_starts), (out.tiles, tiles)):
        place.copy_(torch.from_numpy(values.astype(np.int32)))
    return out


def _backward_sorting_again(self: ExpertHalf, saved: SavedActivations, gradient_TE: torch.Tensor) -> None:
    ids_Tk, first = not_none(saved.expert_ids_Tk), 0
    for order in not_none(saved.expert_orders):
        tokens = order.positions // order.slots
        sort_expert_by_expert(ids_Tk[first : first + tokens], order.experts, tile_rows=order.tile_rows, out=order)
        first += tokens
    _backward(self, saved, gradient_TE)


def _copy_and_wait_for_what_comes(
    self: CopyStream, source: torch.Tensor, target: torch.Tensor
) -> torch.cuda.Event | None:
    copied = _copy(self, source, target)
    if target.is_cuda:
        self.wait(copied)
    return copied


def _fetch_only_the_next(self: Offloader, layers: Sequence[HasOffloaded | None]) -> None:
    _prefetch(self, layers[-1:])


_backward, _copy, _prefetch = ExpertHalf.backward, CopyStream.copy, Offloader.prefetch
WITHOUT: Mapping[str, Sequence[tuple[object, str, Callable[..., Any]]]] = {
    "metadata": [(packed_batch, "SequenceMetadata", RebuiltMetadata)],
    "reload": [(CopyStream, "copy", _copy_and_wait_for_what_comes), (Offloader, "prefetch", _fetch_only_the_next)],
    "routing": [
        (expert_half, "sort_by_expert", sort_expert_by_expert),
        (ExpertHalf, "backward", _backward_sorting_again),
    ],
}
"""Part to what stands in for it: owner, name, replacement."""


@contextmanager
def without(parts: Sequence[str]) -> Iterator[None]:
    """Leave parts out of all that is built and run inside; names as in `PARTS`."""
    with ExitStack() as stack:
        for owner, name, value in (one for part in parts for one in WITHOUT[part]):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def ablation(options: StepOptions) -> dict[str, Any]:
    """Measure steps of one model and memory plan without the parts, with each alone, with all, and with all captured.

    All begin with the same adapter and take the same micro-batches.

    Args:
        options: settings of the measurement; on a GPU, some layer has to offload for "reload" to be measured.

    Returns:
        Shape, layers, method, tokens, plan and device; `rows`, each with the parts that it has (`on`), whether it is
        captured (`graphs`), and figures of `StepBench.run`; `same_bits`: whether first and last loss and gradient norm
        are equal in all rows.
    """
    bench = StepBench(replace(options, graphs=False))
    apply, begin = _that_apply(bench), bench.model.state()
    kinds = [(), *((part,) for part in apply), apply] if len(apply) > 1 else [(), apply]
    rows: list[dict[str, Any]] = []

    def measure(on: tuple[str, ...]) -> None:
        with without([part for part in apply if part not in on]):
            rows.append({"on": list(on), **_measure(bench, begin, rows[0]["held"] if rows else None)})

    for on in kinds:
        measure(on)
    if bench.device.type == "cuda":
        bench.options = replace(options, graphs=True)
        measure(apply)
    told = ("shape", "method", "tokens", "device")
    return {name: rows[0][name] for name in told} | {
        "layers": bench.spec.num_layers,
        "keep": bench.plan.text,
        "same_bits": all(row[name] == rows[0][name] for row in rows for name in ("loss", "grad_norm")),
        "rows": [{name: value for name, value in row.items() if name in _REPORTED} for row in rows],
    }


def _that_apply(bench: StepBench) -> tuple[str, ...]:
    applies = {
        "metadata": True,
        "reload": bench.trainer.offloader is not None or bool(bench.plan.layers_on_host),
        "routing": bool(bench.spec.num_experts),
    }
    return tuple(part for part in PARTS if applies[part])


_REPORTED = ("on", "graphs", "step_ms", "tok_s", "loss", "grad_norm", "peak_allocated_gib", "host_gib")


def _measure(bench: StepBench, begin: dict[str, torch.Tensor], first_held: int | None) -> dict[str, Any]:
    """Report steps of a new trainer of the bench's model, which begins with the same adapter each time.

    Args:
        bench: model and options.
        begin: state of the optimizer before the first step.
        first_held: bytes allocated before the first trainer, `held` of its report; None: this is the first. The peak is
            counted from there: cuBLAS keeps a workspace for the stream of each earlier trainer.
    """
    bench.model.initialize(0)
    bench.model.restore(begin)
    del bench.trainer
    gc.collect()  # a trainer refers to itself: its memory would count for the next one
    options, cuda, held = bench.options, bench.device.type == "cuda", 0
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    bench.trainer = FastTrainer(bench.model, options.section, bench.layouts, bench.plan.layers, graphs=options.graphs)
    report = bench.run() | {"held": held}
    if cuda and first_held is not None:
        report["peak_allocated_gib"] -= (held - first_held) / GIB
    return report


def ablation_table(reports: Sequence[Mapping[str, Any]]) -> str:
    """Render reports of `ablation` as one Markdown table: a row for each choice of parts, with the published gain.

    A gain is that of speed over the row without any part.
    """
    heads = [f"{one['shape']}, {one['tokens']:,} tokens, ms | gain | GiB" for one in reports]
    lines = [f"| | {' | '.join(heads)} | published |", "|---" * (2 + 3 * len(reports)) + "|"]
    by_name = [{_name(row): row for row in one["rows"] if row["graphs"] in {"off", "captured"}} for one in reports]
    for name, published in _PUBLISHED.items():
        if any(name in rows for rows in by_name):
            cells = " | ".join(_cells(rows.get(name), rows["none of them"]) for rows in by_name)
            lines.append(f"| {name} | {cells} | {published} |")
    return "\n".join(lines)


def _name(row: Mapping[str, Any]) -> str:
    """Return a row's label: a key of `_PUBLISHED`."""
    on = row["on"]
    if row["graphs"] == "captured":
        return "all, captured"
    return "all" if len(on) > 1 else _LABELS[on[0]] if on else "none of them"


def _cells(row: Mapping[str, Any] | None, base: Mapping[str, Any]) -> str:
    if row is None:
        return " | | "
    gain = "" if row is base else f"{100 * (base['step_ms'] / row['step_ms'] - 1):+.1f} %"
    memory = f"{row['peak_allocated_gib']:.2f}" if "peak_allocated_gib" in row else ""
    return f"{row['step_ms']:.1f} | {gain} | {memory}"


def main() -> None:
    """Measure one model and print its report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen3-0.6b", choices=CONFIGS)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--layers", type=int, default=0, help="number of layers to keep, from the first; 0: all")
    parser.add_argument("--method", default="lora", choices=["lora", "qlora"])
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--keep", default="products")
    parser.add_argument("--weights", default="card", help="where layers keep their frozen weights, as in a recipe")
    parser.add_argument("--device", default="cuda")
    given = vars(parser.parse_args())
    layers = given["layers"] or CONFIGS[given["shape"]]["num_hidden_layers"]
    given |= {"keep": parse_keep(given["keep"]), "weights": parse_weights(given["weights"], layers)}
    print(json.dumps(ablation(StepOptions(warmup=given.pop("warm_up"), **given))), flush=True)


if __name__ == "__main__":
    main()
