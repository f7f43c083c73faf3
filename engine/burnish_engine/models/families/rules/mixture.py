"""Read a mixture of experts from `config.json`: how many there are, which layers have them, and how they are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.facts.facts import ExpertSpec

COUNT_KEYS = ("num_experts", "num_local_experts")
"""Keys of config.json that give the number of experts, the first that is there."""
SLOT_KEYS = ("num_experts_per_tok", "top_k_experts")
"""Keys of config.json that give the number of a token's experts, the first that is there."""
MOST_EXPERTS = 4096
"""Most experts of a layer that are believed: a name is listed for each of their tensors."""


@dataclass(frozen=True)
class Mixture:
    """The rules by which a family's experts are read from config.json (transformers' modeling_*.py).

    Attributes:
        usual_count: number of experts where the config has none.
        size_key: key of an expert's width.
        fields: function from the config to the fields of `ExpertSpec` that are not the usual ones.
        layers: function from config and number of layers to which layers are mixtures.
        slots_key: key of the number of a token's experts.
        count: function from the config to the number of experts; None: the usual keys have it.
    """

    usual_count: int
    size_key: str = "intermediate_size"
    fields: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _config: {}
    layers: Callable[[Mapping[str, Any], int], list[bool]] = lambda _config, count: [True] * count
    slots_key: str = "num_experts_per_tok"
    count: Callable[[Mapping[str, Any]], int] | None = None

    @property
    def has_dense_width(self) -> bool:
        """Whether dense layers have a width of their own."""
        return self.size_key != "intermediate_size"

    def read(self, config: Mapping[str, Any], count: int) -> ExpertSpec | None:
        """Read the experts of a layer; None where there are none.

        Args:
            config: parsed `config.json` of the checkpoint, with its family's defaults for absent keys.
            count: number of experts.

        Raises:
            LookupError, TypeError, ValueError: Something is missing, odd, or not computed by Burnish.
        """
        if not count:
            return None
        slots = int(config[self.slots_key])
        if not 0 < slots <= count:
            raise ValueError(f"{slots} of {count} experts a token")
        if config.get("router_jitter_noise"):
            raise ValueError("a router with noise")
        usual: dict[str, Any] = {"router": "softmax_topk", "normalize": bool(config.get("norm_topk_prob", False))}
        return ExpertSpec(count=count, slots=slots, size=int(config[self.size_key]), **usual | self.fields(config))


def expert_count(config: Mapping[str, Any], usual: int = 0) -> int:
    """Return the number of experts of a layer; 0 where there are none.

    Args:
        config: parsed `config.json` of the checkpoint.
        usual: number where the config has none.

    Raises:
        TypeError, ValueError: The number is none, or absurd.
    """
    named = (config[key] for key in COUNT_KEYS if config.get(key) is not None)
    count = int(next(named, usual))
    if count > MOST_EXPERTS:
        raise ValueError(f"{count} experts")
    return count
