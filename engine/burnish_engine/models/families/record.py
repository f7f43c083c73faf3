"""The record of a model family, and which tensors of its checkpoints go where in the fast decoder. Loads no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Literal

from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec, RopeSpec
from burnish_engine.models.families.experts import (
    EXPERT_ROLES,
    USUAL_NAMES,
    ExpertNames,
    ExpertStack,
    StoredExperts,
    expert_stacks,
    router_and_biases,
    stored_experts,
)
from burnish_engine.models.families.matrices import (
    USUAL_MATRICES,
    MatrixNames,
    StackName,
    feed_forward_width,
    named_matrices,
    stack_of,
)
from burnish_engine.models.families.rules.config import USUAL_RULES, ConfigRules
from burnish_engine.models.families.rules.gguf import GgufRules

FP32_ROLES = frozenset({"selection_bias", "a_log", "dt_bias"})
"""Parameters that stay fp32 whatever the model computes in."""
NORM_ROLES = frozenset({"mixer_norm", "mlp_norm", "mixer_post_norm", "mlp_post_norm", "final_norm"})
"""Places of the norms around mixers and feed-forwards."""
LAYER_ROLES = frozenset({"layer_scale", "per_layer_gate", "per_layer_projection", "per_layer_norm"})
"""Parameters of a layer behind its feed-forward: those of its own input, and what multiplies its output (Gemma 4)."""
PER_LAYER_ROLES = frozenset({"per_layer_inputs", "per_layer_inputs_norm"})
"""Parameters that make the inputs of all layers' own out of the embeddings."""
XIELU_ROLES = ("alpha_p", "alpha_n", "beta", "eps")
"""Names of xIELU's parameters and constants in transformers' `XIELUActivation`."""
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "xielu": "xielu", "relu2": "relu2",
}  # fmt: skip
"""Activation of config.json to the name of the activation that computes it."""
_UNGATED = frozenset({"xielu", "relu2"})
"""Activations of feed-forwards without a gate; all others have one."""
LARGEST_HEAD, MOST_TAPS = 512, 16
DELTA_HEADS = (16, 32, 64, 128)
"""Sizes of key and value heads that the kernels of gated delta nets are made for (`delta_rule.op.HEAD_SIZES`)."""
NF4_BLOCK = 64
"""Values that share a scale in NF4; the inputs of an expert's maps are multiples of it."""
LANGUAGE_MODEL = "model.language_model."
"""Usual path of a language model inside transformers' class of a model with more parts."""


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
        peft_converts: same as of its family.
    """

    path: str
    layer: int
    stack: StackName
    first_row: int
    rows: int
    columns: int
    bias: bool
    peft_converts: bool = False


@dataclass(frozen=True)
class Vector:
    """A parameter beside the linear modules, such as the weight of a norm.

    Attributes:
        name: name of the tensor.
        layer: number of the decoder layer; None for the norm before the head.
        role: place of the norm in the layer (`NORM_ROLES`), part of its experts (`EXPERT_ROLES`), of its activation
            (`XIELU_ROLES`) or of what follows (`LAYER_ROLES`, `PER_LAYER_ROLES`), or name that the layer's mixer gives
            it.
        shape: dimensions.
        is_fp32: whether it stays fp32 whatever the model computes in.
    """

    name: str
    layer: int | None
    role: str
    shape: tuple[int, ...]
    is_fp32: bool = False

    @property
    def part(self) -> Literal["norms", "experts", "activation", "layer", "mixer"]:
        """Part of the layer that it belongs to."""
        if self.role in LAYER_ROLES | PER_LAYER_ROLES:
            return "layer"
        if self.role in NORM_ROLES:
            return "norms"
        return "experts" if self.role in EXPERT_ROLES else "activation" if self.role in XIELU_ROLES else "mixer"


@dataclass(frozen=True)
class Family:
    """The record of one family: how its config is read, its tensors' names, its GGUF, and which engines train it.

    The defaults are Llama's names, which most families share.

    Attributes:
        model_type: `model_type` of config.json.
        config: how config.json is read.
        wrappers: `model_type` of models that hold a language model of this family beside other parts, and its path in
            transformers' class, with the dot behind it.
        gguf: how its models become GGUFs; None where they cannot.
        mixer_norm: name of the norm before attention, or what else mixes tokens.
        mlp_norm: name of the norm before the feed-forward.
        mixer_post_norm: name of the norm after attention, where the family has one.
        mlp_post_norm: name of the norm after the feed-forward, where the family has one.
        q_norm: name of the norm of queries, where the family has one.
        k_norm: name of the norm of keys, where the family has one.
        final_norm: name of the norm before the head.
        stored_names: last part of a module's name, and the one in the checkpoint's files where it differs.
        matrix_names: names of a layer's matrices in transformers' model.
        expert_names: names of experts in the checkpoint's files.
        peft_converts: whether PEFT takes linear layers of its models for experts' maps (`saved_adapters.peft_form`).
        slow: function from a specification to why the fast decoder does not do some of its models, completing "The
            model ..."; empty where it does.
        own_attention: whether it was tried with Burnish's attention kernels on the plain engine, with the same results.
        softmax_in_fp32: whether the softmax is in fp32 where transformers has no fused attention (`_supports_sdpa`),
            which saves a number for each head and pair of tokens; None: attention is fused.
    """

    model_type: str
    config: ConfigRules = USUAL_RULES
    wrappers: Mapping[str, str] = field(default_factory=dict)
    gguf: GgufRules | None = None
    mixer_norm: str = "input_layernorm"
    mlp_norm: str = "post_attention_layernorm"
    mixer_post_norm: str = ""
    mlp_post_norm: str = ""
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    final_norm: str = "norm"
    stored_names: tuple[tuple[str, str], ...] = ()
    matrix_names: MatrixNames = USUAL_MATRICES
    expert_names: ExpertNames = USUAL_NAMES
    peft_converts: bool = False
    slow: Callable[[DecoderSpec], str] = lambda _spec: ""
    own_attention: bool = False
    softmax_in_fp32: bool | None = None

    @property
    def embedding_path(self) -> str:
        """Name of the embedding's tensor, [vocabulary, hidden]."""
        return "model.embed_tokens.weight"

    def per_layer_path(self, spec: DecoderSpec) -> str | None:
        """Return the name of the table of all layers' own inputs, [its rows, layers x numbers]; None: there is none."""
        return "model.embed_tokens_per_layer.weight" if spec.per_layer_size else None

    def head_path(self, spec: DecoderSpec) -> str | None:
        """Return the name of the head's tensor, [vocabulary, hidden]; None where it is the embedding."""
        return None if spec.tied_embeddings else "lm_head.weight"

    def layer_matrices(self, spec: DecoderSpec, layer: LayerSpec) -> tuple[Matrix, ...]:
        """Return the matrices of a layer in the model's order: those counted on the built model, else the family's."""
        return named_matrices(spec, layer, self.matrix_names)

    def modules(self, spec: DecoderSpec) -> list[Module]:
        """Return every linear module, layer by layer, in the model's order."""
        return [module for layer in range(spec.num_layers) for module in self._layer_modules(spec, layer)]

    def vectors(self, spec: DecoderSpec) -> list[Vector]:
        """Return every parameter beside the linear modules, layer by layer, those of no layer last."""
        found = [vector for layer in range(spec.num_layers) for vector in self._layer_vectors(spec, layer)]
        if spec.per_layer_size:
            size = spec.per_layer_size
            shape = (spec.num_layers * size, spec.hidden_size)
            found.append(Vector("model.per_layer_model_projection.weight", None, "per_layer_inputs", shape))
            found.append(Vector("model.per_layer_projection_norm.weight", None, "per_layer_inputs_norm", (size,)))
        return [*found, Vector(f"model.{self.final_norm}.weight", None, "final_norm", (spec.hidden_size,))]

    def expert_stacks(self, spec: DecoderSpec, layer: int) -> list[ExpertStack]:
        """Return the stacks of a layer's experts, "gate_up" before "down"; none of a dense layer."""
        return expert_stacks(spec, layer, self.layer_matrices(spec, spec.layers[layer]))

    def all_expert_stacks(self, spec: DecoderSpec) -> list[ExpertStack]:
        """Return the stacks of all layers, layer by layer."""
        return [stack for layer in range(spec.num_layers) for stack in self.expert_stacks(spec, layer)]

    def stored_experts(self, spec: DecoderSpec, stack: ExpertStack, stored: Container[str] = ()) -> StoredExperts:
        """Return how a checkpoint holds a stack of experts.

        Args:
            spec: specification of the model.
            stack: stack of the decoder.
            stored: names of the checkpoint's tensors; without them, the form that the family is published in.
        """
        return stored_experts(stack, spec, self.expert_names, stored)

    def tensors(self, spec: DecoderSpec, stored: Container[str] = ()) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every tensor that the decoder reads.

        Args:
            spec: specification of the model.
            stored: names of the checkpoint's tensors, as in `stored_experts`.
        """
        matrix = (spec.vocab_size, spec.hidden_size)
        shapes: dict[str, tuple[int, ...]] = {self.embedding_path: matrix}
        head = self.head_path(spec)
        if head is not None:
            shapes[head] = matrix
        table = self.per_layer_path(spec)
        if table is not None:
            shapes[table] = (spec.per_layer_vocab, spec.num_layers * spec.per_layer_size)
        for module in self.modules(spec):
            path = self.stored_path(module.path)
            shapes[f"{path}.weight"] = (module.rows, module.columns)
            if module.bias:
                shapes[f"{path}.bias"] = (module.rows,)
        for stack in self.all_expert_stacks(spec):
            shapes |= self.stored_experts(spec, stack, stored).tensors
        return shapes | {vector.name: vector.shape for vector in self.vectors(spec)}

    def stored_path(self, path: str) -> str:
        """Return a module's name in the checkpoint's files."""
        parent, _, last = path.rpartition(".")
        return f"{parent}.{dict(self.stored_names).get(last, last)}"

    def supported(self, spec: DecoderSpec) -> str:
        """Explain why the fast decoder does not do this model; empty where it does.

        The text completes "The model ...", such as "uses yarn rope".
        """
        scaled, post_or_none = spec.residual_scale != 1.0, spec.sandwich_norms or not spec.pre_norms
        reasons = [
            (f"has convolutions of {spec.conv_width} tokens", spec.conv_width > MOST_TAPS),
            ("is a mixture of experts of a kind Burnish does not know", spec.num_experts > 0 and spec.experts is None),
            (
                "clips its queries and keys without norms before",
                spec.attention_clip is not None and not spec.qk_norm_whole,
            ),
            (
                "stretches its rope before norms",
                spec.qk_norm_after and any(one.attention_factor != 1 for one in _ropes(spec)),
            ),
            ("attends to later tokens", not spec.causal),
            (
                f"uses the activation {spec.activation!r}{'' if spec.mlp_gate else ' without a gate'}",
                spec.activation not in ACTIVATIONS or (spec.activation in _UNGATED) == spec.mlp_gate,
            ),
            *((f"has heads of {one} numbers", one > LARGEST_HEAD or one % 8 != 0) for one in _head_sizes(spec)),
            *((f"has gated delta heads of {one} numbers", one not in DELTA_HEADS) for one in _delta_heads(spec)),
            (
                "has query heads that do not share out over its key heads",
                any(spec.num_heads % (layer.kv_heads or spec.num_kv_heads) for layer in spec.layers),
            ),
            ("has biases in its feed-forward", spec.mlp_bias),
            ("has sizes that are no multiples of 8", any(size % 8 for size in (spec.hidden_size, *_widths(spec)))),
            (f"has experts whose sizes are no multiples of {NF4_BLOCK}", _has_odd_experts(spec)),
            ("scales its residual stream between other norms than its first", scaled and post_or_none),
            *((f"uses {rope.scaling} rope", rope.scaling == "dynamic") for rope in _ropes(spec)),
            ("has longrope without its factors", spec.rope.scaling == "longrope" and not spec.rope.short_factor),
            *(("rotates an odd share of each head", rotary_dim(rope.partial, spec) % 2 != 0) for rope in _ropes(spec)),
        ]
        return next((reason for reason, holds in reasons if holds), self.slow(spec))

    def _layer_modules(self, spec: DecoderSpec, index: int) -> list[Module]:
        layer, found, rows = spec.layers[index], [], Counter[StackName]()
        for matrix in self.layer_matrices(spec, layer):
            if matrix.form != "linear":
                continue
            stack, path = stack_of(matrix), f"model.layers.{index}.{matrix.name}"
            bias = _has_bias(spec, layer, stack) and not matrix.name.endswith(".g_proj")  # gates have none
            found.append(Module(path, index, stack, rows[stack], matrix.rows, matrix.columns, bias, self.peft_converts))
            rows[stack] += matrix.rows
        return found

    def _layer_vectors(self, spec: DecoderSpec, index: int) -> list[Vector]:
        prefix, hidden = f"model.layers.{index}", spec.hidden_size

        def vector(path: str, role: str, *shape: int) -> Vector:
            return Vector(f"{prefix}.{path}", index, role, shape, is_fp32=role in FP32_ROLES)

        found = []
        if spec.pre_norms:
            found.append(vector(f"{self.mixer_norm}.weight", "mixer_norm", hidden))
            found.append(vector(f"{self.mlp_norm}.weight", "mlp_norm", hidden))
        found += [vector(path, role, *shape) for path, role, shape in self._mixer_vectors(spec, spec.layers[index])]
        matrices = self.layer_matrices(spec, spec.layers[index])
        for role, (name, shape) in router_and_biases(spec, index, matrices, self.expert_names).items():
            found.append(Vector(name, index, role, shape, is_fp32=role in FP32_ROLES))
        if spec.activation == "xielu" and not spec.mlp_gate:
            sizes = {"alpha_p": (1,), "alpha_n": (1,)}
            found += [vector(f"mlp.act_fn.{role}", role, *sizes.get(role, ())) for role in XIELU_ROLES]
        if spec.sandwich_norms:
            found.append(vector(f"{self.mixer_post_norm}.weight", "mixer_post_norm", hidden))
            found.append(vector(f"{self.mlp_post_norm}.weight", "mlp_post_norm", hidden))
        if spec.layer_scale:
            found.append(vector("layer_scalar", "layer_scale", 1))
        if spec.per_layer_size:
            found.append(vector("per_layer_input_gate.weight", "per_layer_gate", spec.per_layer_size, hidden))
            found.append(vector("per_layer_projection.weight", "per_layer_projection", hidden, spec.per_layer_size))
            found.append(vector("post_per_layer_input_norm.weight", "per_layer_norm", hidden))
        return found

    def _mixer_vectors(self, spec: DecoderSpec, layer: LayerSpec) -> list[tuple[str, str, tuple[int, ...]]]:
        """Return path below the layer, role and shape of the parameters of a layer's mixer."""
        kind, spec = layer.kind, spec.of_layer(layer)
        if kind == "short_convolution":
            found: list[tuple[str, str, tuple[int, ...]]] = [
                ("conv.conv.weight", "conv_weight", (spec.hidden_size, 1, spec.conv_width))
            ]
            return [*found, ("conv.conv.bias", "conv_bias", (spec.hidden_size,))] if spec.conv_bias else found
        if kind == "gated_delta":
            delta = spec.delta
            assert delta is not None
            return [
                ("linear_attn.conv1d.weight", "conv_weight", (delta.convolved, 1, spec.conv_width)),
                ("linear_attn.A_log", "a_log", (delta.value_heads,)),
                ("linear_attn.dt_bias", "dt_bias", (delta.value_heads,)),
                ("linear_attn.norm.weight", "delta_norm", (delta.value_dim,)),
            ]
        found = []
        if spec.qk_norm:
            query, key = (spec.num_heads, spec.num_kv_heads) if spec.qk_norm_whole else (1, 1)
            found.append((f"self_attn.{self.q_norm}.weight", "q_norm", (query * spec.head_dim,)))
            if layer.keys != "borrowed":
                found.append((f"self_attn.{self.k_norm}.weight", "k_norm", (key * spec.head_dim,)))
        return [*found, ("self_attn.sinks", "sinks", (spec.num_heads,))] if spec.attention_sinks else found


def _has_bias(spec: DecoderSpec, layer: LayerSpec, stack: StackName) -> bool:
    """Return whether the linear modules of a stack have biases."""
    if stack in {"gate_up", "down"}:
        return spec.mlp_bias
    if not layer.attends:
        return spec.conv_bias
    return spec.attention_bias if stack == "mixer_in" else spec.attention_output_bias


def rotary_dim(partial: float, spec: DecoderSpec) -> int:
    """Return how many numbers of each head are rotated, with transformers' rounding."""
    return int(spec.head_dim * partial)


def _head_sizes(spec: DecoderSpec) -> set[int]:
    return {spec.of_layer(layer).head_dim for layer in spec.layers}


def _delta_heads(spec: DecoderSpec) -> tuple[int, ...]:
    return () if spec.delta is None else (spec.delta.key_dim, spec.delta.value_dim)


def _widths(spec: DecoderSpec) -> set[int]:
    shared = spec.experts.shared_size if spec.experts is not None else 0
    return {shared, *(feed_forward_width(spec, layer) for layer in spec.layers)}


def _has_odd_experts(spec: DecoderSpec) -> bool:
    return spec.experts is not None and any(size % NF4_BLOCK for size in (spec.hidden_size, spec.experts.size))


def _ropes(spec: DecoderSpec) -> list[RopeSpec]:
    return [spec.rope] if spec.local_rope is None else [spec.rope, spec.local_rope]
