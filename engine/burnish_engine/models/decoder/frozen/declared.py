"""The codes that products in 8 bits make of their operands, each declared once. Loads no torch."""

from __future__ import annotations

from burnish_engine.models.decoder.layer_tensors import ANY, EVERY, TOKENS, LayerTensor, StackSizes, always

MX_BLOCK = 32
"""Columns of a token, and rows and columns of a weight, that share a power of two in MXFP8."""


def operand_codes(stacks: StackSizes, products: str) -> tuple[LayerTensor, ...]:
    """Declare the codes of the operands of products in 8 bits, where they exist beside a phase's other tensors.

    In the other phases a product is over before the widest of them are made. In MXFP8 the exponents count with the
    codes.

    Args:
        stacks: sizes of the layer's stacks.
        products: format of the operands, one of `contract.recipe.fp8_use.EIGHT_BITS`.
    """

    def coded(columns: int) -> int:
        return columns + (columns // MX_BLOCK if products == "mxfp8" else 0)

    widest = max(stacks["mixer_in"].inputs, stacks["mixer_out"].inputs)
    every, evaluated = always(ANY), always(EVERY)
    return (
        LayerTensor("mixer_codes_TK", (TOKENS, coded(widest)), extra={"mixer": every}, is_byte=True),
        LayerTensor(
            "activated_codes_TI", (TOKENS, coded(stacks["down"].inputs)), extra={"feed_forward": every}, by_chunk=True,
            is_byte=True,
        ),
        LayerTensor(
            "gate_up_gradient_codes_TJ", (TOKENS, coded(stacks["gate_up"].outputs)),
            extra={"input_gradient": evaluated}, by_chunk=True, is_byte=True,
        ),
    )  # fmt: skip
