"""The matrices of a decoder layer by their names in transformers' model, from a specification. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.facts import DecoderSpec, DeltaSpec, LayerKind, LayerSpec

StackName = Literal["mixer_in", "mixer_out", "gate_up", "down"]
STACK_NAMES: tuple[StackName, ...] = get_args(StackName)
"""The stacked matrices of a layer in the fast decoder, in the order in which they are used; "gate_up" is up alone where
the feed-forward has no gate."""
DELTA_INPUTS = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
"""Input projections of a gated delta net, in the order in which the fast decoder stacks them."""
_STACKS: dict[StackName, frozenset[str]] = {
    "mixer_in": frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "in_proj", "g_proj", *DELTA_INPUTS}),
    "mixer_out": frozenset({"o_proj", "out_proj"}),
    "gate_up": frozenset({"gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "input_linear"}),
    "down": frozenset({"down_proj", "w2", "output_linear"}),
}
ROUTER = "router"
"""Kind of the matrices that choose experts or tokens. They stay as they are unless a recipe names them."""
TAKEN_FOR_EXPERTS = frozenset({"gate_proj", "up_proj", "down_proj"})
"""Linear layers that PEFT takes for experts' maps in the mixtures that it knows, see `saved_adapters.peft_form`."""
EMBEDDING, HEAD = "embedding", "head"
"""Kinds of the two tables of a vocabulary. They get an adapter only where a recipe names them."""
MIXER_KINDS = frozenset({"state space", "linear attention", "convolution"})
"""Kinds of matrices that mix tokens otherwise than by attention."""


@dataclass(frozen=True)
class MatrixNames:
    """Names of a layer's matrices in transformers' model (modeling_*.py). The defaults are Llama's.

    Attributes:
        attention_output: attention's output projection, below `self_attn`.
        gate_up: matrices of gate and up in a dense layer; one name where they are stacked in one, or there is no gate.
        down: matrix back to the hidden size.
        router: matrix that chooses experts.
        experts: module of the stacks of experts.
        shared_expert: module of the expert that sees every token.
        shared_gate: map to one number whose sigmoid scales that expert's output; a vector, none of the matrices.
    """

    attention_output: str = "o_proj"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    shared_expert: str = "mlp.shared_expert"
    shared_gate: str = "mlp.shared_expert_gate"


USUAL_MATRICES = MatrixNames()
"""The names that most families share."""


def is_in_4_bits(matrix: Matrix) -> bool:
    """Whether training with 4-bit weights on the plain path keeps a matrix of a decoder layer in 4 bits."""
    return matrix.form == "linear" and matrix.kind != ROUTER


def named_matrices(spec: DecoderSpec, layer: LayerSpec, names: MatrixNames) -> tuple[Matrix, ...]:
    """Return the matrices of a layer in the model's order: those counted on the built model, else the family's.

    Args:
        spec: specification of the model.
        layer: the layer.
        names: names of the family's matrices.
    """
    if layer.matrices:
        return layer.matrices
    return _named_matrices(names, _MatrixSizes.of(spec, layer))


def tables(spec: DecoderSpec) -> tuple[Matrix, ...]:
    """Return embedding and head as an adapter sees them: those counted on the built model, else the usual names.

    The embedding maps a token of the vocabulary to a vector: its columns are tokens, and its rows the vector's numbers.
    """
    if spec.tables:
        return spec.tables
    return (
        _matrix("model.embed_tokens", EMBEDDING, spec.hidden_size, spec.vocab_size),
        _matrix("lm_head", HEAD, spec.vocab_size, spec.hidden_size),
    )


def stack_of(matrix: Matrix) -> StackName:
    """Return the stacked matrix that a linear layer is a part of.

    Raises:
        KeyError: The fast decoder has no place for it.
    """
    last = matrix.name.rpartition(".")[2]
    found = next((stack for stack, names in _STACKS.items() if last in names), None)
    if found is None:
        raise KeyError(matrix.name)
    return found


def feed_forward_width(spec: DecoderSpec, layer: LayerSpec) -> int:
    """Return the width of a layer's feed-forward; in a mixture that of one expert."""
    if layer.width and not layer.is_mixture:
        return layer.width
    dense = spec.num_experts and not layer.is_mixture
    return spec.dense_intermediate_size or spec.intermediate_size if dense else spec.intermediate_size


@dataclass(frozen=True)
class _MatrixSizes:
    """Sizes that the matrices of a layer depend on."""

    kind: LayerKind
    fused: bool
    hidden: int
    query: int
    key: int
    value: int
    wide: int
    gated: bool
    experts: int
    shared: int
    shared_first: bool
    conv_width: int
    gate: str
    heads: int
    delta: DeltaSpec | None

    @classmethod
    def of(cls, spec: DecoderSpec, layer: LayerSpec) -> _MatrixSizes:
        spec = spec.of_layer(layer)
        key = 0 if layer.keys == "borrowed" else spec.num_kv_heads * spec.head_dim
        return cls(
            kind=layer.kind,
            fused=spec.fused_projections,
            hidden=spec.hidden_size,
            query=spec.num_heads * spec.head_dim,
            key=key,
            value=key if layer.projects_values else 0,
            wide=feed_forward_width(spec, layer),
            gated=spec.mlp_gate,
            experts=spec.num_experts if layer.is_mixture else 0,
            shared=spec.experts.shared_size if spec.experts else 0,
            shared_first=spec.experts is not None and spec.experts.shared == "normed",
            conv_width=spec.conv_width,
            gate=spec.attention_gate,
            heads=spec.num_heads,
            delta=spec.delta,
        )


@lru_cache(maxsize=1024)
def _named_matrices(names: MatrixNames, sizes: _MatrixSizes) -> tuple[Matrix, ...]:
    mixers: dict[LayerKind, Callable[[MatrixNames, _MatrixSizes], list[Matrix]]] = {
        "short_convolution": _convolution, "gated_delta": _gated_delta
    }  # fmt: skip
    mixer = mixers.get(sizes.kind, _attention)(names, sizes)
    return (*mixer, *(_experts(names, sizes) if sizes.experts else _dense(names, sizes)))


def _convolution(_names: MatrixNames, sizes: _MatrixSizes) -> list[Matrix]:
    return [
        _matrix("conv.conv", "convolution", sizes.hidden, sizes.conv_width, form="other"),
        _matrix("conv.in_proj", "convolution", 3 * sizes.hidden, sizes.hidden),
        _matrix("conv.out_proj", "convolution", sizes.hidden, sizes.hidden),
    ]


def _gated_delta(_names: MatrixNames, sizes: _MatrixSizes) -> list[Matrix]:
    delta, kind = sizes.delta, "linear attention"
    assert delta is not None
    rows = (delta.convolved, delta.output, delta.value_heads, delta.value_heads)
    return [
        _matrix("linear_attn.conv1d", "convolution", delta.convolved, sizes.conv_width, form="other"),
        _matrix("linear_attn.out_proj", kind, sizes.hidden, delta.output),
        *(
            _matrix(f"linear_attn.{name}", kind, count, sizes.hidden)
            for name, count in zip(DELTA_INPUTS, rows, strict=True)
        ),
    ]


def _attention(names: MatrixNames, sizes: _MatrixSizes) -> list[Matrix]:
    query, key, hidden = sizes.query, sizes.key, sizes.hidden
    rows = {"q_proj": 2 * query if sizes.gate == "numbers" else query, "k_proj": key, "v_proj": sizes.value}
    if sizes.fused:
        rows = {"qkv_proj": query + 2 * key}
    found = [_matrix(f"self_attn.{name}", "attention", count, hidden) for name, count in rows.items() if count]
    found.append(_matrix(f"self_attn.{names.attention_output}", "attention", hidden, query))
    if sizes.gate == "heads":
        found.append(_matrix("self_attn.g_proj", "attention", sizes.heads, hidden))
    return found


def _dense(names: MatrixNames, sizes: _MatrixSizes) -> list[Matrix]:
    rows = (1 + sizes.gated) * sizes.wide // len(names.gate_up)
    found = [_matrix(name, "feed-forward", rows, sizes.hidden) for name in names.gate_up]
    return [*found, _matrix(names.down, "feed-forward", sizes.hidden, sizes.wide)]


def _experts(names: MatrixNames, sizes: _MatrixSizes) -> list[Matrix]:
    hidden, wide, experts, shared = sizes.hidden, sizes.wide, sizes.experts, sizes.shared
    found = [
        _matrix(names.router, ROUTER, experts, hidden, form="other"),
        _matrix(f"{names.experts}.gate_up_proj", "experts", 2 * wide, hidden, count=experts, form="stacked"),
        _matrix(f"{names.experts}.down_proj", "experts", hidden, wide, count=experts, form="stacked"),
    ]
    if not shared:
        return found
    place, kind = names.shared_expert, "shared experts"
    beside = [
        *(_matrix(f"{place}.{name}", kind, shared, hidden) for name in ("gate_proj", "up_proj")),
        _matrix(f"{place}.down_proj", kind, hidden, shared),
    ]
    return [*beside, *found] if sizes.shared_first else [*found, *beside]


def _matrix(name: str, kind: str, rows: int, columns: int, *, count: int = 1, form: str = "linear") -> Matrix:
    return Matrix.model_validate(
        {"name": name, "kind": kind, "rows": rows, "columns": columns, "count": count, "form": form}
    )
