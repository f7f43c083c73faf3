"""Predicts the type that llama.cpp gives each tensor of a GGUF, and the file's size. Loads no torch.

The rules are those of llama.cpp's `src/llama-quant.cpp` (`llama_tensor_get_type_impl` and `tensor_type_fallback`) for
the types Burnish offers, with and without an importance matrix. Block sizes come from `gguf.constants`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES, NEED_IMPORTANCE, GgufType
from burnish_engine.models.checkpoint.gguf_file.header import TensorShape
from burnish_engine.models.checkpoint.mtp_layers import with_mtp_layers
from burnish_engine.models.families.matrices import feed_forward_width

STORED_MXFP4 = "MXFP4"
"""Type that tensors only have where the checkpoint stores them so; no file type changes them."""
_FALLBACK = {
    "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL", "IQ3_S": "IQ4_NL", "IQ3_XXS": "IQ4_NL",
    "IQ2_S": "IQ4_NL", "Q3_K": "Q4_0", "Q2_K": "Q4_0",
}  # fmt: skip
_KEPT = re.compile(
    r"_norm\.weight$|ffn_gate_inp\.weight$|shortconv\.conv\.weight$|ssm_conv1d\.weight$|per_layer_model_proj"
)
_DENSE_PART = re.compile(r"blk\.(\d+)\.(ffn_(?:gate|up|down))\.weight")
_VALUES = re.compile(r"attn_(?:v|qkv)\.weight")  # `category_is_attn_v`
_PLAIN_OUTPUT = {"Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_0", "Q4_0", "Q4_1"}
_EMBEDDINGS = {"token_embd.weight", "per_layer_token_embd.weight"}  # `tensor_name_match_token_embd`
_ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT
_METADATA_BYTES_PER_TOKEN = 40  # text, type and merge of a byte-BPE entry; SmolLM2 has 36, Llama 3 41
_BYTES_PER_TENSOR_INFO = 60


@dataclass(frozen=True)
class TensorType:
    """The type a tensor gets."""

    tensor: TensorShape  # name, shape and unquantized type
    wanted: str  # type that the file type prescribes
    given: str
    """Type that the tensor gets; it differs where the rows do not fill whole blocks, or the tensor is MXFP4 already,
    and stays so."""

    @property
    def bytes(self) -> int:
        """The tensor's size, bytes."""
        return type_bytes(self.tensor.shape, self.given)


def type_bytes(shape: Sequence[int], kind: str) -> int:
    """The size of a tensor of some shape (row length last) in a GGUF type, bytes."""
    block, size = block_size(kind)
    count = 1
    for length in shape:
        count *= length
    return count // block * size


def choose_types(
    tensors: Sequence[TensorShape], quant: GgufType, *, gqa: int = 1, experts: int = 0, importance: bool = False
) -> list[TensorType]:
    """Choose the type of every tensor of a file, as llama.cpp does.

    Args:
        tensors: all tensors of the file; without an `output.weight` the head is tied to the embedding.
        quant: file type.
        gqa: number of query heads per key/value head of the first layer.
        experts: number of experts of a mixture; 0 for dense models.
        importance: whether there is an importance matrix; some types then choose other tensor types.

    Raises:
        UsageError: Rows of a tensor do not fill the blocks of this file type and there is no replacement.
    """
    tied = all(tensor.name != "output.weight" for tensor in tensors)
    values = _layer_positions(tensors, lambda name: _VALUES.search(name) is not None)
    downs = _layer_positions(tensors, lambda name: "ffn_down" in name and name.endswith("weight"))
    layers = 1 + max((_layer(tensor.name) for tensor in tensors), default=0)
    rules = _TypeRules(quant, values, downs, layers, gqa, experts, importance)
    return [_choose(tensor, rules, tied=tied) for tensor in tensors]


def _layer_positions(tensors: Sequence[TensorShape], wanted: Callable[[str], bool]) -> dict[str, int]:
    """Number the tensors of a kind in layer order: name to position."""
    names = sorted((tensor.name for tensor in tensors if wanted(tensor.name)), key=lambda name: (_layer(name), name))
    return {name: position for position, name in enumerate(names)}


@dataclass(frozen=True)
class _TypeRules:
    quant: GgufType
    values: dict[str, int]
    downs: dict[str, int]
    layers: int
    gqa: int
    experts: int
    importance: bool

    def wanted(self, name: str) -> str:
        """The type that the file type prescribes for one weight of a layer, whatever its row length."""
        kind = GGUF_TYPES[self.quant].tensors
        if self.quant == "IQ2_M":
            return self._two_bits(name, kind)
        if name in self.values:
            return self._value(name, kind)
        if "attn_k.weight" in name and self.experts == 8:
            return "Q8_0"
        if ("attn_k.weight" in name or "attn_q.weight" in name) and self.quant == "IQ3_XXS":
            return "IQ2_S"
        if name in self.downs:
            return self._down(_layer(name) if self.experts > 1 else self.downs[name], kind)
        if "attn_output.weight" in name:
            return self._output(kind)
        return kind

    def _value(self, name: str, kind: str) -> str:
        position = self.values[name]
        if self.experts == 8:
            return "Q8_0"
        if self.quant in {"IQ4_NL", "IQ4_XS"} and self.gqa >= 4:
            return "Q5_K"
        if self.quant in {"Q4_K_M", "Q5_K_M"} and _more_bits(position, len(self.values)):
            return "Q6_K"
        if self.quant == "Q3_K_M":
            return "Q5_K" if position < 2 else "Q4_K"
        few = {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_XXS" if self.importance else "IQ3_S", "IQ3_M": "Q4_K"}
        if self.quant in few:
            return "Q4_K" if self.gqa >= 4 else few[self.quant]
        return "Q5_K" if self.quant == "Q4_K_S" and position < 4 else kind

    def _down(self, position: int, kind: str) -> str:
        count = self.layers
        if self.quant in {"Q4_K_M", "Q5_K_M"}:
            return "Q6_K" if _more_bits(position, count) else kind
        if self.quant == "Q3_K_M":
            return "Q5_K" if position < count // 16 else "Q4_K"
        if self.quant == "Q2_K":
            return "Q3_K"
        early = position < count // 8
        if self.quant == "IQ3_XXS" and not self.importance:
            return "Q4_K" if early else "Q3_K"
        if self.quant == "IQ3_M":
            return "Q4_K" if early or (self.experts == 8 and _more_bits(position, count)) else kind
        if self.importance:
            return {"Q4_0": "Q4_1", "Q5_0": "Q5_1", "Q4_K_S": "Q5_K"}.get(self.quant, kind) if early else kind
        return "Q5_K" if early and self.quant in {"IQ4_NL", "IQ4_XS", "Q4_K_S"} else kind

    def _output(self, kind: str) -> str:
        if self.experts == 8:
            return kind if self.quant in _PLAIN_OUTPUT else "Q5_K"
        return {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "IQ3_M": "Q4_K"}.get(self.quant, kind)

    def _two_bits(self, name: str, kind: str) -> str:
        if name in self.values:
            return "Q4_K" if self.gqa >= 4 or self.experts >= 4 else "IQ3_S"
        if self.experts == 8 and "attn_k.weight" in name:
            return "Q4_K"
        if name in self.downs:
            return "IQ3_S" if self.downs[name] < self.layers // 8 else kind
        if "attn_output.weight" in name:
            return "Q5_K" if self.experts == 8 else "IQ3_S"
        return kind


def _more_bits(position: int, count: int) -> bool:
    """Whether llama.cpp's `use_more_bits` holds: the first and last eighth, and every third between."""
    return position < count // 8 or position >= 7 * count // 8 or (position - count // 8) % 3 == 2


def _choose(tensor: TensorShape, rules: _TypeRules, *, tied: bool) -> TensorType:
    kind = GGUF_TYPES[rules.quant].tensors
    if len(tensor.shape) < 2 or not tensor.name.endswith("weight") or _KEPT.search(tensor.name):
        return TensorType(tensor, tensor.type, tensor.type)
    if tensor.type == STORED_MXFP4:
        return TensorType(tensor, STORED_MXFP4 if kind in {"F16", "BF16"} else rules.wanted(tensor.name), STORED_MXFP4)
    if kind in {"F16", "BF16"}:
        return TensorType(tensor, kind, kind)
    if tensor.name == "output.weight" or (tied and tensor.name in _EMBEDDINGS):
        wanted = "Q8_0" if kind == "Q8_0" else "Q5_K" if rules.quant in {"IQ3_XXS", "IQ2_M"} else "Q6_K"
        given = "Q8_0" if tensor.row % block_size(kind)[0] else wanted
        return TensorType(tensor, wanted, _fitting(tensor, given))
    embedding = tensor.name in _EMBEDDINGS and rules.quant in NEED_IMPORTANCE
    wanted = "IQ3_S" if embedding else rules.wanted(tensor.name)
    return TensorType(tensor, wanted, _fitting(tensor, wanted))


def _fitting(tensor: TensorShape, kind: str) -> str:
    block = block_size(kind)[0]
    if tensor.row % block == 0:
        return kind
    if kind not in _FALLBACK:
        raise UsageError(
            f"{tensor.name} has rows of {tensor.row} numbers, which do not fill {kind}'s blocks of {block}; "
            "llama.cpp has no replacement.",
            "Export as F16 or BF16.",
        )
    given = _FALLBACK[kind]
    return given if tensor.row % block_size(given)[0] == 0 else "F16"


def file_bytes(types: Iterable[TensorType], metadata_bytes: int) -> int:
    """The size of a file, bytes.

    Args:
        types: types of all tensors, as `choose_types` returns them.
        metadata_bytes: size of everything before the tensor data.
    """
    return metadata_bytes + sum(-(-one.bytes // _ALIGNMENT) * _ALIGNMENT for one in types)


def predicted_file_bytes(spec: DecoderSpec, quant: GgufType) -> int | None:
    """Predict the size of a model's GGUF, bytes; None for mixtures whose experts are not known in detail.

    Experts in MXFP4 are counted as they are stored: an adapter on them makes the file larger.

    Raises:
        UsageError: The model's row lengths do not fit this file type.
    """
    if spec.num_experts and spec.experts is None:
        return None
    shapes = file_shapes(spec)
    types = choose_types(shapes, quant, gqa=spec.num_heads // spec.num_kv_heads, experts=spec.num_experts)
    metadata = spec.vocab_size * _METADATA_BYTES_PER_TOKEN + len(shapes) * _BYTES_PER_TENSOR_INFO
    return file_bytes(types, metadata)


def file_shapes(spec: DecoderSpec) -> list[TensorShape]:
    """List the matrices and norms of a model's GGUF, dense or a mixture, with its layers for multi-token prediction."""
    whole = with_mtp_layers(spec, spec.mtp_layers)
    shapes = [shape for one in spec_shapes(whole) for shape in _with_experts(one, whole)]
    if spec.mtp_layers:
        hidden, at = spec.hidden_size, f"blk.{spec.num_layers}.nextn.{{}}.weight".format
        shapes.append(TensorShape(at("eh_proj"), (hidden, 2 * hidden)))
        shapes += [_vector(at(part), hidden) for part in ("enorm", "hnorm", "shared_head_norm")]
    return shapes


def _with_experts(tensor: TensorShape, spec: DecoderSpec) -> list[TensorShape]:
    """Return what takes the place of a dense layer's tensor in a mixture: stacks, and the router beside the first."""
    experts, found = spec.experts, _DENSE_PART.fullmatch(tensor.name)
    if experts is None or not found or not spec.layers[int(found[1])].is_mixture:
        return [tensor]
    block, kind = f"blk.{found[1]}", STORED_MXFP4 if spec.has_mxfp4_experts else tensor.type
    rows, columns = tensor.shape
    made = [TensorShape(f"{block}.{found[2]}_exps.weight", (experts.count, rows, columns), kind)]
    if experts.bias:
        made.append(TensorShape(f"{block}.{found[2]}_exps.bias", (experts.count, rows), "F32"))
    if experts.shared_size:
        shape = (spec.hidden_size, experts.shared_size)[:: 1 if found[2] == "ffn_down" else -1]
        name = found[2] if experts.shared == "normed" else f"{found[2]}_shexp"
        made.append(TensorShape(f"{block}.{name}.weight", shape))
    if found[2] == "ffn_gate":
        made.append(TensorShape(f"{block}.ffn_gate_inp.weight", (experts.count, spec.hidden_size), "F32"))
        if experts.shared == "normed":
            hidden, norms = spec.hidden_size, ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")
            made += [
                _vector(f"{block}.{name}", hidden) for name in ("ffn_gate_inp.scale", *map("{}.weight".format, norms))
            ]
            made.append(_vector(f"{block}.ffn_down_exps.scale", experts.count))
        elif experts.shared_size:
            made.append(_vector(f"{block}.ffn_gate_inp_shexp.weight", spec.hidden_size))
    return made


def spec_shapes(spec: DecoderSpec) -> list[TensorShape]:
    """List the tensors of a dense model's GGUF; fused projections are listed apart, which gives the same bytes.

    A layer that is a mixture is listed as if it had one expert and no router (`file_shapes` lists all).
    """
    hidden = spec.hidden_size
    shapes = [TensorShape("token_embd.weight", (spec.vocab_size, hidden)), _vector("output_norm.weight", hidden)]
    if not spec.tied_embeddings:
        shapes.append(TensorShape("output.weight", (spec.vocab_size, hidden)))
    if spec.per_layer_size:
        width = spec.num_layers * spec.per_layer_size
        shapes.append(TensorShape("per_layer_token_embd.weight", (spec.per_layer_vocab, width)))
        shapes.append(TensorShape("per_layer_model_proj.weight", (width, hidden)))
        shapes.append(_vector("per_layer_proj_norm.weight", spec.per_layer_size))
    for index, layer in enumerate(spec.layers):
        at: Callable[[str], str] = f"blk.{index}.{{}}.weight".format
        if spec.pre_norms:
            shapes += [_vector(at("attn_norm"), hidden), _vector(at("ffn_norm"), hidden)]
        wide = feed_forward_width(spec, layer)
        inward = ("ffn_gate", "ffn_up") if spec.mlp_gate else ("ffn_up",)
        shapes += [TensorShape(at(part), (wide, hidden)) for part in inward]
        shapes.append(TensorShape(at("ffn_down"), (hidden, wide)))
        if spec.sandwich_norms:
            shapes += [_vector(at(f"post_{part}_norm"), hidden) for part in ("attention", "ffw")]
        if spec.layer_scale:
            shapes.append(_vector(at("layer_output_scale"), 1))
        if spec.per_layer_size:
            shapes.append(TensorShape(at("inp_gate"), (spec.per_layer_size, hidden)))
            shapes.append(TensorShape(at("proj"), (hidden, spec.per_layer_size)))
            shapes.append(_vector(at("post_norm"), hidden))
        mixers = {"short_convolution": _convolution_shapes, "gated_delta": _delta_shapes}
        shapes += mixers.get(layer.kind, _attention_shapes)(spec.of_layer(layer), index)
    return shapes


def _convolution_shapes(spec: DecoderSpec, index: int) -> list[TensorShape]:
    """List the tensors of a layer's short convolution."""
    hidden, at = spec.hidden_size, f"blk.{index}.shortconv.{{}}".format
    shapes = [
        TensorShape(at("in_proj.weight"), (3 * hidden, hidden)),
        TensorShape(at("out_proj.weight"), (hidden, hidden)),
        TensorShape(at("conv.weight"), (hidden, spec.conv_width), "F32"),
    ]
    biases = {"conv": hidden, "in_proj": 3 * hidden, "out_proj": hidden} if spec.conv_bias else {}
    return [*shapes, *(_vector(at(f"{part}.bias"), size) for part, size in biases.items())]


def _attention_shapes(spec: DecoderSpec, index: int) -> list[TensorShape]:
    """List the tensors of a layer's attention."""
    hidden, query, key = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    at: Callable[[str], str] = f"blk.{index}.{{}}.weight".format
    layer = spec.layers[index]
    shapes = [
        TensorShape(at("attn_q"), (2 * query if spec.attention_gate == "numbers" else query, hidden)),
        TensorShape(at("attn_output"), (hidden, query)),
    ]
    if layer.keys != "borrowed":
        shapes += [TensorShape(at(f"attn_{part}"), (key, hidden)) for part in ("kv" if layer.projects_values else "k")]
    if spec.attention_bias:
        shapes += [_vector(f"blk.{index}.attn_{part}.bias", size) for part, size in (("q", query), ("k", key))]
        shapes.append(_vector(f"blk.{index}.attn_v.bias", key))
    if spec.attention_output_bias:
        shapes.append(_vector(f"blk.{index}.attn_output.bias", hidden))
    if spec.attention_gate == "heads":
        shapes.append(TensorShape(at("attn_gate"), (spec.num_heads, hidden)))
    if spec.attention_sinks and not spec.num_experts:  # a mixture's are counted with its experts' biases
        shapes.append(_vector(at("attn_sinks"), spec.num_heads))
    if spec.qk_norm:
        sizes = (query, key) if spec.qk_norm_whole else (spec.head_dim, spec.head_dim)
        normed = "q" if layer.keys == "borrowed" else "qk"
        shapes += [_vector(at(f"attn_{part}_norm"), size) for part, size in zip(normed, sizes, strict=False)]
    return shapes


def _delta_shapes(spec: DecoderSpec, index: int) -> list[TensorShape]:
    """List the tensors of a layer's gated delta net."""
    delta, hidden = spec.delta, spec.hidden_size
    assert delta is not None
    at: Callable[[str], str] = f"blk.{index}.{{}}.weight".format
    return [
        TensorShape(at("attn_qkv"), (delta.convolved, hidden)),
        TensorShape(at("attn_gate"), (delta.output, hidden)),
        *(TensorShape(at(f"ssm_{part}"), (delta.value_heads, hidden)) for part in ("alpha", "beta")),
        TensorShape(at("ssm_conv1d"), (delta.convolved, spec.conv_width), "F32"),
        _vector(at("ssm_norm"), delta.value_dim),
        *(_vector(f"blk.{index}.{part}", delta.value_heads) for part in ("ssm_a", "ssm_dt.bias")),
        TensorShape(at("ssm_out"), (hidden, delta.output)),
    ]


def _vector(name: str, size: int) -> TensorShape:
    return TensorShape(name, (size,), "F32")


def _layer(name: str) -> int:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match.group(1)) if match else 0


@cache
def block_size(kind: str) -> tuple[int, int]:
    """The number of weights in a block of a tensor type, and the block's bytes."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    numbers, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return int(numbers), int(size)
