"""Read a saved PEFT adapter as updates of base tensors, computed in fp32.

Sources: Hu et al. 2021 (LoRA), Kalajdzievski 2023 (rsLoRA: alpha / sqrt(r)), Liu et al. 2024 (DoRA: the length of
each output row is trained). File format and pattern rules: peft/utils/save_and_load.py, peft/tuners/lora/model.py.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.files import read_plain
from burnish_engine.models.checkpoint.wrapper import Wrapper
from burnish_engine.models.saved_adapters.peft_form import by_modules
from burnish_engine.models.saved_adapters.saved_adapter import (
    CONFIG_FILE,
    PREFIX,
    WEIGHTS_FILE,
    refuse_not_finite,
    refuse_other_rank,
    setting_of,
)
from burnish_engine.models.transformers_path.peft_import import import_peft
from burnish_engine.runs.file_hashes import sha256_file

_UNSUPPORTED = (
    "fan_in_fan_out", "layer_replication", "trainable_token_indices", "use_qalora", "use_bdlora",
    "alora_invocation_tokens", "arrow_config", "lora_bias", "velora_config", "monteclora_config", "kasa_config",
)  # fmt: skip
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initializations that also change the base weights, so that the saved adapter no longer fits the base."""
_WRAPPED = ".base_layer"
_NESTED = ("gate_up_proj", "down_proj")
"""Parameters of experts in the order of transformers' modules: PEFT puts its wrapper of the first one innermost."""


@dataclass(frozen=True)
class LowRankUpdate:
    """Update that an adapter adds to one weight.

    Attributes:
        a: factor A [r, in], fp32; for an embedding [r, vocabulary].
        b: factor B [out, r], fp32; for an embedding [hidden, r].
        scale: factor on B·A.
        magnitude: DoRA's trained length of every output row [out], or None.
        embedding: whether the weight is [vocabulary, hidden], the transpose of B·A.
    """

    a: torch.Tensor
    b: torch.Tensor
    scale: float
    magnitude: torch.Tensor | None = None
    embedding: bool = False

    def merged(self, weight: torch.Tensor) -> torch.Tensor:
        """Apply the update to a weight.

        Args:
            weight: base weight in fp32, [out, in] (embedding: [vocabulary, hidden]).
        """
        delta = self.scale * (self.b @ self.a)
        updated = weight + (delta.T if self.embedding else delta)
        if self.magnitude is None:
            return updated
        return updated * (self.magnitude / torch.linalg.norm(updated, dim=1)).unsqueeze(1)


@dataclass(frozen=True)
class StackUpdate:
    """Update that an adapter adds to a stack with one matrix for each expert.

    Attributes:
        a: factors A of all experts, one below the other [experts * r, in], fp32.
        b: factors B [out, r * experts], fp32; column i * experts + e is column i of expert e's.
        scale: factor on B·A.
        rank: rank r of an expert's update.
    """

    a: torch.Tensor
    b: torch.Tensor
    scale: float
    rank: int

    @property
    def experts(self) -> int:
        """Number of experts."""
        return len(self.a) // self.rank

    def of_expert(self, expert: int, rows: slice = slice(None)) -> LowRankUpdate:
        """Return the update of one expert's matrix [out, in], or of some of its rows."""
        first = expert * self.rank
        return LowRankUpdate(self.a[first : first + self.rank], self.b[rows, expert :: self.experts], self.scale)


@dataclass(frozen=True)
class AdapterWeights:
    """Content of a PEFT adapter.

    Attributes:
        folder: folder that it was read from.
        updates: low-rank update by base tensor name.
        replacements: tensor, fp32, that takes the place of a base tensor, by name (modules_to_save, trained biases).
        stacks: update of all experts, by the name of the stack in transformers' model.
    """

    folder: Path
    updates: dict[str, LowRankUpdate]
    replacements: dict[str, torch.Tensor]
    stacks: dict[str, StackUpdate] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Compute the SHA-256 of the adapter's file, which identifies it in exported files."""
        return sha256_file(self.folder / WEIGHTS_FILE)

    @property
    def targets(self) -> set[str]:
        """Names of all base tensors that the adapter changes."""
        return {*self.updates, *self.replacements, *self.stacks}


def read_adapter(folder: Path) -> AdapterWeights:
    """Read a PEFT adapter folder.

    Args:
        folder: folder with adapter_config.json and adapter_model.safetensors.

    Raises:
        SetupError: The folder holds no adapter, or a damaged one.
        UsageError: This kind of adapter cannot be merged.
    """
    config = _config(folder)
    _check_mergeable(folder, config)
    modules: dict[str, dict[str, torch.Tensor]] = {}
    replacements: dict[str, torch.Tensor] = {}
    for name, tensor in _tensors(folder).items():
        path = name.removeprefix(PREFIX)
        module, part = _split(path)
        if part:
            modules.setdefault(module, {})[part] = tensor.float()
        else:
            replacements[path.replace(".base_layer.", ".")] = tensor.float()
    parameters = _parameters(folder, modules, config.target_parameters or [])
    updates: dict[str, LowRankUpdate] = {}
    stacks: dict[str, StackUpdate] = {}
    for module, parts in modules.items():
        parameter = parameters.get(module, "")
        if not parameter:
            updates[f"{module}.weight"] = _update(folder, module, parts, config)
        elif parameter.rpartition(".")[2] in _NESTED:
            stacks[parameter] = _stack_update(folder, parameter, parts, config)
        else:
            updates[parameter] = _update(folder, parameter, parts, config)
    return AdapterWeights(folder, updates, replacements, stacks)


def check_adapter(folder: Path) -> None:
    """Check that a folder holds a PEFT adapter, of any kind, and that its files can be read.

    Raises:
        SetupError: The folder holds no adapter, or a damaged one.
    """
    _config(folder)
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
    config = by_modules(json.loads(read_plain(path)))
    paths = {wrapper.module_name(module.removeprefix(PREFIX)) for module, part in map(_split, tensors) if part}
    names = sorted({module.rpartition(".")[2] for module in paths if module.startswith(wrapper.part)})
    inside = [rf"{re.escape(wrapper.part)}(.*\.)?({'|'.join(names)})"] if names else []
    outside = sorted(re.escape(module) for module in paths if not module.startswith(wrapper.part))
    # Other parts have modules of the same names. PEFT takes a string as a pattern for whole paths.
    config["target_modules"] = "|".join([*inside, *outside])
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def _config(folder: Path) -> Any:
    peft = import_peft()
    if not (folder / WEIGHTS_FILE).is_file():
        raise SetupError(f"{folder} holds no adapter ({WEIGHTS_FILE}).", "Check the run or folder given.")
    try:
        return peft.PeftConfig.from_pretrained(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(f"{CONFIG_FILE} in {folder} cannot be read: {error}.", "Save the adapter again.") from error


def _check_mergeable(folder: Path, config: Any) -> None:
    """Refuse adapters that change more than single weights by a product of two factors, or another base."""
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    odd = [name for name in _UNSUPPORTED if getattr(config, name, None)]
    start = str(getattr(config, "init_lora_weights", ""))
    if kind != "LORA" or odd or start.lower().startswith(_CHANGES_BASE):
        what = f"of the kind {kind}" if kind != "LORA" else f"using {', '.join(odd) or f'init_lora_weights = {start}'}"
        raise UsageError(
            f"The adapter in {folder} is {what}, which cannot be merged exactly.",
            "Merge it with the program that made it, or export the adapter itself.",
        )


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS_FILE
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise SetupError(f"{path} cannot be read: {error}.", "Use another checkpoint of the run.") from error
    if not tensors:
        raise SetupError(f"The adapter in {folder} holds no tensors.", "Use a finished run's adapter.")
    refuse_not_finite(folder, [name for name, value in tensors.items() if not bool(value.float().isfinite().all())])
    return tensors


def _split(path: str) -> tuple[str, str]:
    """Split `model.layers.0.self_attn.q_proj.lora_A.weight` into (module, "A"); the part of whole tensors is empty."""
    for marker, part in (("lora_embedding_", "E"), ("lora_magnitude_vector", "M"), ("lora_", "")):
        module, found, rest = path.rpartition(f".{marker}")
        if found:
            return module, part + rest.removesuffix(".weight").strip(".")
    return "", ""


def _parameters(folder: Path, modules: Collection[str], targets: Sequence[str]) -> dict[str, str]:
    """Map the wrappers of parameters, by their names in the file, to the parameters (PEFT's `target_parameters`).

    A wrapper takes the place of the parameter's module. If several parameters of a module are adapted, the wrapper of
    each is around that of the one before, whose name has one `.base_layer` more.

    Raises:
        UsageError: The order in which PEFT wrapped the parameters of a module is not known.
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


def _stack_update(folder: Path, parameter: str, parts: dict[str, torch.Tensor], config: Any) -> StackUpdate:
    a, b = _factors(folder, parameter, parts, ("A", "B"), others=())
    rank, scale = _rank_and_scale(folder, parameter, config)
    if len(a) % rank or b.shape[1] != len(a):
        raise SetupError(
            f"The adapter in {folder} has {len(a)} rows A and {b.shape[1]} columns B for {parameter}, which is not "
            f"rank {rank} for each expert.",
            "Save the adapter again.",
        )
    return StackUpdate(a, b, scale, rank)


def _update(folder: Path, module: str, parts: dict[str, torch.Tensor], config: Any) -> LowRankUpdate:
    embedding = "EA" in parts
    a, b = _factors(folder, module, parts, ("EA", "EB") if embedding else ("A", "B"), others=("M",))
    rank, scale = _rank_and_scale(folder, module, config)
    refuse_other_rank(folder, vars(config), module, len(a))
    if b.shape[1] != rank:
        raise SetupError(
            f"The adapter in {folder} has rank {rank} in A and {b.shape[1]} in B for {module}.",
            "Save the adapter again.",
        )
    return LowRankUpdate(a, b, scale, parts.get("M"), embedding)


def _factors(
    folder: Path, name: str, parts: dict[str, torch.Tensor], factors: tuple[str, str], *, others: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B.

    Args:
        folder: folder of the adapter, for errors.
        name: module or parameter that they change.
        parts: tensors of the adapter for it.
        factors: names of A and B among these.
        others: names of what may be there too.

    Raises:
        SetupError: One is missing or no matrix, or something else is there.
    """
    a, b = map(parts.get, factors)
    if a is None or b is None or a.ndim != 2 or b.ndim != 2 or parts.keys() - {*factors, *others}:
        shapes = ", ".join(f"{part} {list(tensor.shape)}" for part, tensor in sorted(parts.items()))
        raise SetupError(
            f"The adapter in {folder} has the parts {shapes} for {name}; matrices A and B are expected.",
            "Save the adapter again.",
        )
    return a, b


def _rank_and_scale(folder: Path, name: str, config: Any) -> tuple[int, float]:
    """Return the rank of a module or of each expert in a stack, and the factor on B·A.

    Raises:
        SetupError: The config has no such numbers.
    """
    said = vars(config)
    rank = setting_of(folder, said, "rank_pattern", name, config.r)
    alpha = setting_of(folder, said, "alpha_pattern", name, config.lora_alpha)
    if type(rank) is not int or rank < 1 or type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise SetupError(
            f"The adapter in {folder} has the rank {rank!r} and the alpha {alpha!r} for {name}.",
            f"Correct its {CONFIG_FILE}.",
        )
    return rank, alpha / (math.sqrt(rank) if config.use_rslora else rank)
