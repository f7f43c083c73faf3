"""The tensors and costs of a layer with a gated delta net. Loads no torch. Shapes as in `gated_delta.mixer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec, DeltaSpec, LayerSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.layer_tensors import (
    ANY,
    EVERY,
    PHASES,
    TOKENS,
    WITH_OUTPUT,
    Alive,
    LayerTensor,
    Phase,
    StackSizes,
    always,
    levels,
)
from burnish_engine.models.decoder.mixers.declaration import MixerDeclaration, Moved
from burnish_engine.models.decoder.mixers.projections import projection_tensors

# Numbers of a token that the kernels around the delta rule move, as (channels of the convolution, width of the output).
# Forward: the convolution reads and writes its channels; the norm reads what was read and the gate and writes the
# output, which an adapter reads. Backward: the convolution again, its gradient from three tensors, and adapters read
# inputs and outputs of the projections.
_MOVED = ((2, 4), (7, 9))
CHUNK = 64
"""Tokens that the kernels compute together (`burnish_kernels.delta_rule.sizes`, which loads torch)."""
# Numbers in fp32 that the reference takes of a token, forward and by autograd: for each number of its keys, for each
# number of a value head's key and value, for each token of a chunk and value head, and of its share of the states.
_REFERENCE: dict[Phase, tuple[float, float, float, float]] = {
    "mixer": (2, 4, 4, 1.5), "mixer_backward": (4, 12, 6.5, 0)
}  # fmt: skip
# Time of the delta rule's kernels beside their operations, in passes over their scratch memory, forward and backward.
# Set by one layer of 16 value heads on an H200 (`tests/bench/LOG.md`): 0.56 and 1.58 ms.
_SCRATCH_PASSES = (3.75, 7.5)


class GatedDeltaDeclaration(MixerDeclaration):
    """A convolution, a state of fixed size for each head, and a gated norm.

    What is read from the states is kept wherever the mixer's output is; the convolution is computed again.
    """

    @override
    def tensors(self, spec: DecoderSpec, stacks: StackSizes) -> tuple[LayerTensor, ...]:
        delta = _delta(spec)
        read = LayerTensor(
            "read_TJ",
            (TOKENS, delta.output),
            kept=always(WITH_OUTPUT),
            placed=WITH_OUTPUT,
            extra={"mixer": always(ANY), **dict.fromkeys(PHASES[2:], always(levels("input")))},
            read="mixer_out",
            of_mixer=True,
        )
        at_work: dict[Phase, Alive] = {"mixer": always(ANY), "mixer_backward": always(EVERY)}
        convolved = LayerTensor("convolved_TX", (TOKENS, delta.convolved), extra=at_work)
        (gates, forward), (_, backward) = (_scratch(delta, backward=one) for one in (False, True))
        kernels = (
            _scratch_tensor("gate_scratch", gates, at_work, is_fp32=True),
            _scratch_tensor("forward_scratch", forward, {"mixer": always(ANY)}),
            _scratch_tensor("backward_scratch", backward, {"mixer_backward": always(EVERY)}),
        )
        return (*projection_tensors(stacks), read, convolved, *kernels, *_reference_tensors(delta))

    @override
    def moved(self, spec: DecoderSpec) -> Moved:
        delta = _delta(spec)
        forward, backward = (
            channels * delta.convolved + outputs * delta.output + _scratch_moved(delta, backward=bool(way))
            for way, (channels, outputs) in enumerate(_MOVED)
        )
        return Moved(forward, backward)

    @override
    def moved_again(self, spec: DecoderSpec, level: SaveLevel) -> int:
        return self.moved(spec).forward if level == "input" else 0

    @override
    def operations(self, spec: DecoderSpec, layer: LayerSpec, tokens: int, span: float, edge: float) -> float:
        # For each value head and token: products of a chunk's tokens with each other (keys with keys, queries with
        # keys, the triangular system with keys and with values, what is read with values), and with the state (reading
        # it for the new values and for the output, writing it).
        delta = _delta(spec)
        keys, values = delta.key_dim, delta.value_dim
        pairs = 2 * CHUNK * (3 * keys + 2 * values)
        return float(tokens * delta.value_heads * (pairs + 6 * keys * values))


def scratch_numbers(key_heads: int, value_heads: int, keys: int, values: int, *, backward: bool) -> tuple[int, int]:
    """Return the numbers of scratch memory for a token: those in fp32, and those in the compute dtype.

    It is what `delta_rule.sizes.Workspace` takes in 16 bits for all heads together.

    Args:
        key_heads: number of key heads.
        value_heads: number of value heads.
        keys: numbers of a key.
        values: numbers of a value.
        backward: whether it is the backward pass.
    """
    state = keys * values // CHUNK
    by_value_head = CHUNK + keys + values + state + (values + state) * backward
    return 4 * value_heads, 2 * key_heads * keys + value_heads * by_value_head


def prompt_numbers(spec: DecoderSpec) -> int:
    """Count the numbers of a token of a prompt that exist at once in a layer, those in fp32 twice."""
    delta = spec.delta
    if delta is None:
        return 0
    exact, scratch = _scratch(delta, backward=False)
    exact += delta.state // (2 * CHUNK)  # states are in fp32 then
    return 2 * delta.convolved + 3 * delta.output + 2 * exact + scratch


def _delta(spec: DecoderSpec) -> DeltaSpec:
    assert spec.delta is not None
    return spec.delta


def _scratch(delta: DeltaSpec, *, backward: bool) -> tuple[int, int]:
    """Return the numbers of scratch memory for a token, see `scratch_numbers`."""
    return scratch_numbers(delta.key_heads, delta.value_heads, delta.key_dim, delta.value_dim, backward=backward)


def _scratch_tensor(
    name: str, numbers: int, extra: Mapping[Phase, Alive], *, is_fp32: bool = False, on: Literal["gpu", "cpu"] = "gpu"
) -> LayerTensor:
    return LayerTensor(name, (TOKENS, numbers), extra=extra, is_fp32=is_fp32, needed_on=on)


def _reference_tensors(delta: DeltaSpec) -> list[LayerTensor]:
    """Declare what `delta_rule.reference` takes."""
    found = []
    for phase, (keys, values, pairs, states) in _REFERENCE.items():
        one_head = values * (delta.key_dim + delta.value_dim) + pairs * CHUNK
        one_head += states * delta.key_dim * delta.value_dim / CHUNK
        numbers = int(keys * delta.key_heads * delta.key_dim + delta.value_heads * one_head)
        alive = always(ANY if phase == "mixer" else EVERY)
        found.append(_scratch_tensor(f"reference_{phase}", numbers, {phase: alive}, is_fp32=True, on="cpu"))
    return found


def _scratch_moved(delta: DeltaSpec, *, backward: bool) -> int:
    return int(_SCRATCH_PASSES[backward] * sum(_scratch(delta, backward=backward)))
