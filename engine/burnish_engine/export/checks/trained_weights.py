"""Compute the trained model's weights a second time, independently of the writer, one tensor in memory at a time.

A fault in `adapter.py` or in the merge must not hide itself, so this module reads the adapter's files itself and adds
them by the plain formula of each method (Hu et al. 2021 for LoRA, Kalajdzievski 2023 for rsLoRA, Liu et al. 2024 for
DoRA).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.files import read_plain
from burnish_engine.export.checks.trained_experts import TrainedExperts
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.saved_adapters.name_patterns import is_named

_ROUTERS = {"mixtral": "block_sparse_moe"}
_PART = re.compile(r"^(?P<module>.+)\.(?P<part>lora_embedding_[AB]|lora_[AB]|lora_magnitude_vector)(?:\.weight)?$")
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class Origin:
    """Base and adapter that a file claims to be made from."""

    source: ModelSource  # The base model
    adapter: Path | None  # folder of the PEFT adapter, or None
    rounded: frozenset[str] = frozenset()  # Base tensors that were rounded to NF4 and back before the adapter was added


class TrainedWeights:
    """Read tensors of the trained model on demand.

    Args:
        origin: base model and adapter.

    Attributes:
        experts: experts of a mixture.

    Raises:
        UsageError: The base is quantized.
        SetupError: A file is missing or damaged.
    """

    def __init__(self, origin: Origin) -> None:
        self._base = MergedWeights(origin.source, None, origin.rounded)
        self._config: dict[str, Any] = {}
        self._updates: dict[str, dict[str, torch.Tensor]] = {}
        self._replaced: dict[str, torch.Tensor] = {}
        self._rows: dict[str, torch.Tensor] = {}
        self._biases: dict[str, torch.Tensor] = {}
        if origin.adapter is not None:
            self._read_adapter(origin.adapter)
        spec = origin.source.spec
        self.has_own_head = bool(spec and not spec.tied_embeddings) or self._splits_tables()
        self.experts = TrainedExperts(self._base, spec.experts if spec else None, self._updates, self._scale)

    @property
    def names(self) -> list[str]:
        """Names of the base checkpoint's tensors, and of a head that only the trained model has."""
        names = self._base.names
        return [*names, _HEAD] if self.has_own_head and _HEAD not in names else names

    @property
    def drafts(self) -> list[str]:
        """Names of the checkpoint's tensors for multi-token prediction, which no training changes."""
        return [name for name in self._base.others if name.startswith("mtp.")]

    def is_changed(self, name: str) -> bool:
        """Whether the adapter changes a tensor, so that rounding in fp32 can differ from the writer's."""
        return name in self._updates or name in self._biases

    def load(self, name: str) -> torch.Tensor:
        """Load a tensor of the trained model in fp32, in the shape of the base checkpoint.

        Args:
            name: name in the base checkpoint.
        """
        if name in self._replaced:
            weight = self._replaced[name]
        else:
            lacks_head = name == _HEAD and name not in self._base.names
            weight = self._base.load(_EMBEDDING if lacks_head else name)
        if parts := self._updates.get(name):
            weight = self._updated(name.removesuffix(".weight"), weight, parts)
        if name in self._biases:
            weight = weight + self._biases[name] * self._scale(name.removesuffix(".bias"))
        if name in self._rows:
            weight = weight.clone()
            weight[self._tokens(name)] = self._rows[name]
        return weight

    def _read_adapter(self, folder: Path) -> None:
        from safetensors.torch import load_file

        self._folder = folder
        self._config = json.loads(read_plain(folder / "adapter_config.json"))
        for stored, tensor in load_file(folder / "adapter_model.safetensors").items():
            name = stored.removeprefix("base_model.model.")
            if name.endswith((".embed_tokens.base_layer.weight", "lm_head.base_layer.weight")):
                continue  # a copy of the base's
            if name.endswith(".token_adapter.trainable_tokens_delta"):
                self._rows[name.replace(".token_adapter.trainable_tokens_delta", ".weight")] = tensor.float()
            elif name.endswith(".lora_B.bias"):
                self._biases[name.replace(".lora_B.bias", ".bias")] = tensor.float()
            elif match := _PART.match(self._in_files(name)):
                self._updates.setdefault(f"{match['module']}.weight", {})[match["part"]] = tensor.float()
            else:
                self._replaced[name.replace(".base_layer.", ".")] = tensor.float()

    def _splits_tables(self) -> bool:
        """Whether the adapter changes embedding and head otherwise, where the base has one tensor for both."""
        changed = {_EMBEDDING, _HEAD} & {*self._updates, *self._replaced}
        if self._config.get("ensure_weight_tying"):
            return False
        return bool(changed) or _HEAD in self._rows

    def _tokens(self, name: str) -> list[int]:
        """The tokens whose rows of a table are trained."""
        said = self._config["trainable_token_indices"]
        if isinstance(said, dict):
            said = next(tokens for module, tokens in said.items() if name.removesuffix(".weight").endswith(module))
        return [int(token) for token in said]

    def _in_files(self, name: str) -> str:
        """Return the name of a router's tensor as the files have it: transformers calls Mixtral's otherwise."""
        place = _ROUTERS.get(str(self._base.source.config.get("model_type")), "mlp")
        return name.replace(".mlp.gate.", f".{place}.gate.")

    def _updated(self, module: str, weight: torch.Tensor, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        if "lora_embedding_A" in parts:
            low_rank = (parts["lora_embedding_B"] @ parts["lora_embedding_A"]).T
        else:
            low_rank = parts["lora_B"] @ parts["lora_A"]
        updated = weight + low_rank.mul_(self._scale(module))
        if (length := parts.get("lora_magnitude_vector")) is not None:
            table = "lora_embedding_A" in parts
            updated *= (
                (length / updated.norm(dim=0, keepdim=True)) if table else (length / updated.norm(dim=1))[:, None]
            )
        return updated

    def _scale(self, module: str) -> float:
        """Scale of the update: alpha / r, or alpha / sqrt(r) for rsLoRA."""
        rank = self._setting("rank_pattern", "r", module)
        alpha = self._setting("alpha_pattern", "lora_alpha", module)
        return alpha / (math.sqrt(rank) if self._config.get("use_rslora") else rank)

    def _setting(self, patterns: str, usual: str, module: str) -> float:
        """Look up a module's own value where a pattern names it (peft/utils/other.py, `get_pattern_key`)."""
        for pattern, value in (self._config.get(patterns) or {}).items():
            if is_named(self._folder, patterns, pattern, module, end=True):
                return float(value)
        return float(self._config[usual])
