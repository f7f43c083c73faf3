"""Check types and disk space before an export begins, and predict its cost."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_export import USE_IMPORTANCE, GgufType
from burnish_engine.export.base.staging import require_space
from burnish_engine.export.forecast import ExportCost, make_forecast, predicted_sizes
from burnish_engine.export.gguf.write import GgufPlan, plan_gguf
from burnish_engine.export.quantize.hessian import hessian_bytes, hessian_sizes
from burnish_engine.export.type_forecast import forecast_types
from burnish_engine.export.verify.fidelity import probe_texts
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.hardware.host.cpu import usable_cores
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer


def checked_types(quants: Sequence[GgufType]) -> list[GgufType]:
    """Validate the types and remove duplicates.

    Raises:
        UsageError: There are no types, or one is unknown.
    """
    known = get_args(GgufType)
    odd = [quant for quant in quants if quant not in known]
    if odd or not quants:
        raise UsageError(f"The GGUF types {list(quants)} were asked for.", f"Choose from {', '.join(known)}.")
    return list(dict.fromkeys(quants))


def check_space(plan: GgufPlan, wanted: list[GgufType], out: Path, scratch: Path, *, importance: bool) -> None:
    """Check before anything is written that all files fit the disk.

    Args:
        plan: plan of the file.
        wanted: requested GGUF types.
        out: folder of the files.
        scratch: folder for a small temporary file.
        importance: whether there will be an importance matrix.

    Raises:
        NoSpaceError: The files do not fit.
        UsageError: The model's row lengths do not fit a type.
    """
    made: list[GgufType] = list(dict.fromkeys([*wanted, base_type(wanted)]))
    needed = sum(predicted_sizes(plan, made, scratch, importance=importance).values())
    if importance and set(made) & set(USE_IMPORTANCE):
        needed += hessian_bytes(hessian_sizes(plan.tensors).values())
    require_space(out, needed, f"The export ({', '.join(made)})")


def forecast_gguf(
    source: ModelSource,
    adapter: Path | None,
    name: str,
    quants: Sequence[GgufType],
    *,
    importance_tokens: int = 0,
    scored_tokens: int = 0,
    gain: float | None = None,
) -> ExportCost:
    """Predict an export by `export_gguf`. Writes only small temporary files.

    Args:
        source: The base model.
        adapter: folder of the PEFT adapter; None for the base.
        name: name of the model, which stands in the files.
        quants: GGUF types.
        importance_tokens: number of training tokens for the importance matrix; 0 for none.
        scored_tokens: most tokens of the replies with which the task of each file is scored.
        gain: held-out loss that training took away, nats, to predict all other types too; None: they are not.

    Raises:
        UsageError: A type or family is unknown, or base or adapter cannot be exported.
        SetupError: A model file is missing or damaged.
        FidelityError: llama.cpp cannot split text as the model does.
    """
    weights = MergedWeights(source, adapter, kind="gguf")
    wanted, tokenizer = checked_types(quants), load_tokenizer(source)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        plan = plan_gguf(source, weights, tokenizer, name, expected=probe_texts(tokenizer), scratch=scratch)
        base = base_type(wanted)
        tokens = importance_tokens if set(wanted) & set(USE_IMPORTANCE) else 0
        types = []
        if gain is not None:
            types = forecast_types(plan, source.spec, scratch, importance=importance_tokens > 0, gain=gain)
        cost = make_forecast(
            plan,
            wanted,
            base,
            scratch,
            importance_tokens=tokens,
            cores=usable_cores(),
            scored_tokens=scored_tokens,
        )
        return replace(cost, types=types)


def base_type(wanted: Sequence[GgufType]) -> GgufType:
    """Choose the 16-bit type that the others are made from."""
    return "BF16" if "BF16" in wanted and "F16" not in wanted and len(wanted) == 1 else "F16"
