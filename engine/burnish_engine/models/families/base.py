"""Describe a family to the fast decoder: which tensors of a checkpoint go where in its stacked matrices. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from burnish_engine.contract.facts.facts import DecoderSpec, RopeSpec

Stack = Literal["mixer_in", "mixer_out", "gate_up", "down"]
Role = Literal["mixer_norm", "mlp_norm", "mixer_post_norm", "mlp_post_norm", "q_norm", "k_norm", "final_norm"]
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
}  # fmt: skip
"""Activation of config.json to the name of the gated activation that computes it."""
LARGEST_HEAD = 256


@dataclass(frozen=True)
class Module:
    """One linear module of the checkpoint and its place in a stacked matrix.

    Attributes:
        path: name of the module, such as `model.layers.3.self_attn.k_proj`; `.weight` and `.bias` are its tensors.
        layer: number of the decoder layer.
        stack: stacked matrix of that layer which holds it.
        first_row: row of the stacked matrix where it begins.
        rows: number of outputs.
        columns: number of inputs.
        bias: whether it has a bias of `rows` numbers.
    """

    path: str
    layer: int
    stack: Stack
    first_row: int
    rows: int
    columns: int
    bias: bool


@dataclass(frozen=True)
class Vector:
    """The weight of one norm.

    Attributes:
        path: name of the module; the tensor is `path.weight`.
        layer: number of the decoder layer; None for the norm before the head.
        role: position of the norm in the layer.
        size: number of elements.
    """

    path: str
    layer: int | None
    role: Role
    size: int

    @property
    def is_of_mixer(self) -> bool:
        """Whether it is a parameter of what mixes tokens, such as attention."""
        return self.role in {"q_norm", "k_norm"}


@dataclass(frozen=True)
class Family:
    """The tensor names of one family, and the features that the fast decoder lacks for it.

    The defaults are Llama's names, which most families share.

    Attributes:
        model_type: `model_type` of config.json.
        mlp_norm: Name of the norm before the feed-forward.
        mixer_post_norm: Name of the norm after attention, where the family has one.
        mlp_post_norm: Name of the norm after the feed-forward, where the family has one.
    """

    model_type: str
    mlp_norm: str = "post_attention_layernorm"
    mixer_post_norm: str = ""
    mlp_post_norm: str = ""

    @property
    def embedding_path(self) -> str:
        """Name of the embedding's tensor, [vocabulary, hidden]."""
        return "model.embed_tokens.weight"

    def head_path(self, spec: DecoderSpec) -> str | None:
        """Return the name of the head's tensor, [vocabulary, hidden]; None where it is the embedding."""
        return None if spec.tied_embeddings else "lm_head.weight"

    def modules(self, spec: DecoderSpec) -> list[Module]:
        """Return every linear module, layer by layer, in the order of `Stack`."""
        return [module for layer in range(spec.num_layers) for module in self._layer_modules(spec, layer)]

    def vectors(self, spec: DecoderSpec) -> list[Vector]:
        """Return every norm's weight, layer by layer, the final norm last."""
        found = [vector for layer in range(spec.num_layers) for vector in self._layer_vectors(spec, layer)]
        return [*found, Vector("model.norm", None, "final_norm", spec.hidden_size)]

    def tensors(self, spec: DecoderSpec) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every tensor that the decoder reads."""
        matrix = (spec.vocab_size, spec.hidden_size)
        shapes: dict[str, tuple[int, ...]] = {self.embedding_path: matrix}
        head = self.head_path(spec)
        if head is not None:
            shapes[head] = matrix
        for module in self.modules(spec):
            shapes[f"{module.path}.weight"] = (module.rows, module.columns)
            if module.bias:
                shapes[f"{module.path}.bias"] = (module.rows,)
        return shapes | {f"{vector.path}.weight": (vector.size,) for vector in self.vectors(spec)}

    def supported(self, spec: DecoderSpec) -> str:
        """Explain why the fast decoder does not do this model; empty where it does.

        The text completes "The model ...", such as "uses yarn rope".
        """
        reasons = [
            ("has short convolutions", any(layer.kind == "short_convolution" for layer in spec.layers)),
            ("is a mixture of experts", spec.num_experts > 0),
            ("attends to later tokens", not spec.causal),
            (f"uses the activation {spec.activation!r}", spec.activation not in ACTIVATIONS),
            (f"has heads of {spec.head_dim} numbers", spec.head_dim > LARGEST_HEAD or spec.head_dim % 8 != 0),
            ("has query heads that do not share out over its key heads", spec.num_heads % spec.num_kv_heads != 0),
            ("has biases in its feed-forward", spec.mlp_bias),
            ("has sizes that are no multiples of 8", spec.hidden_size % 8 != 0 or spec.intermediate_size % 8 != 0),
            *((f"uses {rope.scaling} rope", rope.scaling in {"yarn", "dynamic"}) for rope in _ropes(spec)),
            ("has longrope without its factors", spec.rope.scaling == "longrope" and not spec.rope.short_factor),
            *(("rotates an odd share of each head", rotary_dim(rope.partial, spec) % 2 != 0) for rope in _ropes(spec)),
        ]
        return next((reason for reason, holds in reasons if holds), "")

    def _layer_modules(self, spec: DecoderSpec, layer: int) -> list[Module]:
        prefix = f"model.layers.{layer}"
        query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        hidden, wide = spec.hidden_size, spec.intermediate_size
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        inputs = [
            Module(f"{attention}.q_proj", layer, "mixer_in", 0, query, hidden, spec.attention_bias),
            Module(f"{attention}.k_proj", layer, "mixer_in", query, key, hidden, spec.attention_bias),
            Module(f"{attention}.v_proj", layer, "mixer_in", query + key, key, hidden, spec.attention_bias),
        ]
        gates = [
            Module(f"{mlp}.gate_proj", layer, "gate_up", 0, wide, hidden, spec.mlp_bias),
            Module(f"{mlp}.up_proj", layer, "gate_up", wide, wide, hidden, spec.mlp_bias),
        ]
        if spec.fused_projections:
            rows = query + 2 * key
            inputs = [Module(f"{attention}.qkv_proj", layer, "mixer_in", 0, rows, hidden, spec.attention_bias)]
            gates = [Module(f"{mlp}.gate_up_proj", layer, "gate_up", 0, 2 * wide, hidden, spec.mlp_bias)]
        output = Module(f"{attention}.o_proj", layer, "mixer_out", 0, hidden, query, spec.attention_output_bias)
        return [*inputs, output, *gates, Module(f"{mlp}.down_proj", layer, "down", 0, hidden, wide, spec.mlp_bias)]

    def _layer_vectors(self, spec: DecoderSpec, layer: int) -> list[Vector]:
        prefix = f"model.layers.{layer}"
        hidden, head = spec.hidden_size, spec.head_dim
        found = [
            Vector(f"{prefix}.input_layernorm", layer, "mixer_norm", hidden),
            Vector(f"{prefix}.{self.mlp_norm}", layer, "mlp_norm", hidden),
        ]
        if spec.qk_norm:
            found.append(Vector(f"{prefix}.self_attn.q_norm", layer, "q_norm", head))
            found.append(Vector(f"{prefix}.self_attn.k_norm", layer, "k_norm", head))
        if spec.sandwich_norms:
            found.append(Vector(f"{prefix}.{self.mixer_post_norm}", layer, "mixer_post_norm", hidden))
            found.append(Vector(f"{prefix}.{self.mlp_post_norm}", layer, "mlp_post_norm", hidden))
        return found


def rotary_dim(partial: float, spec: DecoderSpec) -> int:
    """Return how many numbers of each head are rotated, with transformers' rounding."""
    return int(spec.head_dim * partial)


def _ropes(spec: DecoderSpec) -> list[RopeSpec]:
    return [spec.rope] if spec.local_rope is None else [spec.rope, spec.local_rope]
