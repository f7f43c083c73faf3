"""Read a saved PEFT adapter as updates of base tensors, computed in fp32.

Source: Kalajdzievski 2023 (rsLoRA: alpha / sqrt(r)). Pattern rules: peft/tuners/lora/model.py.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.export.weights.adapter_weights import AdapterWeights, LowRankUpdate, StackUpdate, TokenRows
from burnish_engine.models.checkpoint.wrapper import Wrapper
from burnish_engine.models.families.adapter_targets import has_name
from burnish_engine.models.saved_adapters.adapter_files import part_of, read_files, token_rows, why_not_lora
from burnish_engine.models.saved_adapters.saved_adapter import (
    CONFIG_FILE,
    PREFIX,
    WEIGHTS_FILE,
    alpha_of,
    read_config,
    refuse_not_finite,
    refuse_other_rank,
    setting_of,
)

_PEFT_DEFAULT = 8  # LoraConfig's rank where the file does not say
_WRAPPED = ".base_layer"
_NESTED = ("gate_up_proj", "down_proj")
"""Parameters of experts in the order of transformers' modules: PEFT puts its wrapper of the first one innermost."""


def read_adapter(folder: Path) -> AdapterWeights:
    """Read a PEFT adapter folder.

    Args:
        folder: folder with adapter_config.json and adapter_model.safetensors.

    Raises:
        SetupError: The folder holds no adapter, or a damaged one.
        UsageError: This kind of adapter cannot be merged.
    """
    files = read_files(folder)
    if why := why_not_lora(files.config):
        raise UsageError(
            f"The adapter in {folder} {why}, which cannot be merged exactly.",
            "Merge it with the program that made it, or export the adapter itself.",
        )
    modules: dict[str, dict[str, torch.Tensor]] = {}
    replacements: dict[str, torch.Tensor] = {}
    tokens = token_rows(files.config)
    rows: dict[str, TokenRows] = {}
    for name, tensor in _tensors(folder).items():
        part = part_of(name)
        if part.kind == "whole":
            replacements[part.module] = tensor.float()
        elif part.kind == "rows":
            rows[f"{part.module}.weight"] = _token_rows(folder, part.module, tensor.float(), tokens)
        elif part.kind != "frozen":
            modules.setdefault(part.module, {})[part.kind] = tensor.float()
    parameters = _parameters(folder, modules, files.config.get("target_parameters") or [])
    found = AdapterWeights(folder, {}, replacements, rows=rows)
    for module, parts in modules.items():
        parameter = parameters.get(module, f"{module}.weight")
        if parameter.rpartition(".")[2] in _NESTED:
            found.stacks[parameter] = _stack_update(folder, parameter, parts, files.config)
            continue
        if (bias := parts.pop("bias", None)) is not None:
            found.shifts[f"{module}.bias"] = bias * _rank_and_scale(folder, module, files.config)[1]
        name = parameter if module in parameters else module
        found.updates[parameter] = _update(folder, name, parts, files.config)
    return found


def check_adapter(folder: Path) -> None:
    """Check that a folder holds a PEFT adapter, of any kind, and that its files can be read.

    Raises:
        SetupError: The folder holds no adapter, or a damaged one.
    """
    read_files(folder)
    _tensors(folder)


def target_whole_model(folder: Path, wrapper: Wrapper) -> None:
    """Rename the tensors of a language model's adapter in place, so that PEFT loads it on the whole model around it.

    Args:
        folder: the adapter's folder.
        wrapper: arrangement of the whole model's parts.
    """
    from safetensors.torch import save_file

    tensors = _tensors(folder)
    renamed = {PREFIX + wrapper.module_name(name.removeprefix(PREFIX)): value for name, value in tensors.items()}
    save_file(renamed, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    path = folder / CONFIG_FILE
    config = read_config(folder)
    parts = [part for part in map(part_of, tensors) if part.kind not in ("whole", "rows", "frozen")]
    stacks = tuple({str(target).rpartition(".")[0] for target in config.get("target_parameters") or []})
    modules = [part.module for part in parts if not part.module.replace(_WRAPPED, "").endswith(stacks)]
    paths = {wrapper.module_name(module) for module in modules}
    names = sorted({module.rpartition(".")[2] for module in paths if module.startswith(wrapper.part)})
    inside = [rf"{re.escape(wrapper.part)}(.*\.)?({'|'.join(names)})"] if names else []
    outside = sorted(re.escape(module) for module in paths if not module.startswith(wrapper.part))
    # Other parts have modules of the same names. PEFT takes a string as a pattern for whole paths.
    config["target_modules"] = "|".join([*inside, *outside])
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS_FILE
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise SetupError(f"{path} cannot be read: {error}.", "Use another checkpoint of the run.") from error
    refuse_not_finite(folder, [name for name, value in tensors.items() if not bool(value.float().isfinite().all())])
    return tensors


def _token_rows(folder: Path, module: str, values: torch.Tensor, tokens: dict[str, list[int]]) -> TokenRows:
    """Return the rows of a module with the ids of their tokens, which stand in the config."""
    found = next((ids for name, ids in tokens.items() if not name or has_name(module, name)), [])
    if values.ndim != 2 or len(found) != len(values):
        raise SetupError(
            f"The adapter in {folder} has rows {list(values.shape)} of {module} for {len(found)} tokens.",
            f"Correct trainable_token_indices in its {CONFIG_FILE}.",
        )
    return TokenRows(torch.tensor(found, dtype=torch.int64), values)


def _parameters(folder: Path, modules: Collection[str], targets: Sequence[str]) -> dict[str, str]:
    """Map the wrappers of parameters, by their names in the file, to the parameters (PEFT's `target_parameters`).

    A wrapper takes the place of the parameter's module. If several parameters of a module are adapted, the wrapper of
    each is around that of the one before, whose name has one `.base_layer` more.
    """
    wrappers: dict[str, list[str]] = {}
    for module in modules:
        wrappers.setdefault(module.replace(_WRAPPED, ""), []).append(module)
    found: dict[str, str] = {}
    for place, wrapped in wrappers.items():
        ends = {f"{place}.{target.rpartition('.')[2]}" for target in map(str, targets) if _is_of(place, target)}
        names = sorted(ends, key=lambda name: name.endswith(_NESTED[-1]))
        if not names:
            continue
        if len(names) != len(wrapped) or (len(names) > 1 and not all(name.endswith(_NESTED) for name in names)):
            raise UsageError(
                f"The adapter in {folder} changes {len(wrapped)} parameters of {place}, and {len(names)} are named.",
                "Export the adapter itself (--to adapter).",
            )
        found |= dict(zip(sorted(wrapped, key=len, reverse=True), names, strict=True))
    return found


def _is_of(place: str, target: str) -> bool:
    """Whether a name of `target_parameters` means a parameter of a module (PEFT's `_inject_parameters`)."""
    module = target.rpartition(".")[0] or "experts"
    return place == module or place.endswith(f".{module}")


def _stack_update(
    folder: Path, parameter: str, parts: dict[str, torch.Tensor], config: Mapping[str, Any]
) -> StackUpdate:
    a, b = _factors(folder, parameter, parts, ("A", "B"), others=())
    rank, scale = _rank_and_scale(folder, parameter, config)
    if len(a) % rank or b.shape[1] != len(a):
        raise SetupError(
            f"The adapter in {folder} has {len(a)} rows A and {b.shape[1]} columns B for {parameter}, which is not "
            f"rank {rank} for each expert.",
            "Save the adapter again.",
        )
    return StackUpdate(a, b, scale, rank)


def _update(folder: Path, module: str, parts: dict[str, torch.Tensor], config: Mapping[str, Any]) -> LowRankUpdate:
    embedding = "EA" in parts
    a, b = _factors(folder, module, parts, ("EA", "EB") if embedding else ("A", "B"), others=("M",))
    rank, scale = _rank_and_scale(folder, module, config)
    refuse_other_rank(folder, config, module, len(a))
    if b.shape[1] != rank:
        raise SetupError(
            f"The adapter in {folder} has rank {rank} in A and {b.shape[1]} in B for {module}.",
            "Save the adapter again.",
        )
    return LowRankUpdate(a, b, scale, parts.get("M"), embedding)


def _factors(
    folder: Path, name: str, parts: dict[str, torch.Tensor], factors: tuple[str, str], *, others: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B."""
    a, b = map(parts.get, factors)
    if a is None or b is None or a.ndim != 2 or b.ndim != 2 or parts.keys() - {*factors, *others}:
        shapes = ", ".join(f"{part} {list(tensor.shape)}" for part, tensor in sorted(parts.items()))
        raise SetupError(
            f"The adapter in {folder} has the parts {shapes} for {name}; matrices A and B are expected.",
            "Save the adapter again.",
        )
    return a, b


def _rank_and_scale(folder: Path, name: str, config: Mapping[str, Any]) -> tuple[int, float]:
    """Return the rank of a module or of each expert in a stack, and the factor on B·A."""
    rank = setting_of(folder, config, "rank_pattern", name, config.get("r", _PEFT_DEFAULT))
    if type(rank) is not int or rank < 1:
        raise SetupError(
            f"The adapter in {folder} has the rank {rank!r:.60} for {name}.", f"Correct its {CONFIG_FILE}."
        )
    return rank, alpha_of(folder, config, name) / (math.sqrt(rank) if config.get("use_rslora") else rank)
