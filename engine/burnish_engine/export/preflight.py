"""Before an export begins: are the types known, does it fit the disk, and what will it take?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from burnish_engine.advise.exports import finished_refusal
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.exports import ExportKind
from burnish_engine.contract.recipe_export import GgufType
from burnish_engine.export.aside import require_space
from burnish_engine.export.fidelity import probe_texts
from burnish_engine.export.forecast import Forecast, make_forecast, predicted_sizes
from burnish_engine.export.gguf.write import GgufPlan, plan_gguf
from burnish_engine.export.merge import MergedWeights
from burnish_engine.export.moments import moment_bytes, moment_rows
from burnish_engine.export.quantize import USE_IMPORTANCE
from burnish_engine.hardware.cpu import usable_cores
from burnish_engine.models.source import ModelSource
from burnish_engine.models.tokenizer import load_tokenizer


def checked_types(quants: Sequence[GgufType]) -> list[GgufType]:
    """The types, each once.

    Raises:
        UsageError: There is none, or one is unknown.
    """
    known = get_args(GgufType)
    odd = [quant for quant in quants if quant not in known]
    if odd or not quants:
        raise UsageError(f"The GGUF types {list(quants)} were asked for.", f"Choose from {', '.join(known)}.")
    return list(dict.fromkeys(quants))


def check_kind(kind: ExportKind, source: ModelSource, adapter: Path | None) -> None:
    """Refuse a kind of export that does not work for the model, by the same decision as before training.

    Args:
        kind: The kind of export.
        source: The base model, or the trained one.
        adapter: The PEFT adapter's folder; None: there is none.

    Raises:
        UsageError: This kind of export does not work for the model.
    """
    if why := finished_refusal(kind, source.config, source.spec, adapter, source.name):
        raise UsageError(*why)


def check_space(plan: GgufPlan, wanted: list[GgufType], out: Path, scratch: Path, *, importance: bool) -> None:
    """Check before anything is written that all files fit the disk.

    Args:
        plan: What will be written.
        wanted: The types asked for.
        out: Where the files go.
        scratch: Folder for a small temporary file.
        importance: Whether there will be an importance matrix.

    Raises:
        NoSpaceError: They do not.
        UsageError: The model's row lengths do not fit a type.
    """
    made: list[GgufType] = list(dict.fromkeys([*wanted, base_type(wanted)]))
    needed = sum(predicted_sizes(plan, made, scratch, importance=importance).values())
    if importance and set(made) & set(USE_IMPORTANCE):
        needed += moment_bytes(moment_rows(plan.tensors).values())
    require_space(out, needed, f"The export ({', '.join(made)})")


def forecast_gguf(
    source: ModelSource, adapter: Path | None, name: str, quants: Sequence[GgufType], *, importance_tokens: int = 0
) -> Forecast:
    """What `export_gguf` would take. Writes nothing but small temporary files.

    Args:
        source: The base model.
        adapter: The PEFT adapter's folder; None for the base.
        name: What the model will be called, which stands in the files.
        quants: GGUF types.
        importance_tokens: Training tokens for the importance matrix; 0 for none.

    Raises:
        UsageError: A type or family is unknown, or base or adapter cannot be exported.
        SetupError: A model file is missing or damaged.
        FidelityError: llama.cpp cannot split text as the model does.
    """
    check_kind("gguf", source, adapter)
    wanted, tokenizer = checked_types(quants), load_tokenizer(source)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        weights = MergedWeights(source, adapter)
        plan = plan_gguf(source, weights, tokenizer, name, expected=probe_texts(tokenizer), scratch=scratch)
        base = base_type(wanted)
        tokens = importance_tokens if set(wanted) & set(USE_IMPORTANCE) else 0
        return make_forecast(plan, wanted, base, scratch, importance_tokens=tokens, cores=usable_cores())


def base_type(wanted: Sequence[GgufType]) -> GgufType:
    """The 16-bit type that the others are made from."""
    return "BF16" if "BF16" in wanted and "F16" not in wanted and len(wanted) == 1 else "F16"
