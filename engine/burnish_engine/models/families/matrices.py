"""The matrices of a decoder layer by their names in transformers' model, from a specification. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec

StackName = Literal["mixer_in", "mixer_out", "gate_up", "down"]
STACK_NAMES: tuple[StackName, ...] = get_args(StackName)
"""The stacked matrices of a layer in the fast decoder, in the order in which they are used; "gate_up" is up alone where
the feed-forward has no gate."""
_STACKS: dict[StackName, frozenset[str]] = {
    "mixer_in": frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "in_proj", "g_proj"}),
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
    """

    attention_output: str = "o_proj"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    router: str = "mlp.gate"
    experts: str = "mlp.experts"


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
    return _named_matrices(
        names,
        is_convolution=layer.kind == "short_convolution",
        fused=spec.fused_projections,
        hidden=spec.hidden_size,
        query=spec.num_heads * spec.head_dim,
        key=spec.num_kv_heads * spec.head_dim,
        wide=feed_forward_width(spec, layer),
        gated=spec.mlp_gate,
        experts=spec.num_experts if layer.is_mixture else 0,
        conv_width=spec.conv_width,
        gates=spec.num_heads if spec.attention_gate else 0,
    )


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
    dense = spec.num_experts and not layer.is_mixture
    return spec.dense_intermediate_size or spec.intermediate_size if dense else spec.intermediate_size


@lru_cache(maxsize=1024)
def _named_matrices(
    names: MatrixNames,
    *,
    is_convolution: bool,
    fused: bool,
    hidden: int,
    query: int,
    key: int,
    wide: int,
    gated: bool,
    experts: int,
    conv_width: int,
    gates: int,
) -> tuple[Matrix, ...]:
    if is_convolution:
        mixer = [
            _matrix("conv.conv", "convolution", hidden, conv_width, form="other"),
            _matrix("conv.in_proj", "convolution", 3 * hidden, hidden),
            _matrix("conv.out_proj", "convolution", hidden, hidden),
        ]
    elif fused:
        mixer = [_matrix("self_attn.qkv_proj", "attention", query + 2 * key, hidden)]
    else:
        sizes = {"q_proj": query, "k_proj": key, "v_proj": key}
        mixer = [_matrix(f"self_attn.{name}", "attention", rows, hidden) for name, rows in sizes.items()]
    if not is_convolution:
        mixer.append(_matrix(f"self_attn.{names.attention_output}", "attention", hidden, query))
        if gates:
            mixer.append(_matrix("self_attn.g_proj", "attention", gates, hidden))
    return (*mixer, *(_experts(names, hidden, wide, experts) if experts else _dense(names, hidden, wide, gated=gated)))


def _dense(names: MatrixNames, hidden: int, wide: int, *, gated: bool) -> list[Matrix]:
    rows = (1 + gated) * wide // len(names.gate_up)
    found = [_matrix(name, "feed-forward", rows, hidden) for name in names.gate_up]
    return [*found, _matrix(names.down, "feed-forward", hidden, wide)]


def _experts(names: MatrixNames, hidden: int, wide: int, experts: int) -> list[Matrix]:
    return [
        _matrix(names.router, ROUTER, experts, hidden, form="other"),
        _matrix(f"{names.experts}.gate_up_proj", "experts", 2 * wide, hidden, count=experts, form="stacked"),
        _matrix(f"{names.experts}.down_proj", "experts", hidden, wide, count=experts, form="stacked"),
    ]


def _matrix(name: str, kind: str, rows: int, columns: int, *, count: int = 1, form: str = "linear") -> Matrix:
    return Matrix.model_validate(
        {"name": name, "kind": kind, "rows": rows, "columns": columns, "count": count, "form": form}
    )
