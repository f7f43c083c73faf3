"""Plan the tensors of a GGUF: which there are, and how each is made of the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.weights.experts import ExpertPart, StoredStack
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.gguf_file.changes import changed, in_columns
from burnish_engine.models.checkpoint.gguf_file.rope_factors import llama3_factors
from burnish_engine.models.checkpoint.gguf_file.tensor_names import places
from burnish_engine.models.checkpoint.mtp_layers import mtp_count, with_mtp_layers
from burnish_engine.models.families.rules.gguf import EXPERT_TENSORS, GgufRules

_IGNORED_SUFFIXES = (".rotary_emb.inv_freq", ".rope.freqs", ".attention.bias", ".attention.masked_bias")
_CONVOLUTIONS = ("shortconv.conv.weight", "ssm_conv1d.weight")
_PRECISE = ("ffn_gate_inp.weight", *_CONVOLUTIONS)
"""Matrices that llama.cpp's converter leaves in F32 too: routers and convolutions."""
_STILL = 1e30
"""Divisor of the frequency of a pair that no position turns, as llama.cpp's converter has it."""
_ONE_ROW = "ffn_gate_inp_shexp.weight"
"""Matrix of one row, which llama.cpp's quantizer writes as a vector."""


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor of the file, before it is read."""

    name: str  # GGUF name
    shape: tuple[int, ...]  # shape with rows first, as in torch (GGUF stores it reversed)
    make: Callable[[], torch.Tensor | Iterator[torch.Tensor]]
    """Function that reads base tensors and returns the value in fp32, or the matrices of a stack one by one."""
    full_precision: bool  # whether the tensor stays F32 in every file type
    packed: bool = False  # whether it stays MXFP4 in every file type; `make` then returns the bytes of its rows, uint8

    @property
    def type(self) -> str:
        """GGUF type in an F16 file."""
        return "MXFP4" if self.packed else "F32" if self.full_precision else "F16"


def plan_tensors(rules: GgufRules, spec: DecoderSpec, weights: MergedWeights) -> list[PlannedTensor]:
    """List every tensor under its GGUF name, in the order of the checkpoint, then stacks of experts, then constants.

    A tied head is left out: the loader uses the embedding again. One-dimensional tensors and routers stay F32. Layers
    for multi-token prediction follow the model's own where llama.cpp's graph has them, and are left out elsewhere.

    Args:
        rules: rules of the family, whose architecture names the tensors.
        spec: shape of the model in the file, see `file_spec`.
        weights: weights of the model.

    Raises:
        UsageError: The checkpoint has a tensor that this architecture does not name.
        SetupError: A required tensor is missing.
    """

    def load(base: str) -> torch.Tensor:
        return in_columns(spec, base, changed(rules, spec, base, weights.load(base)))

    names, stacks = weights.names, [*weights.stacks.values()]
    if rules.has_mtp:
        names, stacks = [*names, *weights.mtp_names], [*stacks, *weights.mtp_stacks]
    found = places(rules, spec.num_layers)
    planned: list[PlannedTensor] = []
    elsewhere = {*weights.expert_names, *(name for names in _numbers(rules, spec).values() for name in names)}
    for base in names:
        if base in elsewhere or base.endswith(_IGNORED_SUFFIXES):
            continue
        if spec.tied_embeddings and base == "lm_head.weight":
            continue
        parts = found(base)
        if not parts:
            raise UsageError(
                f"The checkpoint has the tensor {base}, which llama.cpp's {rules.architecture} architecture does not "
                "know.",
                "Export as safetensors instead.",
            )
        rows, *row = weights.shape(base)
        if parts[0].endswith(_CONVOLUTIONS):
            row = row[1:]  # [channels, 1, width]
        shape = tuple(row) if parts[0].endswith(_ONE_ROW) else (rows // len(parts), *row)
        for part, name in enumerate(parts):
            make = partial(_rows, load, base, part * shape[0], shape)
            precise = len(shape) < 2 or name.endswith(_PRECISE)
            planned.append(PlannedTensor(name, shape, make, full_precision=precise))
    planned += [one for stack in stacks for one in _stack(weights, stack)]
    _check_complete({tensor.name for tensor in planned}, rules, spec)
    return [*planned, *_rope_factors(spec)]


def file_spec(rules: GgufRules, spec: DecoderSpec, weights: MergedWeights) -> DecoderSpec:
    """Return the shape of the model with the layers for multi-token prediction that its file has."""
    return with_mtp_layers(spec, mtp_count(weights.mtp_names, spec.num_layers)) if rules.has_mtp else spec


def layer_numbers(rules: GgufRules, spec: DecoderSpec, weights: MergedWeights) -> dict[str, list[float]]:
    """Read the parameters of one number that a file has as metadata: by key, the number of each layer.

    Raises:
        SetupError: The checkpoint lacks one.
    """
    named = _numbers(rules, spec)
    return {key: [float(weights.load(name)) for name in names] for key, names in named.items()}


def _numbers(rules: GgufRules, spec: DecoderSpec) -> dict[str, list[str]]:
    """Return the names in all layers of the parameters that become metadata, by key."""
    layers = range(spec.num_layers)
    return {key: [f"model.layers.{layer}.{name}" for layer in layers] for name, key in rules.numbers.items()}


def _rows(load: Callable[[str], torch.Tensor], base: str, first: int, shape: tuple[int, ...]) -> torch.Tensor:
    return load(base)[first : first + shape[0]].reshape(shape)


def _stack(weights: MergedWeights, stack: StoredStack) -> Iterator[PlannedTensor]:
    block, packed = f"blk.{stack.stack.layer}", weights.keeps_mxfp4(stack)
    for part in stack.parts:
        shape = (stack.stack.experts, *stack.part_shape(part))
        name = f"{block}.{EXPERT_TENSORS[part]}"
        make = partial(_packed if packed else _matrices, weights, stack, part)
        yield PlannedTensor(f"{name}.weight", shape, make, full_precision=False, packed=packed)
        if stack.bias:
            make_bias = partial(_bias, weights, stack, part)
            yield PlannedTensor(f"{name}.bias", shape[:2], make_bias, full_precision=True)


def _matrices(weights: MergedWeights, stack: StoredStack, part: ExpertPart) -> Iterator[torch.Tensor]:
    return (weights.load_expert(stack, expert, part) for expert in range(stack.stack.experts))


def _packed(weights: MergedWeights, stack: StoredStack, part: ExpertPart) -> Iterator[torch.Tensor]:
    return (repack(*weights.load_packed(stack, expert, part)) for expert in range(stack.stack.experts))


def repack(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Turn MXFP4 as safetensors hold it into GGUF's, bit for bit: the same codes and exponents in another order.

    A block of 32 weights is one exponent (E8M0) and 32 codes (E2M1). gpt-oss's files hold neighbors in one byte, the
    first in its low bits, and the exponents in a tensor of their own. GGUF's block (`block_mxfp4`, ggml-common.h) is
    the exponent and then 16 bytes, of which byte i has weight i in its low and weight i + 16 in its high bits.

    Args:
        blocks: codes [rows, columns / 32, 16], the first of two neighbors in the low bits, uint8.
        scales: exponents [rows, columns / 32], uint8.

    Returns:
        Bytes of GGUF's rows [rows, columns / 32 * 17], uint8.
    """
    codes = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-2)
    packed = codes[..., :16] | codes[..., 16:] << 4
    return torch.cat([scales[..., None], packed], dim=-1).flatten(1)


def _bias(weights: MergedWeights, stack: StoredStack, part: ExpertPart) -> torch.Tensor:
    return weights.load(stack.bias)[:, stack.rows(part)]


def _check_complete(names: set[str], rules: GgufRules, spec: DecoderSpec) -> None:
    wanted = {f"blk.{index}.{part}.weight" for index, layer in enumerate(spec.layers) for part in rules.parts(layer)}
    wanted |= {"token_embd.weight", f"{rules.final_norm}.weight"}
    if not spec.tied_embeddings:
        wanted.add("output.weight")
    missing = sorted(wanted - names)
    if missing:
        raise SetupError(
            f"The checkpoint lacks {len(missing)} tensors the export needs, first the one for {missing[0]}.",
            "Download the model again.",
        )


def _rope_factors(spec: DecoderSpec) -> list[PlannedTensor]:
    """Plan the divisors of a rope's frequencies, which no checkpoint holds."""
    rope = spec.rope
    if rope.scaling == "llama3":
        return [_constant("rope_freqs.weight", torch.tensor(llama3_factors(rope, spec.head_dim)))]
    if rope.scaling == "proportional":  # of the layers without a window alone
        pairs = spec.largest_head // 2
        turned = int(rope.proportion * pairs)
        return [_constant("rope_freqs.weight", torch.tensor([1.0] * turned + [_STILL] * (pairs - turned)))]
    if rope.scaling != "longrope":
        return []
    factors = {"long": rope.long_factor, "short": rope.short_factor}
    return [_constant(f"rope_factors_{name}.weight", torch.tensor(values)) for name, values in factors.items()]


def _constant(name: str, value: torch.Tensor) -> PlannedTensor:
    return PlannedTensor(name, tuple(value.shape), lambda: value, full_precision=True)
