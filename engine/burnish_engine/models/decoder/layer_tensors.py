"""The tensors of a decoder layer, each declared once: shape, save levels, and when it is alive. Loads no torch.

The decoder allocates and drops tensors by this table, and `advise` counts memory and recomputed products by it. A layer
is a mixer (attention or another) and a feed-forward, dense or of experts; `mixers` and `experts` declare their own.

Shapes: T tokens, H hidden size, C outputs of the mixer's input projection, I width of the feed-forward, J = 2I (without
a gate J = I), R columns of adapters, E a width extended by these (see `stacked_linear`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple, Protocol, TypeAlias

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, SaveLevel
from burnish_engine.models.families.matrices import StackName

STACK_OUTPUTS: dict[StackName, str] = {
    "mixer_in": "projected_TC", "mixer_out": "middle_TH", "gate_up": "gate_up_TJ",
}  # fmt: skip
"""The tensor that a stack's product makes; where a save level does not keep it, the product is computed again."""

Phase = Literal["mixer", "feed_forward", "feed_forward_backward", "input_gradient", "mixer_backward"]
"""A moment at which a layer has many tensors: attention (or another mixer) and the feed-forward in the forward pass;
the activation's gradient, the gradient of the feed-forward's input, and the mixer's gradient in the backward pass."""
PHASES: tuple[Phase, ...] = ("mixer", "feed_forward", "feed_forward_backward", "input_gradient", "mixer_backward")
FORWARD: tuple[Phase, ...] = ("mixer", "feed_forward")

NOTHING: Literal["nothing"] = "nothing"
"""The level of a forward pass that nothing will be differentiated of."""
Levels: TypeAlias = "frozenset[SaveLevel | Literal['nothing']]"
Reader = Literal["mixer", "mixer_out", "layer"]
"""The last reader of a tensor in the forward pass: the mixer, its output projection, or the rest of the layer."""
READERS: tuple[Reader, ...] = ("mixer", "mixer_out", "layer")
ROWS_AT_ONCE = 256
"""Output rows of a stack whose magnitudes' gradients are computed at once (DoRA)."""
TOKENS = -1
"""Stands for the number of tokens in a shape."""


def levels(*names: SaveLevel | Literal["nothing"]) -> Levels:
    """Return a set of save levels."""
    return frozenset(names)


NEVER = levels()
EVERY: Levels = frozenset(LEVEL_NAMES)
ANY = EVERY | levels(NOTHING)
WITH_GATE_UP = levels("all", "rotated", "products", "offloaded")
"""Save levels that keep the widest outputs, those of the gate and up projections."""
WITH_PRODUCTS = WITH_GATE_UP | levels("narrow")
"""Save levels that keep the outputs of the other products too."""
WITH_OUTPUT = WITH_PRODUCTS | levels("attention", "host")
"""Save levels that keep the mixer's output."""
RECOMPUTED = levels("attention", "host", "input")
"""Save levels at which a layer is computed again from its input."""
HOSTED = levels("host", "input")
"""Save levels that offload what every level keeps: the layer's input, and what norms after the feed-forward read."""
OFFLOADING = HOSTED | levels("offloaded")
"""Save levels that offload tensors to host memory."""


class Alive(NamedTuple):
    """Save levels at which something holds, by whether the feed-forward runs in chunks of tokens.

    Attributes:
        whole: levels where all tokens pass the feed-forward at once.
        chunked: levels where they pass it in chunks.
    """

    whole: Levels
    chunked: Levels

    def at(self, *, chunked: bool) -> Levels:
        """Return the levels for one of the two."""
        return self.chunked if chunked else self.whole


def always(found: Levels) -> Alive:
    """Return levels that do not depend on chunks."""
    return Alive(found, found)


def if_whole(found: Levels) -> Alive:
    """Return levels that hold only where all tokens pass the feed-forward at once."""
    return Alive(found, NEVER)


def if_chunked(found: Levels) -> Alive:
    """Return levels that hold only where tokens pass the feed-forward in chunks."""
    return Alive(NEVER, found)


NOT_KEPT = always(NEVER)


@dataclass(frozen=True)
class LayerTensor:
    """One tensor that a layer makes.

    Attributes:
        name: field of `SavedActivations`, or a name of its own for a tensor that is never kept.
        shape: dimensions, `TOKENS` for the tokens.
        kept: levels at which it stays from the forward to the backward pass.
        host: levels at which it is in host memory meanwhile.
        placed: levels at which its memory is allocated before the layer's other tensors. On the device, kept tensors
            then lie next to each other: allocated later, they lay between temporary tensors, and wide tensors found no
            gap any more (fragmentation took 3.6 GiB of 28).
        extra: levels at which it exists in a phase although it is not kept.
        freed: levels at which it is gone in a phase although it was kept.
        read: last thing in the forward pass that reads it; then it is dropped, unless it is kept.
        by_chunk: whether only a chunk's tokens exist where it is not kept.
        is_fp32: whether it is fp32 whatever the layer computes in.
        is_int32: whether it holds whole numbers of 32 bits.
        is_byte: whether a number takes one byte.
        of_mixer: whether the mixer's half keeps it, until its own gradient; otherwise the feed-forward's half does.
        is_view: whether it is a part of another tensor that has to be copied to be kept.
        needed_on: device that alone needs it, as scratch memory of an operation: kernels of a GPU, or references on a
            CPU.
    """

    name: str
    shape: tuple[int, ...]
    kept: Alive = NOT_KEPT
    host: Levels = NEVER
    placed: Levels = NEVER
    extra: Mapping[Phase, Alive] = field(default_factory=dict)
    freed: Mapping[Phase, Alive] = field(default_factory=dict)
    read: Reader = "layer"
    by_chunk: bool = False
    is_fp32: bool = False
    is_int32: bool = False
    is_byte: bool = False
    of_mixer: bool = False
    is_view: bool = False
    needed_on: Literal["any", "gpu", "cpu"] = "any"

    @property
    def width(self) -> int:
        """The numbers of one token."""
        return -prod(self.shape)

    def number_bytes(self, width: int) -> int:
        """Return the bytes of one of its numbers, where those of the compute dtype take `width`."""
        return 1 if self.is_byte else 4 if self.is_fp32 or self.is_int32 else width

    def is_kept(self, level: SaveLevel, *, chunked: bool) -> bool:
        """Return whether a layer keeps it, on the device or in host memory."""
        return level in self.kept.at(chunked=chunked)

    def alive(self, phase: Phase, *, chunked: bool) -> Levels:
        """Return the levels at which it exists in a phase."""
        found = self.extra[phase].at(chunked=chunked) if phase in self.extra else NEVER
        phases = PHASES[1:] if self.of_mixer else PHASES[2:4]
        if phase not in phases:
            return found
        kept = self.kept.at(chunked=chunked)
        return found | (kept - self.freed[phase].at(chunked=chunked) if phase in self.freed else kept)


class StackSize(Protocol):
    """The sizes of a linear stack."""

    @property
    def inputs(self) -> int:
        """Number of input features."""
        ...

    @property
    def outputs(self) -> int:
        """Number of output features."""
        ...

    @property
    def rank(self) -> int:
        """Number of adapter columns."""
        ...

    @property
    def is_dora(self) -> bool:
        """Whether magnitudes scale its outputs."""
        ...


StackSizes: TypeAlias = "Mapping[StackName, StackSize]"


def stream_tensors(hidden: int, *, has_pre_norms: bool) -> tuple[LayerTensor, ...]:
    """Declare the layer's input, and what its first norm found."""
    always_there: dict[Phase, Alive] = {"mixer": always(ANY), "feed_forward": always(levels(NOTHING))}
    start = LayerTensor(
        "start_TH",
        (TOKENS, hidden),
        kept=always(EVERY),
        host=HOSTED,
        extra=always_there,
        of_mixer=True,
    )
    if not has_pre_norms:
        return (start,)
    inverse = LayerTensor(
        "start_inverse_T", (TOKENS,), kept=always(EVERY), extra=always_there, is_fp32=True, of_mixer=True
    )
    return start, inverse


def output_tensors(hidden: int, down_rank: int) -> tuple[LayerTensor, ...]:
    """Declare the layer's output, and the adapter columns of the feed-forward's last input.

    Args:
        hidden: hidden size.
        down_rank: number of these columns.
    """
    everywhere: dict[Phase, Alive] = dict.fromkeys(FORWARD, always(EVERY))
    return (
        LayerTensor("xa_down_TR", (TOKENS, down_rank), kept=always(EVERY), placed=EVERY, extra=everywhere),
        LayerTensor("next_TH", (TOKENS, hidden), placed=EVERY, extra={**everywhere, "feed_forward": always(ANY)}),
    )


def magnitude_products(phase: Phase, *, by_chunk: bool = False) -> LayerTensor:
    """Declare the products of which DoRA's magnitudes get their gradients: outputs, and times their gradients twice."""
    return LayerTensor(
        f"magnitude_products_{phase}",
        (TOKENS, 3 * ROWS_AT_ONCE),
        extra={phase: always(EVERY)},
        by_chunk=by_chunk,
        is_fp32=True,
    )


def between_tensors(hidden: int, *, has_pre_norms: bool, has_post_norms: bool) -> tuple[LayerTensor, ...]:
    """Declare the stream between the halves, and with norms after the halves what those read."""
    middle_again: dict[Phase, Alive] = dict.fromkeys(PHASES[2:4], always(RECOMPUTED))
    evaluated: dict[Phase, Alive] = dict.fromkeys(FORWARD, always(levels(NOTHING)))
    middle: tuple[LayerTensor, ...] = (
        LayerTensor(
            "middle_TH",
            (TOKENS, hidden),
            kept=always(WITH_PRODUCTS),
            placed=WITH_PRODUCTS,
            extra={"mixer": always(WITH_PRODUCTS), "feed_forward": always(ANY), **middle_again},
        ),
    )
    if has_pre_norms:
        inverse = LayerTensor(
            "middle_inverse_T", (TOKENS,), kept=always(WITH_PRODUCTS), extra={**evaluated, **middle_again}, is_fp32=True
        )
        middle = *middle, inverse
    if not has_post_norms:
        return middle
    return (
        *middle,
        LayerTensor(
            "mixer_out_TH",
            (TOKENS, hidden),
            kept=always(WITH_PRODUCTS),
            placed=WITH_PRODUCTS,
            extra={
                "mixer": always(WITH_PRODUCTS),
                "feed_forward": always(RECOMPUTED | levels(NOTHING)),
                **dict.fromkeys(PHASES[2:], always(RECOMPUTED)),
            },
            of_mixer=True,
        ),
        LayerTensor(
            "mixer_out_inverse_T", (TOKENS,), kept=always(WITH_PRODUCTS), extra=evaluated, is_fp32=True, of_mixer=True
        ),
    )


def feed_forward_tensors(
    hidden: int, stacks: StackSizes, *, has_pre_norms: bool, has_post_norms: bool, is_fused: bool
) -> tuple[LayerTensor, ...]:
    """Declare the tensors of the feed-forward.

    Args:
        hidden: hidden size.
        stacks: sizes of the layer's stacks.
        has_pre_norms: whether a norm precedes the feed-forward.
        has_post_norms: whether a norm follows it.
        is_fused: whether a kernel differentiates the activation together with the adapters, so that it is never
            written out again.
    """
    wide, down = stacks["gate_up"], stacks["down"]
    gate_up, x_mlp, activated = feed_forward_activations(wide.outputs, wide.inputs + wide.rank, down.inputs + down.rank)
    found = [
        gate_up,
        LayerTensor(
            "xa_gate_up_TR",
            (TOKENS, wide.rank),
            kept=always(WITH_GATE_UP),
            placed=WITH_GATE_UP,
            extra={"mixer": always(WITH_GATE_UP), "feed_forward": always(EVERY)},
        ),
        x_mlp,
        activated,
        LayerTensor(
            "activated_again_TI",
            (TOKENS, down.inputs),
            extra={} if is_fused else {"feed_forward_backward": Alive(EVERY - levels("all"), EVERY)},
            by_chunk=True,
        ),
        LayerTensor(
            "activated_gradient_TI", (TOKENS, down.inputs), extra={"feed_forward_backward": always(EVERY)},
            by_chunk=True,
        ),
        LayerTensor(
            "gate_up_gradient_TE",
            (TOKENS, wide.outputs + wide.rank),
            extra={"feed_forward_backward": always(EVERY), "input_gradient": always(EVERY)},
            by_chunk=True,
        ),
        LayerTensor("x_mlp_gradient_TH", (TOKENS, hidden), extra={"input_gradient": always(EVERY)}, by_chunk=True),
    ]  # fmt: skip
    if has_pre_norms:
        again = Alive(WITH_GATE_UP - levels("all"), WITH_GATE_UP)
        found.append(LayerTensor("x_mlp_again_TH", (TOKENS, hidden), extra={"input_gradient": again}, by_chunk=True))
    if has_post_norms or down.is_dora:
        found.append(
            LayerTensor(
                "mlp_out_gradient_TE",
                (TOKENS, hidden + down.rank),
                extra={"feed_forward_backward": always(EVERY)},
                by_chunk=True,
            )
        )
    if wide.is_dora or down.is_dora:
        found.append(magnitude_products("feed_forward_backward", by_chunk=True))
    return (*found, *normalized_output(hidden)) if has_post_norms else tuple(found)


def feed_forward_activations(gate_up: int, x: int, activated: int) -> tuple[LayerTensor, LayerTensor, LayerTensor]:
    """Declare gate and up, their input, and the activation, of a dense feed-forward or of experts.

    Args:
        gate_up: numbers of gate and up for a token.
        x: numbers of their input.
        activated: numbers of the activation.
    """
    x_again = always(EVERY - WITH_GATE_UP)
    return (
        LayerTensor(
            "gate_up_TJ",
            (TOKENS, gate_up),
            kept=always(WITH_GATE_UP),
            host=levels("offloaded"),
            placed=WITH_GATE_UP,
            extra={
                "mixer": always(WITH_GATE_UP),
                "feed_forward": always(ANY),
                "feed_forward_backward": always(EVERY - WITH_GATE_UP),
            },
            freed={"input_gradient": if_whole(WITH_GATE_UP)},
            by_chunk=True,
        ),
        LayerTensor(
            "x_mlp_TE",
            (TOKENS, x),
            kept=if_whole(levels("all")),
            extra={"feed_forward": always(ANY), "feed_forward_backward": x_again, "input_gradient": x_again},
            by_chunk=True,
        ),
        LayerTensor(
            "activated_TE",
            (TOKENS, activated),
            kept=if_whole(levels("all")),
            extra={"feed_forward": always(ANY)},
            by_chunk=True,
        ),
    )


def normalized_output(hidden: int) -> tuple[LayerTensor, LayerTensor]:
    """Declare what the norm after a feed-forward or experts reads: their output, and its inverse norm."""
    evaluated: dict[Phase, Alive] = dict.fromkeys(FORWARD, always(levels(NOTHING)))
    return (
        LayerTensor(
            "mlp_out_TH",
            (TOKENS, hidden),
            kept=always(EVERY),
            host=HOSTED,
            placed=EVERY,
            extra={"mixer": always(EVERY), "feed_forward": always(ANY)},
        ),
        LayerTensor("mlp_out_inverse_T", (TOKENS,), kept=always(EVERY), extra=evaluated, is_fp32=True),
    )


def end_tensors(size: int) -> tuple[LayerTensor, ...]:
    """Declare what a layer keeps of an input of its own: the logits of its gate beside it, and an inverse norm.

    Args:
        size: numbers of that input; 0: there is none.
    """
    if not size:
        return ()
    return (
        LayerTensor(
            "own_input_TJ",
            (TOKENS, 2 * size),
            kept=always(WITH_PRODUCTS),
            placed=WITH_PRODUCTS,
            extra={"mixer": always(WITH_PRODUCTS), "feed_forward": always(WITH_PRODUCTS)},
        ),
        LayerTensor("own_input_inverse_T", (TOKENS,), kept=always(EVERY), is_fp32=True),
    )


def stacks_again(tensors: Sequence[LayerTensor], level: SaveLevel, *, chunked: bool) -> list[StackName]:
    """List the stacks whose product the backward pass computes again at a save level, once for each time.

    A layer that keeps nothing but its input, and whose feed-forward runs in chunks, projects the mixer's input twice:
    for the mixer's output, and for its gradient.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    outputs = {stack: by_name[name] for stack, name in STACK_OUTPUTS.items()}
    again = [stack for stack, made in reversed(outputs.items()) if not made.is_kept(level, chunked=chunked)]
    if chunked and not by_name["mixed_TE"].is_kept(level, chunked=True):
        again.append("mixer_in")
    return again
