"""Describe how a family's `config.json` is read, and read what many families share.

The meaning of a key, and the default where it is absent, are those of transformers 5: its configuration_*.py has the
defaults and older spellings, its modeling_*.py shows which keys a family really uses. All functions raise LookupError,
TypeError, ValueError or ArithmeticError for what they do not understand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish_engine.contract.facts.facts import LayerKind
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, usual_ropes

Config = Mapping[str, Any]
"""A checkpoint's config.json, with its family's defaults for absent keys."""
KindsReader = Callable[[Config, int, int | None], list[LayerKind]]
"""Function from the config, the number of layers and the window to the kind of each layer."""

_LAYER_KINDS: dict[str, LayerKind] = {
    "full_attention": "attention", "sliding_attention": "sliding_attention", "conv": "short_convolution",
    "attention": "attention",
}  # fmt: skip
NO_BIASES = {"attention_bias": False, "attention_output_bias": False}
"""Fields of a family whose attention has no biases, whatever the config's attention_bias is."""


def mlp_bias(config: Config) -> dict[str, bool]:
    """Read whether the feed-forward has biases, which few families look at."""
    return {"mlp_bias": bool(config.get("mlp_bias", False))}


def all_attention(_config: Config, count: int, _window: int | None) -> list[LayerKind]:
    """Return layers of attention without windows, as families have that know no window."""
    return ["attention"] * count


def window_everywhere(_config: Config, count: int, window: int | None) -> list[LayerKind]:
    """Return layers that all have the window, where there is one."""
    return ["attention" if window is None else "sliding_attention"] * count


def window_by_pattern(config: Config, count: int, _window: int | None) -> list[LayerKind]:
    """Return layers of which each n-th, by `sliding_window_pattern`, has no window."""
    pattern = size(config, "sliding_window_pattern")
    return ["attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(count)]


def listed_or(usual: KindsReader) -> KindsReader:
    """Make a reader of `layer_types`, which takes the usual kinds where the config does not list them."""

    def read(config: Config, count: int, window: int | None) -> list[LayerKind]:
        types = config.get("layer_types")
        return usual(config, count, window) if types is None else kinds_of(types, count)

    return read


def kinds_of(types: Sequence[str], count: int) -> list[LayerKind]:
    """Return the kinds of so many layers, from transformers' names of them."""
    return [_LAYER_KINDS[types[i]] for i in range(count)]


def usual_width(config: Config, experts: int) -> int:
    """Read the width of a feed-forward; in a mixture that of one expert."""
    is_apart = experts and config.get("moe_intermediate_size")
    return size(config, "moe_intermediate_size" if is_apart else "intermediate_size")


def dense_width(config: Config, _experts: int) -> int:
    """Read the width of a feed-forward, which has the same key in a mixture."""
    return size(config, "intermediate_size")


usual_kinds = listed_or(all_attention)
"""Reader of `layer_types`, without which all layers attend without windows."""


@dataclass(frozen=True)
class ConfigRules:
    """The rules by which the config.json of a family is read. The defaults fit a family that Burnish does not know.

    Attributes:
        defaults: values of absent keys.
        fields: function from the config to the fields of `DecoderSpec` that are not the usual ones.
        layer_kinds: reader of each layer's kind.
        rotates: function from config and number of layers to which of them rotate queries and keys.
        layer_fields: function from config and kinds of the layers to fields of each one's `LayerSpec`.
        ropes: function from config, size of a head and longest context to the ropes.
        window_on_request: whether the window counts only with `use_sliding_window`.
        width: function from config and number of experts to the width of a feed-forward, or of one expert.
        mixture: how its experts are read; None for dense families.
        norm_eps_key: key of the norms' epsilon.
        activation_key: key of the activation; empty where it is always the same.
        heads_divide_width: whether transformers wants hidden_size to be a multiple of the heads although head_dim is
            given.
        part_sizes: vocab_size, hidden_size, intermediate_size, num_hidden_layers and num_attention_heads that a
            text_config may leave out, since transformers writes only what differs there.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    fields: Callable[[Config], dict[str, Any]] = lambda _config: {}
    layer_kinds: KindsReader = usual_kinds
    rotates: Callable[[Config, int], list[bool]] = lambda _config, count: [True] * count
    layer_fields: Callable[[Config, Sequence[LayerKind]], list[dict[str, Any]]] = lambda _config, kinds: (
        [{}] * len(kinds)
    )
    ropes: Callable[[Config, int, int], Ropes] = usual_ropes
    window_on_request: bool = False
    width: Callable[[Config, int], int] = usual_width
    mixture: Mixture | None = None
    norm_eps_key: str = "rms_norm_eps"
    activation_key: str = "hidden_act"
    heads_divide_width: bool = False
    part_sizes: tuple[int, ...] = ()

    def window(self, config: Config) -> int | None:
        """Read how many tokens a windowed layer sees, itself included (transformers' `sliding_window_overlay`)."""
        unasked = self.window_on_request and not config.get("use_sliding_window")
        return None if config.get("sliding_window") is None or unasked else size(config, "sliding_window")


USUAL_RULES = ConfigRules()
"""The rules for a family that Burnish does not know."""


def size(config: Config, key: str, most: int = 2**31) -> int:
    """Read a whole number between 1 and `most`."""
    found = int(config[key])
    if not 0 < found <= most:
        raise ValueError(f"{key} is {found}")
    return found


def number(config: Config, key: str) -> float | None:
    """Read a number that may be absent."""
    value = config.get(key)
    return None if value is None else float(value)


def positive(config: Config, key: str) -> float:
    """Read a number above 0."""
    value = float(config[key])
    if not value > 0.0:
        raise ValueError(f"{key} is {value}")
    return value
