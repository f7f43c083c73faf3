"""Compute the importance matrix of quantization from the user's rows: how strong each input column of a layer is.

For a linear layer with input x [.., in] it is the mean of x² over tokens, one number per column. llama.cpp's quantizer
weights the rounding errors of a column by it (ggml-quants.c, `quant_weights`). Where conversion to GGUF gives the
columns of a matrix another order, the numbers get it too. Of a mixture, each expert's numbers count only the tokens
that were routed to it (`expert_inputs.py`).

Given a folder, the Hessians of the same inputs, mean of x xᵀ [in, in], are gathered too, as many at a time as the
memory allows; if there are more, the rows run through the model again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.staging import Canceled, never, stop_if
from burnish_engine.export.quantize.expert_inputs import ExpertInputs
from burnish_engine.export.quantize.hessian import (
    LONGEST_INPUT,
    MOST_HESSIAN_BYTES,
    hessian_bytes,
    input_name,
    write_hessian,
)
from burnish_engine.export.quantize.importance_file import Importance
from burnish_engine.export.weights.folders import Progress, no_progress
from burnish_engine.hardware.host.host_memory import host_memory
from burnish_engine.models.generation.transformers_generate import evaluating
from burnish_engine.models.saved_adapters.saved_adapter import PREFIX

LONGEST_ROW = 2048
_IN_F32 = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")
"""Ends of the names of linear layers that stay F32 in every file: routers, and gates of shared experts."""
Columns = Callable[[str], torch.Tensor | None]
"""Function from the base name of a matrix to the order of its columns in the file; None where it is the same."""
_Layers = list[tuple[str, torch.nn.Linear]]
_Hooks = list[tuple[torch.nn.Module, Callable[..., None]]]


def compute_importance(
    model: Any,
    rows: Sequence[Sequence[int]],
    name_map: Callable[[str], str | None],
    *,
    tokens: int,
    columns: Columns = lambda _name: None,
    hessians: Path | None = None,
    progress: Progress = no_progress,
    canceled: Canceled = never,
) -> Importance | None:
    """Run training rows through the trained model.

    Args:
        model: trained transformers model, with or without PEFT's adapter around its linear layers.
        rows: token ids of training rows, in any order; taken evenly from all of them.
        name_map: function from base tensor name to GGUF name (`Family.name_map`).
        tokens: number of tokens to run.
        columns: function from the base name of a matrix to the order of its columns in the file.
        hessians: folder for Hessians (`hessian.write_hessian`); None: they are not gathered.
        progress: callback given the share done.
        canceled: callback polled between rows, and between Hessians.

    Returns:
        Importance matrix; None where there are no rows.

    Raises:
        SetupError: Activations are not finite numbers.
        OSError: A Hessian cannot be written.
        StoppedError: Canceled.
    """
    chosen = spread(rows, tokens)
    if not chosen:
        return None
    orders: dict[str, torch.Tensor] = {}
    layers = _layers(model, name_map, columns, orders)
    groups = _groups(layers, _free_bytes(model.device)) if hessians is not None else []
    sums: dict[str, torch.Tensor] = {}
    experts = ExpertInputs(model, name_map)
    total, done = sum(map(len, chosen)), 0
    for number, group in enumerate(groups or [{}]):
        gathered: dict[str, torch.Tensor] = {}
        watched: _Hooks = [(layer, partial(_add_product, name, gathered)) for name, layer in group.items()]
        if number == 0:
            watched += [*((layer, partial(_add, name, sums)) for name, layer in layers), *experts.hooks]
        with _input_hooks(watched), evaluating(model):
            for row in chosen:
                stop_if(canceled, "The export")
                model(input_ids=torch.tensor([list(row)], device=model.device))
                done += len(row)
                progress(EXPORT_STAGES["weigh"], done / total / max(len(groups), 1))
        odd = [name for name, value in (sums | experts.sums).items() if not bool(torch.isfinite(value).all())]
        if odd:
            raise SetupError(
                f"The trained model's activations before {odd[0]} are not finite numbers on its own training rows.",
                "The run has diverged: use an earlier checkpoint. Or export with importance = false.",
            )
        while gathered and hessians is not None:
            stop_if(canceled, "The export")
            name, product = gathered.popitem()
            with suppress(np.linalg.LinAlgError):  # numbers beyond fp32: those columns keep llama.cpp's rounding
                write_hessian(hessians, name, _in_order(product.div_(total), orders.get(name)).cpu().numpy())
    means = {
        name: _in_order(value / total, orders.get(input_name(name))).float().cpu().numpy()
        for name, value in sums.items()
    }
    return Importance(means | experts.means(), total, experts.routed())


def spread(rows: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Take rows of about so many tokens in all, evenly from the first to the last."""
    cut = [list(row[:LONGEST_ROW]) for row in rows if len(row) > 1]
    total = sum(map(len, cut))
    if total <= tokens:
        return cut
    # Every row has its place on a line as long as all tokens; rows at which a share of the line is crossed are taken.
    chosen, before, credit = [], 0, 0.0
    for row in cut:
        before += len(row)
        if before * tokens / total > credit:
            chosen.append(row)
            credit += len(row)
    return chosen


def _layers(
    model: Any, name_map: Callable[[str], str | None], columns: Columns, orders: dict[str, torch.Tensor]
) -> _Layers:
    """List the GGUF name and the layer of every linear layer but the head; add orders of columns by input name."""
    found, head = [], model.get_output_embeddings()
    for path, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or module is head or ".lora_" in path:
            continue
        base = path.removeprefix(PREFIX).replace(".base_layer", "")  # PEFT's wrapping
        name = name_map(f"{base}.weight")
        if name is not None and not name.endswith(_IN_F32):
            found.append((name, module))
            if (order := columns(f"{base}.weight")) is not None:
                orders[input_name(name)] = order.to(module.weight.device)
    return found


def _in_order(means: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Give means of squares [in], or products [in, in], the order that the file has columns in."""
    if order is None:
        return means
    return means[order] if means.ndim == 1 else means[order][:, order]


def _groups(layers: _Layers, free_bytes: int) -> list[dict[str, torch.nn.Linear]]:
    """Group inputs that are gathered together, each with a layer that reads it, as the free memory allows."""
    groups: list[dict[str, torch.nn.Linear]] = []
    seen = {""}
    for weight, layer in layers:
        name = input_name(weight)
        if name in seen or layer.in_features > LONGEST_INPUT:
            continue
        seen.add(name)
        held = [other.in_features for other in groups[-1].values()] if groups else []
        if not groups or hessian_bytes([*held, layer.in_features]) > free_bytes:
            groups.append({})
        groups[-1][name] = layer
    return groups


def _free_bytes(device: torch.device) -> int:
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else host_memory()[1]
    return int(min(MOST_HESSIAN_BYTES, free // 4))


@contextmanager
def _input_hooks(watched: _Hooks) -> Iterator[None]:
    handles = [layer.register_forward_pre_hook(hook) for layer, hook in watched]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _add(name: str, sums: dict[str, torch.Tensor], _module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    squares = inputs[0].detach().double().square().reshape(-1, inputs[0].shape[-1]).sum(0)
    sums[name] = sums[name] + squares if name in sums else squares


def _add_product(
    name: str, sums: dict[str, torch.Tensor], _module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> None:
    x = inputs[0].detach().float().reshape(-1, inputs[0].shape[-1])
    if name in sums:
        sums[name].addmm_(x.T, x)
    else:
        sums[name] = x.T @ x
