"""Which type llama.cpp gives each tensor, and so how large a GGUF becomes, before it is made. Loads no torch.

The rules are those of llama.cpp's `src/llama-quant.cpp` (`llama_tensor_get_type_impl` and `tensor_type_fallback`) for
the types Burnish offers, without an importance matrix. Block sizes come from `gguf.constants`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.recipe import GgufType

BASE_TYPES: dict[GgufType, str] = {
    "F16": "F16", "BF16": "BF16", "Q8_0": "Q8_0", "Q6_K": "Q6_K", "Q5_K_M": "Q5_K", "Q5_K_S": "Q5_K", "Q5_0": "Q5_0",
    "Q4_K_M": "Q4_K", "Q4_K_S": "Q4_K", "Q4_0": "Q4_0", "Q4_1": "Q4_1", "IQ4_NL": "IQ4_NL", "IQ4_XS": "IQ4_XS",
}  # fmt: skip
"""File type to the type most of its tensors have (`llama_ftype_get_default_type`)."""

_FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}
_KEPT = re.compile(r"_norm\.weight$|ffn_gate_inp\.weight$|shortconv\.conv\.weight$")
_ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT
_METADATA_BYTES_PER_TOKEN = 40  # text, type and merge of a byte-BPE entry; SmolLM2 has 36, Llama 3 41
_BYTES_PER_TENSOR_INFO = 60


@dataclass(frozen=True)
class TensorShape:
    """One tensor of a GGUF.

    Attributes:
        name: GGUF name.
        shape: Rows first; the last number is the length of a row.
        type: Its unquantized type, F32, F16 or BF16.
    """

    name: str
    shape: tuple[int, ...]
    type: str = "F16"

    @property
    def row(self) -> int:
        """Length of a row, numbers."""
        return self.shape[-1]


@dataclass(frozen=True)
class TensorType:
    """The type a tensor gets.

    Attributes:
        tensor: The tensor.
        wanted: What the file type has for it.
        given: What it gets, which differs where its rows do not fill whole blocks.
    """

    tensor: TensorShape
    wanted: str
    given: str

    @property
    def bytes(self) -> int:
        """Size, bytes."""
        return type_bytes(self.tensor.shape, self.given)


def type_bytes(shape: Sequence[int], kind: str) -> int:
    """Size of a tensor of that shape (row length last) in a GGUF type, bytes."""
    block, size = _block(kind)
    count = 1
    for length in shape:
        count *= length
    return count // block * size


def choose_types(
    tensors: Sequence[TensorShape], quant: GgufType, *, gqa: int = 1, experts: int = 0
) -> list[TensorType]:
    """The type of every tensor of a file.

    Args:
        tensors: All tensors; whether `output.weight` is among them says whether the head is tied.
        quant: The file type.
        gqa: Query heads per key/value head.
        experts: Experts of a mixture, 0 for dense models.

    Raises:
        UsageError: Rows of a tensor do not fill the blocks of this file type and there is no replacement.
    """
    tied = all(tensor.name != "output.weight" for tensor in tensors)
    layers = 1 + max((_layer(tensor.name) for tensor in tensors), default=0)
    ordered = sorted((tensor for tensor in tensors if "attn_v.weight" in tensor.name), key=lambda one: _layer(one.name))
    values = {tensor.name: place for place, tensor in enumerate(ordered)}
    rules = _Rules(quant, layers, len(values), values, gqa, experts)
    return [_choose(tensor, rules, tied=tied) for tensor in tensors]


@dataclass(frozen=True)
class _Rules:
    quant: GgufType
    layers: int
    value_count: int
    value_place: dict[str, int]
    gqa: int
    experts: int

    def wanted(self, name: str) -> str:
        """The type of one weight of a layer, before its row length is looked at."""
        kind = BASE_TYPES[self.quant]
        if "attn_v.weight" in name:
            return self._value(name, kind)
        if "attn_k.weight" in name and self.experts == 8:
            return "Q8_0"
        if "ffn_down" in name:
            return self._down(_layer(name), kind)
        if "attn_output.weight" in name and self.experts == 8 and self.quant[:2] in {"Q4", "IQ"}:
            return "Q5_K" if self.quant in {"Q4_K_M", "Q4_K_S", "IQ4_NL", "IQ4_XS"} else kind
        return kind

    def _value(self, name: str, kind: str) -> str:
        place = self.value_place[name]
        if self.experts == 8:
            return "Q8_0"
        if self.quant in {"IQ4_NL", "IQ4_XS"} and self.gqa >= 4:
            return "Q5_K"
        if self.quant in {"Q4_K_M", "Q5_K_M"} and _more_bits(place, self.value_count):
            return "Q6_K"
        return "Q5_K" if self.quant == "Q4_K_S" and place < 4 else kind

    def _down(self, layer: int, kind: str) -> str:
        if self.quant in {"Q4_K_M", "Q5_K_M"}:
            return "Q6_K" if _more_bits(layer, self.layers) else kind
        early = layer < self.layers // 8
        return "Q5_K" if early and self.quant in {"IQ4_NL", "IQ4_XS", "Q4_K_S"} else kind


def _more_bits(place: int, count: int) -> bool:
    """`use_more_bits`: the first and last eighth, and every third between."""
    return place < count // 8 or place >= 7 * count // 8 or (place - count // 8) % 3 == 2


def _choose(tensor: TensorShape, rules: _Rules, *, tied: bool) -> TensorType:
    kind = BASE_TYPES[rules.quant]
    if len(tensor.shape) < 2 or not tensor.name.endswith("weight") or _KEPT.search(tensor.name):
        return TensorType(tensor, tensor.type, tensor.type)
    if kind in {"F16", "BF16"}:
        return TensorType(tensor, kind, kind)
    if tensor.name == "output.weight" or (tied and tensor.name == "token_embd.weight"):
        wanted = "Q8_0" if kind == "Q8_0" else "Q6_K"
        given = "Q8_0" if tensor.row % _block(kind)[0] else wanted
        return TensorType(tensor, wanted, _fitting(tensor, given))
    wanted = rules.wanted(tensor.name)
    return TensorType(tensor, wanted, _fitting(tensor, wanted))


def _fitting(tensor: TensorShape, kind: str) -> str:
    if tensor.row % _block(kind)[0] == 0:
        return kind
    if kind not in _FALLBACK:
        raise UsageError(
            f"{tensor.name} has rows of {tensor.row} numbers, which do not fill {kind}'s blocks of {_block(kind)[0]}; "
            "llama.cpp has no replacement.",
            "Export as F16 or BF16.",
        )
    given = _FALLBACK[kind]
    return given if tensor.row % _block(given)[0] == 0 else "F16"


def file_bytes(types: Iterable[TensorType], metadata_bytes: int) -> int:
    """Size of a file with these tensors, bytes.

    Args:
        types: From `choose_types`.
        metadata_bytes: Everything before the tensor data.
    """
    return metadata_bytes + sum(-(-one.bytes // _ALIGNMENT) * _ALIGNMENT for one in types)


def predicted_file_bytes(spec: DecoderSpec, quant: GgufType) -> int | None:
    """Predicted size of a model's GGUF, bytes; None for mixtures of experts, whose expert width a spec does not say.

    Raises:
        UsageError: The model's row lengths do not fit this file type.
    """
    if spec.num_experts:
        return None
    shapes = spec_shapes(spec)
    types = choose_types(shapes, quant, gqa=spec.num_heads // spec.num_kv_heads)
    metadata = spec.vocab_size * _METADATA_BYTES_PER_TOKEN + len(shapes) * _BYTES_PER_TENSOR_INFO
    return file_bytes(types, metadata)


def spec_shapes(spec: DecoderSpec) -> list[TensorShape]:
    """The tensors of a dense model's GGUF (fused ones of some families apart, which come to the same bytes)."""
    hidden, query, key = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes = [TensorShape("token_embd.weight", (spec.vocab_size, hidden)), _vector("output_norm.weight", hidden)]
    if not spec.tied_embeddings:
        shapes.append(TensorShape("output.weight", (spec.vocab_size, hidden)))
    for index, layer in enumerate(spec.layers):
        at: Callable[[str], str] = f"blk.{index}.{{}}.weight".format
        shapes += [_vector(at("attn_norm"), hidden), _vector(at("ffn_norm"), hidden)]
        shapes += [TensorShape(at(part), (spec.intermediate_size, hidden)) for part in ("ffn_gate", "ffn_up")]
        shapes.append(TensorShape(at("ffn_down"), (hidden, spec.intermediate_size)))
        if layer.kind == "short_convolution":
            shapes += [
                TensorShape(at("shortconv.in_proj"), (3 * hidden, hidden)),
                TensorShape(at("shortconv.out_proj"), (hidden, hidden)),
                TensorShape(at("shortconv.conv"), (hidden, spec.conv_width), "F32"),
            ]
            continue
        shapes += [
            TensorShape(at("attn_q"), (query, hidden)),
            TensorShape(at("attn_k"), (key, hidden)),
            TensorShape(at("attn_v"), (key, hidden)),
            TensorShape(at("attn_output"), (hidden, query)),
        ]
        if spec.attention_bias:
            shapes += [_vector(f"blk.{index}.attn_{part}.bias", size) for part, size in (("q", query), ("k", key))]
            shapes.append(_vector(f"blk.{index}.attn_v.bias", key))
        if spec.attention_output_bias:
            shapes.append(_vector(f"blk.{index}.attn_output.bias", hidden))
        if spec.sandwich_norms:
            shapes += [_vector(at(f"post_{part}_norm"), hidden) for part in ("attention", "ffw")]
        if spec.qk_norm:
            shapes += [_vector(at(f"attn_{part}_norm"), spec.head_dim) for part in "qk"]
    return shapes


def _vector(name: str, size: int) -> TensorShape:
    return TensorShape(name, (size,), "F32")


def _layer(name: str) -> int:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match.group(1)) if match else 0


def _block(kind: str) -> tuple[int, int]:
    """Numbers and bytes of a block."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    numbers, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return int(numbers), int(size)
