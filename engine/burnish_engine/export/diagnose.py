"""Why a file is not the trained model: which setting or tensor is wrong, by name.

What a file should hold is worked out here a second time, from the model's specification and weights, and apart from the
writer: a fault in the writer must not hide itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.export.gguf.header import GgufHeader, read_header
from burnish_engine.export.gguf.pre_tokenizer import PRE_KEY, choose_pre_tokenizer
from burnish_engine.export.merge import MergedWeights
from burnish_engine.models.source import ModelSource

_INTERLEAVED = {"llama", "smollm3"}
"""Architectures whose rope turns neighboring rows of a head in llama.cpp; in transformers, rows half a head apart."""
_ONE_PLUS = {"gemma3"}
_SAME = 0.9  # least cosine of a row with itself; two-bit types keep more, unlike rows of a matrix have about 0
_CLOSE = 1e-3  # of norms and biases, which are never quantized
_MOST_NAMED = 3


@dataclass(frozen=True)
class Origin:
    """What a file is said to be.

    Attributes:
        source: The base model.
        adapter: The PEFT adapter's folder, or None.
        rounded: Base tensors that were rounded to NF4 and back before the adapter was added.
    """

    source: ModelSource
    adapter: Path | None
    rounded: frozenset[str] = frozenset()


def wrong_settings(header: GgufHeader, spec: DecoderSpec) -> list[str]:
    """Settings of the file that are not the model's, in sentences. What it leaves to llama.cpp is not judged."""
    problems = []
    for key, name, wanted in _settings(spec):
        found = header.metadata.get(f"{header.architecture}.{key}")
        if isinstance(found, tuple):
            found = max(found, default=0)
        if found is not None and not math.isclose(float(found), wanted, rel_tol=1e-5):
            problems.append(f"Its {name} ({key}) is {found:g}; the model's is {wanted:g}.")
    return problems


def _settings(spec: DecoderSpec) -> list[tuple[str, str, float]]:
    rope = spec.rope
    rows = [
        ("block_count", "number of layers", spec.num_layers),
        ("embedding_length", "width", spec.hidden_size),
        ("feed_forward_length", "feed-forward width", spec.intermediate_size),
        ("attention.head_count", "number of query heads", spec.num_heads),
        ("attention.head_count_kv", "number of key heads", spec.num_kv_heads),
        ("attention.layer_norm_rms_epsilon", "norm epsilon", spec.rms_norm_eps),
        ("rope.freq_base", "rope base", rope.theta),
        ("rope.dimension_count", "number of rotated dimensions", int(spec.head_dim * rope.partial)),
    ]
    if rope.scaling in {"linear", "yarn"}:
        rows.append(("rope.scaling.factor", "rope factor", rope.factor))
    if rope.scaling in {"yarn", "longrope"} and rope.original_context:
        rows.append(("rope.scaling.original_context_length", "original context", rope.original_context))
    if rope.scaling == "longrope":
        rows.append(("rope.scaling.attn_factor", "rope's attention factor", rope.attention_factor))
    if spec.family == "gemma3_text" and spec.sliding_window:
        rows.append(("attention.sliding_window", "attention window", spec.sliding_window))
        rows.append(("rope.freq_base_swa", "rope base of local layers", (spec.local_rope or rope).theta))
    return [(key, name, float(wanted)) for key, name, wanted in rows]


def wrong_pre_tokenizer(path: Path, expected: Sequence[tuple[str, list[int]]]) -> list[str]:
    """Whether another pre-tokenizer than the file's would split text as the model does, in a sentence."""
    header = read_header(path)
    if header.metadata.get("tokenizer.ggml.model") != "gpt2":
        return []
    found = str(header.metadata.get(PRE_KEY, ""))
    try:
        right = choose_pre_tokenizer(path, expected, ())
    except BurnishError:
        return []  # none does: the vocabulary itself is another
    return [f"Its pre-tokenizer is {found!r}; {right!r} splits text as the model does."] if right != found else []


def wrong_tensors(path: Path, origin: Origin, name_map: Callable[[str], str | None]) -> list[str]:
    """Tensors of the file that are not the trained model's, in sentences: at most a few, worst kinds first.

    Args:
        path: The file, of any type.
        origin: What it is said to be.
        name_map: Base tensor name to GGUF name.
    """
    from gguf import GGUFReader

    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    architecture = read_header(path).architecture
    weights = MergedWeights(origin.source, origin.adapter, origin.rounded)
    base = {name_map(name): name for name in weights.names}
    missing = [f"It lacks the tensor {name}." for name in base if name is not None and _lacks(name, tensors, origin)]
    turned, shifted, other = [], [], []
    for name, tensor in tensors.items():
        if name not in base:
            continue
        wanted = _wanted(architecture, base[name], weights.load(base[name]), origin.source)
        verdict = _compare(_values(tensor, wanted), wanted)
        if verdict == "turned":
            turned.append(name)
        elif verdict == "shifted":
            shifted.append(name)
        elif verdict:
            other.append(name)
    problems = missing[:_MOST_NAMED]
    if turned:
        problems.append(
            f"The rows of {_named(turned)} are in another order than llama.cpp's {architecture} graph reads them: the "
            "permutation of Q and K is missing or wrong."
        )
    if shifted:
        problems.append(f"{_named(shifted)} differ by a constant: norms that multiply by 1 + weight are written wrong.")
    if other:
        problems.append(f"{_named(other)} hold other numbers than the trained model.")
    return problems


def _lacks(name: str, tensors: dict[str, Any], origin: Origin) -> bool:
    tied = origin.source.spec is not None and origin.source.spec.tied_embeddings and name == "output.weight"
    return name not in tensors and not tied


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _wanted(architecture: str, base: str, weight: torch.Tensor, source: ModelSource) -> torch.Tensor:
    if architecture in _ONE_PLUS and base.endswith("norm.weight"):
        return weight + 1.0
    if architecture in _INTERLEAVED and source.spec is not None and (".q_proj." in base or ".k_proj." in base):
        return weight[_interleaved_order(len(weight), source.spec.head_dim)]
    return weight.squeeze(1) if weight.ndim == 3 else weight


def _interleaved_order(rows: int, head: int) -> torch.Tensor:
    """Which row of transformers' matrix each row of llama.cpp's is: 0, d/2, 1, d/2 + 1, ... of every head of d."""
    row = torch.arange(rows)
    place = row % head
    return row - place + place // 2 + (place % 2) * (head // 2)


def _values(tensor: Any, wanted: torch.Tensor) -> torch.Tensor | None:
    from gguf.quants import dequantize

    try:
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
    except NotImplementedError:
        return wanted  # a type that numpy does not read; not judged
    return values.reshape(wanted.shape) if values.numel() == wanted.numel() else None


def _compare(found: torch.Tensor | None, wanted: torch.Tensor) -> str:
    """An empty string where they are the same, else what is wrong: turned, shifted or other."""
    if found is None:
        return "other"
    if wanted.ndim < 2:
        difference = found - wanted
        if float(difference.abs().max()) <= _CLOSE * max(float(wanted.abs().max()), 1e-6):
            return ""
        return "shifted" if float(difference.std()) < _CLOSE < float(difference.abs().mean()) else "other"
    if bool((torch.nn.functional.cosine_similarity(found, wanted, dim=1)[_not_empty(wanted)] > _SAME).all()):
        return ""
    if len(wanted) > 16_384:
        return "other"
    nearest = torch.nn.functional.normalize(found, dim=1) @ torch.nn.functional.normalize(wanted, dim=1).T
    best, place = nearest.max(dim=1)
    return "turned" if bool((best > _SAME).all()) and len(set(place.tolist())) == len(wanted) else "other"


def _not_empty(rows: torch.Tensor) -> torch.Tensor:
    return rows.norm(dim=1) > 0
