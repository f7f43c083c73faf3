"""Write an adapter with the matrices of every expert apart, for programs that do not know PEFT's fused experts.

Each expert's gate and up then have the A that they share in the fused form, and their rows of B: the same numbers. The
names are those of checkpoints with a tensor for each expert, which llama.cpp and vLLM read. PEFT converts them back
(`peft.utils.transformers_weight_conversion`) for Mixtral, OLMoE and Qwen3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import UsageError
from burnish_engine.export.base.staging import publish, require_folder, require_space, staging_folder
from burnish_engine.export.weights.folders import must_be_free
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.decoder.experts.adapted_experts import AdaptedExperts
from burnish_engine.models.decoder.lora_adapter import AdaptedModule, AdapterPlan, read_plan
from burnish_engine.models.families import family
from burnish_engine.models.families.experts import ExpertNames, path_in_files
from burnish_engine.models.saved_adapters.peft_form import as_peft_reads
from burnish_engine.models.saved_adapters.saved_adapter import CONFIG_FILE, PREFIX, WEIGHTS_FILE, read_config

_ALPHA_DIGITS = 12


def export_adapter_by_expert(source: ModelSource, adapter: Path, out: Path) -> Path:
    """Write the adapter in PEFT's format, each expert's matrices apart.

    Args:
        source: base model.
        adapter: folder of the PEFT adapter.
        out: folder to make; must not exist or be empty.

    Returns:
        Path `out`.

    Raises:
        UsageError: `out` is not empty, the adapter reaches no experts or has several ranks or alphas for them
            or leaves their second maps out, or the family is unknown, never has them apart in its files, or has an
            expert that sees every token.
        SetupError: The folder holds no adapter for this model.
        NoSpaceError: The adapter does not fit the disk.
    """
    must_be_free(out)
    spec, known = source.spec, family(source.spec.family) if source.spec else None
    plan = read_plan(adapter, known.modules(spec), known.all_expert_stacks(spec)) if spec and known else None
    if known is None or plan is None:
        raise UsageError(
            "This version does not know how files of this family name their experts.", "Leave out --each-expert."
        )
    if not plan.experts:
        raise UsageError("This adapter reaches no experts.", "Leave out --each-expert.")
    if len({(adapted.rank, adapted.scale) for adapted in plan.experts}) > 1:
        raise UsageError(
            "This adapter's experts have several ranks or alphas, and PEFT fuses only equal ones.",
            "Leave out --each-expert.",
        )
    if all(adapted.stack.role == "gate_up" for adapted in plan.experts):
        raise UsageError(
            "This adapter reaches the experts' first maps alone, and PEFT reads such matrices apart as none.",
            "Leave out --each-expert.",
        )
    if known.expert_names.transposed:
        raise UsageError(
            f"Files of {known.model_type} never have the experts apart, so no program reads them so.",
            "Leave out --each-expert.",
        )
    if spec is not None and spec.experts is not None and spec.experts.shared_size:
        raise UsageError(
            f"PEFT does not read the experts of {known.model_type} from matrices apart: its logits are others.",
            "Leave out --each-expert.",
        )
    tensors = load_file(adapter / WEIGHTS_FILE)
    size = 2 * sum(tensor.nbytes for tensor in tensors.values())
    require_folder(out.parent)
    require_space(out.parent, size, "The adapter")
    for adapted in plan.experts:
        a, b = (adapted.from_file(name, tensors.pop(name)) for name in adapted.shapes)
        tensors |= _by_expert(adapted, a, b, known.expert_names)
    config = _config(adapter, read_config(adapter), plan, known.expert_names)
    with staging_folder(out.parent) as staging:
        folder = staging / "adapter"
        folder.mkdir()
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
        stored = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(stored, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        if out.is_dir():
            out.rmdir()
        publish(folder, out)
    return out


def _by_expert(
    adapted: AdaptedExperts, first: torch.Tensor, second: torch.Tensor, names: ExpertNames
) -> dict[str, torch.Tensor]:
    """Return the tensors of each expert of a stack, by their names in PEFT's file."""
    place = path_in_files(adapted.path, names).rpartition(".")[0]
    parts, found = _parts(adapted, names), dict[str, torch.Tensor]()
    for expert, (a, b) in enumerate(zip(first, second, strict=True)):
        for part, rows in zip(parts, b.chunk(len(parts)), strict=True):
            found[f"{PREFIX}{place}.{expert}.{part}.lora_A.weight"] = a.clone()
            found[f"{PREFIX}{place}.{expert}.{part}.lora_B.weight"] = rows.clone()
    return found


def _parts(adapted: AdaptedExperts, names: ExpertNames) -> list[str]:
    """Return the names of the matrices that a stack holds of each expert."""
    return [names.gate, names.up] if adapted.stack.role == "gate_up" else [names.down]


def _config(folder: Path, config: dict[str, Any], plan: AdapterPlan, names: ExpertNames) -> dict[str, Any]:
    """Return adapter_config.json for the matrices apart, as target modules.

    The general rank and alpha are the experts', because PEFT looks at no pattern when it fuses them. It then doubles
    both, which keeps alpha / rank, but not rsLoRA's alpha / sqrt(rank): so each factor is said as alpha / rank. Other
    modules get patterns by path, because dense layers may have matrices of the same names.
    """
    parts = dict.fromkeys(part for adapted in plan.experts for part in _parts(adapted, names))
    rank, alpha = plan.experts[0].rank, _alpha(plan.experts[0])
    asked, paths = config.get("target_modules"), [one.path for one in plan.modules]
    said: dict[str, Any] = {
        "lora_alpha": alpha,
        "r": rank,
        "alpha_pattern": {one.path: _alpha(one) for one in plan.modules if _alpha(one) != alpha},
        "rank_pattern": {one.path: one.rank for one in plan.modules if one.rank != rank},
        "target_modules": sorted(asked if isinstance(asked, list) else paths),
        "target_parameters": None,
        "use_rslora": False,
    }
    said = as_peft_reads(folder, config | said, paths)
    return said | {"target_modules": sorted({*said["target_modules"], *parts})}


def _alpha(adapted: AdaptedModule | AdaptedExperts) -> float:
    """Return the alpha of plain LoRA that gives the same factor."""
    return round(adapted.scale * adapted.rank, _ALPHA_DIGITS)
