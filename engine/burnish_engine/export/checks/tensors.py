"""Compare every tensor of a file, of any type, with the trained model's tensor, and name those that differ.

F32 tensors must be equal. Rows of other types must be what their type's rounding makes of the trained ones
(`rounding_error.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch

from burnish_engine.advise.facts.gguf_rules import gguf_rules
from burnish_engine.advise.facts.gguf_size import STORED_MXFP4
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES
from burnish_engine.export.base.staging import Canceled, never, stop_if
from burnish_engine.export.checks.rounding_error import CodeChoice, is_judged, largest_error, outside
from burnish_engine.export.checks.trained_weights import Origin, TrainedWeights
from burnish_engine.export.gguf.block_formats import Floats
from burnish_engine.export.gguf.tensor_data import row_pieces
from burnish_engine.export.quantize.hessian import input_name
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader, TensorShape
from burnish_engine.models.checkpoint.gguf_file.tensor_names import name_map

_INTERLEAVED: Final = {"llama", "arcee", "smollm3", "mistral3", "granite", "granitemoe", "granite_swa"}
"""Architectures whose rope turns neighboring rows of a head in llama.cpp; in transformers, rows half a head apart."""
_ONE_PLUS: Final = {"gemma", "gemma2", "gemma3", "qwen35", "qwen35moe"}
_WITH_DRAFTS: Final = {"qwen35", "qwen35moe"}
"""Architectures whose graph has layers for multi-token prediction."""
_PLAIN_NORM: Final = "linear_attn.norm.weight"
"""End of the name of the norms that multiply by their weight in all families."""
_GATE_AND_UP: Final = ".shared_mlp.input_linear.weight"
"""End of the name of a matrix that a file holds as two: gate over up (Granite 4)."""
_NOT_WRITTEN: Final = (".rotary_emb.inv_freq", ".rope.freqs", ".attention.bias", ".attention.masked_bias")
"""Suffixes of tensors that old checkpoints hold and no file needs."""
_DRAFTS: Final = re.compile(r"mtp\.(?:layers\.(?P<index>\d+)\.(?P<rest>.+)|(?P<around>\w+)\.weight)")
"""Names of tensors for multi-token prediction: those of a layer, and those around the layers."""
_AROUND_DRAFTS: Final = {
    "fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"
}  # fmt: skip
"""The latter's names in a file, which has them in the first of the layers (llama.cpp's models/qwen35.cpp)."""
_XIELU: Final = re.compile(r"model\.layers\.(\d+)\.mlp\.act_fn\.(alpha_p|alpha_n|beta|eps)")
"""Parameters of one number that a file has as metadata, a number for each layer."""
_TABLES: Final = {"token_embd.weight", "output.weight"}
"""Tensors that no importance matrix weighs (`compute_importance`)."""
_MERGED_SLACK: Final = 1e-5  # rounding in fp32 where an adapter was added in another order
_SAME_DIRECTION: Final = 0.9  # smallest cosine of two rows that are equal up to rounding
_SAME_RATIO: Final = 1e-3  # spread of a ratio, or of a difference, that counts as constant
_SCALED: Final = 0.02  # smallest error of rows' scale that is told
_MOST_NAMED: Final = 3
_MOST_KEPT: Final = 16 * 1024 * 1024  # numbers of wrong rows that are kept to find out whether rows were only swapped
_MOST_MATCHED: Final = 16 * 1024  # rows that are compared pairwise; the table takes 1 GiB

FaultKind = Literal["permuted", "reordered", "shifted", "scaled", "zero", "other"]


@dataclass(frozen=True)
class ExpectedTensor:
    """One tensor that the file must hold."""

    loads: Sequence[Callable[[], torch.Tensor]]
    """Functions that read the tensor in fp32, rows first; of a stack, those that read each expert's matrix."""
    slack: float = 0.0  # tolerance for rounding in fp32, as a share of a row's largest number
    is_stack: bool = False  # whether the tensor is a stack with an entry for each expert
    in_mxfp4: bool = False  # whether the checkpoint stores just this in MXFP4, so that MXFP4 in the file must be equal


@dataclass(frozen=True)
class TensorFault:
    """One tensor that differs from the trained model's."""

    name: str  # GGUF name
    kind: FaultKind  # kind of damage
    detail: str  # text with the rows that are off, and by how much


def check_tensors(
    path: Path, header: GgufHeader, origin: Origin, spec: DecoderSpec, canceled: Canceled = never
) -> list[str]:
    """Compare every tensor.

    Args:
        path: The file, of any type.
        header: header of the file.
        origin: base and adapter that the file claims to be made from.
        spec: shape of the model.
        canceled: callback polled between tensors; True stops the work.

    Returns:
        Findings as sentences that name at most `_MOST_NAMED` tensors each; empty where nothing is wrong.

    Raises:
        UsageError: The model's family is not exported, or its weights are quantized.
        SetupError: A file is missing or damaged.
        StoppedError: Canceled.
    """
    expected = expected_tensors(header.architecture, origin, spec)
    found = {tensor.name: tensor for tensor in header.tensors}
    problems = _missing(expected.keys() - found.keys(), "It lacks", "of the trained model")
    problems += _missing(found.keys() - expected.keys(), "It holds", "that the trained model does not have")
    problems += _wrong_numbers(header, origin) if spec.activation == "xielu" else []
    faults = []
    for tensor in header.tensors:
        stop_if(canceled, "The verification")
        if tensor.name in expected and (fault := _compare(path, header, tensor, expected[tensor.name])):
            faults.append(fault)
    return problems + fault_sentences(faults, header.architecture)


def expected_tensors(architecture: str, origin: Origin, spec: DecoderSpec) -> dict[str, ExpectedTensor]:
    """List the tensors that a file of the model must hold, by GGUF name, without reading them.

    Args:
        architecture: architecture of the file.
        origin: base and adapter.
        spec: shape of the model.

    Raises:
        UsageError: The model's family is not exported, or its weights are quantized.
    """
    weights, gguf_name = TrainedWeights(origin), name_map(gguf_rules(spec.family), spec.num_layers)
    expected: dict[str, ExpectedTensor] = {}
    for base in [*weights.names, *(weights.drafts if architecture in _WITH_DRAFTS else ())]:
        if weights.experts.is_expert(base) or _XIELU.fullmatch(base):
            continue
        if base.endswith(_NOT_WRITTEN) or (not weights.has_own_head and base == "lm_head.weight"):
            continue
        slack = _MERGED_SLACK if weights.is_changed(base) else 0.0
        load, name = partial(_arranged, architecture, base, weights, spec), _name(base, spec, gguf_name)
        if base.endswith(_GATE_AND_UP):
            for part, own in enumerate((name, name.replace("ffn_gate", "ffn_up"))):
                expected[own] = ExpectedTensor([partial(_half, load, part)], slack)
            continue
        expected[name] = ExpectedTensor([load], slack)
    for name, stack in weights.experts.expected().items():
        matrices = [stack.matrices[expert] for expert in sorted(stack.matrices)]
        slack, stored = (_MERGED_SLACK, False) if stack.is_changed else (0.0, stack.in_mxfp4)
        expected[name] = ExpectedTensor(matrices, slack, is_stack=True, in_mxfp4=stored)
    for name, factors in _rope_factors(spec).items():
        expected[name] = ExpectedTensor([partial(torch.clone, factors)], 1e-6)
    return expected


def draft_layers(architecture: str, stored: Sequence[str]) -> int:
    """Count the layers for multi-token prediction that a file must have.

    Args:
        architecture: architecture of the file.
        stored: names of the checkpoint's tensors.
    """
    found = {match["index"] for name in stored if (match := _DRAFTS.fullmatch(name)) and match["index"]}
    return len(found) if architecture in _WITH_DRAFTS else 0


def _name(base: str, spec: DecoderSpec, gguf_name: Callable[[str], str | None]) -> str:
    """Name a tensor in the file; those for multi-token prediction are in blocks behind the model's own."""
    match = _DRAFTS.fullmatch(base)
    if match is None:
        return gguf_name(base) or base
    if match["around"]:
        return f"blk.{spec.num_layers}.nextn.{_AROUND_DRAFTS.get(match['around'], match['around'])}.weight"
    first = gguf_name(f"model.layers.0.{match['rest']}") or base
    return first.replace("blk.0.", f"blk.{spec.num_layers + int(match['index'])}.")


def _wrong_numbers(header: GgufHeader, origin: Origin) -> list[str]:
    """Compare the numbers that the file has as metadata instead of tensors."""
    weights, wrong = TrainedWeights(origin), set[str]()
    for base in weights.names:
        if match := _XIELU.fullmatch(base):
            layer, key = int(match[1]), f"xielu.{match[2]}"
            found = header.metadata.get(key, ())
            numbers = found if isinstance(found, tuple) else (found,)
            if layer >= len(numbers) or numbers[layer] != float(weights.load(base)):
                wrong.add(key)
    return [f"Its metadata {key} is not the model's." for key in sorted(wrong)]


def _arranged(architecture: str, base: str, weights: TrainedWeights, spec: DecoderSpec) -> torch.Tensor:
    """Load a tensor in the arrangement that llama.cpp's graph reads, independently of the writer's `families`."""
    weight = weights.load(base)
    if ".linear_attn." in base:
        weight = _of_delta_net(base, weight.squeeze(1) if weight.ndim == 3 else weight, spec)
    if base.startswith("mtp.") and weight.ndim == 1:
        return weight + 1.0
    if architecture in _ONE_PLUS and base.endswith("norm.weight") and not base.endswith(_PLAIN_NORM):
        return weight + 1.0
    half_apart = architecture in _INTERLEAVED and not spec.rope.interleaved
    if half_apart and (".q_proj." in base or ".k_proj." in base):
        return weight[_interleaved_order(len(weight), spec.head_dim)]
    if base.endswith(".shared_expert_gate.weight"):
        return weight.squeeze(0)
    return weight.squeeze(1) if weight.ndim == 3 else weight


def _of_delta_net(base: str, weight: torch.Tensor, spec: DecoderSpec) -> torch.Tensor:
    """Arrange a tensor of a gated delta net: its value heads in turns of all key heads, and the decay itself.

    transformers repeats each key head for its value heads (`repeat_interleave`), llama.cpp all of them (`ggml_repeat`).
    """
    delta = spec.delta
    assert delta is not None
    each = delta.value_heads // delta.key_heads
    heads = [key * each + turn for turn in range(each) for key in range(delta.key_heads)]
    kind, size = base.removesuffix(".weight").rpartition(".")[2], delta.value_dim
    if kind == "A_log":
        return -weight[heads].exp()
    if kind in {"in_proj_a", "in_proj_b", "dt_bias"}:
        return weight[heads]
    if kind == "out_proj":
        return torch.cat([weight[:, head * size : (head + 1) * size] for head in heads], dim=1)
    if kind == "norm":
        return weight
    before = len(weight) - delta.value_heads * size  # queries and keys
    parts = [weight[before + head * size : before + (head + 1) * size] for head in heads]
    return torch.cat([weight[:before], *parts])


def _half(load: Callable[[], torch.Tensor], part: int) -> torch.Tensor:
    return load().chunk(2)[part]


def _interleaved_order(rows: int, head: int) -> torch.Tensor:
    """List transformers' row for each row of llama.cpp's matrix: 0, d/2, 1, d/2 + 1, ... of every head of d rows."""
    row = torch.arange(rows)
    place = row % head
    return row - place + place // 2 + (place % 2) * (head // 2)


def _rope_factors(spec: DecoderSpec) -> dict[str, torch.Tensor]:
    """Compute the divisors of rope frequencies, which no checkpoint holds."""
    rope = spec.rope
    if rope.scaling == "longrope":
        return {
            "rope_factors_long.weight": torch.tensor(rope.long_factor),
            "rope_factors_short.weight": torch.tensor(rope.short_factor),
        }
    if rope.scaling == "proportional":  # pairs beyond the share do not turn
        is_turned = np.arange(0, spec.largest_head, 2) < int(spec.largest_head * rope.proportion)
        return {"rope_freqs.weight": torch.from_numpy(np.where(is_turned, 1.0, 1e30)).float()}
    if rope.scaling != "llama3":
        return {}
    # Turns within the original context: frequencies with few turns are slowed by the factor, those with many are not
    # (Llama 3.1's rule as `_compute_llama3_parameters` of transformers states it, solved for the divisor).
    exponents = np.arange(0, spec.head_dim, 2) / spec.head_dim
    turns = (rope.original_context or 8192) * rope.theta**-exponents / (2 * np.pi)
    fast = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    share = np.clip(fast, 0.0, 1.0)
    return {"rope_freqs.weight": torch.from_numpy(1 / (share + (1 - share) / rope.factor)).float()}


def _compare(path: Path, header: GgufHeader, tensor: TensorShape, expected: ExpectedTensor) -> TensorFault | None:
    if not is_judged(tensor.type):
        return TensorFault(tensor.name, "other", f"its type {tensor.type} cannot be compared")
    if expected.is_stack and len(expected.loads) != tensor.shape[0]:
        return TensorFault(tensor.name, "other", f"it is of {tensor.shape[0]} experts and not {len(expected.loads)}")
    shape, choice = tensor.shape[1:] if expected.is_stack else tensor.shape, _code_choice(header, tensor, expected)
    places: list[int] = []
    wrong: list[tuple[Floats, Floats]] = []
    done, kept, worst = 0, 0, 0.0
    for load in expected.loads:
        wanted = load().numpy()
        if wanted.shape != shape:
            return TensorFault(tensor.name, "other", f"its shape is {list(shape)} and not {list(wanted.shape)}")
        wanted = wanted.reshape(-1, tensor.row)
        first = done
        for data, piece in row_pieces(path, header, tensor, range(first, first + len(wanted))):
            truth = wanted[done - first : done - first + len(piece)]
            errors = outside(data, piece, truth, tensor.type, slack=expected.slack, choice=choice)
            bad = np.flatnonzero(errors)
            places += (done + bad).tolist()
            worst = max(worst, float(errors[bad].max(initial=0.0)))
            if kept < _MOST_KEPT:
                wrong.append((piece[bad], truth[bad]))
                kept += wrong[-1][0].size
            done += len(piece)
    if not places:
        return None
    rows, truth = (np.concatenate(part) for part in zip(*wrong, strict=True))
    kind, detail = _classify(rows, truth, complete=len(rows) == len(places))
    if kind == "other":
        detail = _error_text(rows, truth, worst, tensor.type, largest_error(tensor.type, choice))
    if kind == "reordered" and len(places) > 2 and tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
        kind = "permuted"
    where = _expert_text(places, done, len(expected.loads)) if expected.is_stack else _row_text(places, done)
    return TensorFault(tensor.name, kind, ", ".join(filter(None, (where, detail))))


def _code_choice(header: GgufHeader, tensor: TensorShape, expected: ExpectedTensor) -> CodeChoice:
    """Return how a tensor's codes may have been chosen in a file of this type."""
    if expected.in_mxfp4 and tensor.type == STORED_MXFP4:
        return "stored"
    if header.metadata.get("general.file_type") == GGUF_TYPES["Q8_0"].number or tensor.name in _TABLES:
        return "nearest"
    return "refined" if input_name(tensor.name) else "weighted"


def _error_text(found: Floats, wanted: Floats, worst: float, kind: str, largest: float) -> str:
    """Describe by how much rows are off that are no rounding of the trained ones."""
    if not np.isfinite(worst):
        return "with numbers that are not finite"
    text = f"off by {100 * worst:.2g} %"
    if not largest:
        return text
    lengths = np.maximum(np.square(wanted).sum(axis=1, dtype=np.float64), 1e-30)
    factor = float(np.median((found * wanted).sum(axis=1, dtype=np.float64) / lengths))
    text += f", where {kind} rounds by at most {100 * largest:.2g} %" if worst > largest else f", not as {kind} rounds"
    return f"{text}, as if multiplied by {factor:.3g}" if _SCALED < abs(factor - 1) < 1 else text


def _classify(found: Floats, wanted: Floats, *, complete: bool) -> tuple[FaultKind, str]:
    """Classify the damage to the wrong rows, with its size where one number describes it."""
    if not found.any():
        return "zero", "all of it"
    if complete and 1 < len(found) <= _MOST_MATCHED and _only_moved(found, wanted):
        return "reordered", ""
    difference = found - wanted
    if len(found) == 1 and float(difference.std()) < _SAME_RATIO < float(np.abs(difference).mean()):
        return "shifted", f"by {float(difference.mean()):.4g}"
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (found / wanted)[np.abs(wanted) > np.abs(wanted).max() / 100]
    if ratio.size and np.isfinite(ratio).all() and float(ratio.std()) < _SAME_RATIO < abs(float(ratio.mean()) - 1):
        return "scaled", f"times {float(ratio.mean()):.4g}"
    return "other", ""


def _only_moved(found: Floats, wanted: Floats) -> bool:
    """Whether each wrong row equals the expected value of another wrong row."""
    nearest = torch.from_numpy(_directions(found)) @ torch.from_numpy(_directions(wanted)).T
    best, place = nearest.max(dim=1)
    moved = (best > _SAME_DIRECTION) & (place != torch.arange(len(place)))
    return bool(moved.all()) and len(set(place.tolist())) == len(wanted)


def _directions(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30), dtype=np.float32)


def fault_sentences(faults: list[TensorFault], architecture: str) -> list[str]:
    """Describe faults in sentences, one for each kind.

    Args:
        faults: faults that were found.
        architecture: architecture of the file.
    """
    by_kind: dict[FaultKind, list[TensorFault]] = {}
    for fault in faults:
        by_kind.setdefault(fault.kind, []).append(fault)
    texts: dict[FaultKind, str] = {
        "permuted": f"rows in another order than llama.cpp's {architecture} graph reads them: the permutation of Q and "
        "K is missing or wrong",
        "reordered": "rows that changed places",
        "shifted": "numbers that differ by a constant: norms that multiply by 1 + weight are written wrong",
        "scaled": "the trained model's numbers times a factor",
        "zero": "zeros where the trained model has numbers",
        "other": "other numbers than the trained model",
    }
    return [_sentence(alike, texts[kind]) for kind, alike in by_kind.items()]


def _sentence(alike: list[TensorFault], text: str) -> str:
    first = alike[0]
    if len(alike) == 1:
        return f"{first.name} holds {text} ({first.detail})."
    return f"{_named(alike)} hold {text} ({first.name}: {first.detail})."


def _named(faults: list[TensorFault]) -> str:
    names = ", ".join(fault.name for fault in faults[:_MOST_NAMED])
    return f"{names} and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else names


def _missing(names: set[str], before: str, after: str) -> list[str]:
    return [f"{before} the tensor {name} {after}." for name in sorted(names)[:_MOST_NAMED]]


def _expert_text(places: list[int], rows: int, experts: int) -> str:
    """Describe rows of a stack in words."""
    each = rows // experts
    if len(places) == rows:
        return f"all rows of all {experts} experts"
    of = list(dict.fromkeys(place // each for place in places))
    if len(of) == 1:
        return f"{_row_text([place % each for place in places], each) or 'the row'} of expert {of[0]}"
    named = ", ".join(map(str, of[:_MOST_NAMED]))
    more = f" and {len(of) - _MOST_NAMED} more" if len(of) > _MOST_NAMED else ""
    return f"{len(places)} rows of {rows}, of experts {named}{more} of {experts}"


def _row_text(places: list[int], rows: int) -> str:
    """Describe the rows in words; empty for tensors of one row."""
    if rows == 1:
        return ""
    if len(places) == rows:
        return "all rows"
    named = ", ".join(map(str, places[:_MOST_NAMED]))
    more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    return f"{'row' if len(places) == 1 else 'rows'} {named}{more} of {rows}"
