"""The codes that products in 8 bits make of their operands, each declared once. Loads no torch."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.experts.declared import ExpertSizes
from burnish_engine.models.decoder.layer_tensors import (
    ANY,
    EVERY,
    TOKENS,
    Alive,
    LayerTensor,
    Phase,
    StackSizes,
    always,
    if_chunked,
)
from burnish_engine.models.families.matrices import StackName

_SCALE = 4  # bytes of a row's scale
MX_BLOCK = 32
"""Columns of a token, and rows and columns of a weight, that share a power of two in MXFP8."""


def coded_bytes(columns: int, products: str) -> int:
    """Return the bytes of a token's codes; in MXFP8 its exponents are counted with them."""
    return columns + (columns // MX_BLOCK if products == "mxfp8" else 0)


def norm_coded(spec: DecoderSpec, products: str, *, turned: bool) -> frozenset[StackName]:
    """Return the stacks whose operand's codes the norm before it writes.

    Experts hand no codes of the gradient to the mixer.

    Args:
        spec: shape of the model.
        products: format of the operands.
        turned: whether the operand is the output's gradient; otherwise it is the input.
    """
    if turned:
        after: frozenset[StackName] = frozenset({"mixer_out", "down"} if spec.sandwich_norms else {"mixer_out"})
        return after if products in {"fp8", "int8"} and not spec.num_experts else frozenset()
    return frozenset({"mixer_in", "gate_up"} if products == "fp8" and spec.pre_norms else ())


def operand_codes(
    stacks: StackSizes, products: str, *, has_post_norms: bool, experts: ExpertSizes | None = None
) -> tuple[LayerTensor, ...]:
    """Declare the codes of the operands of products in 8 bits, where they exist beside a phase's other tensors.

    In the other phases a product is over before the widest of them are made.

    Args:
        stacks: sizes of the layer's stacks; those of the mixer alone in a mixture of experts.
        products: format of the operands, one of `contract.recipe.eight_bit_use.EIGHT_BITS`.
        has_post_norms: whether norms follow the halves.
        experts: sizes of the layer's experts; None: its feed-forward is dense.
    """
    widest = max(stacks["mixer_in"].inputs, stacks["mixer_out"].inputs)
    if experts is None:
        activated, gradient = (coded_bytes(one, products) for one in (stacks["down"].inputs, stacks["gate_up"].outputs))
    else:  # each row of a token's experts has a scale
        activated, gradient = (experts.slots * (size + _SCALE) for size in (experts.size, 2 * experts.size))
    every, evaluated = always(ANY), always(EVERY)
    found = (
        LayerTensor("mixer_codes_TK", (TOKENS, coded_bytes(widest, products)), extra={"mixer": every}, is_byte=True),
        LayerTensor(
            "activated_codes_TI", (TOKENS, activated), extra={"feed_forward": every}, by_chunk=True, is_byte=True
        ),
        LayerTensor(
            "gate_up_gradient_codes_TJ", (TOKENS, gradient), extra={"input_gradient": evaluated}, by_chunk=True,
            is_byte=True,
        ),
    )  # fmt: skip
    if products == "mxfp8" or has_post_norms or experts is not None:
        return found
    # Chunks of the feed-forward's backward pass write their tokens of it, for the mixer's.
    chunked: dict[Phase, Alive] = dict.fromkeys(("feed_forward_backward", "input_gradient"), if_chunked(EVERY))
    middle = LayerTensor("middle_gradient_codes_TH", (TOKENS, stacks["mixer_out"].outputs), extra=chunked, is_byte=True)
    return (*found, middle)
