"""The codes that products in 8 bits make of their operands, each declared once. Loads no torch."""

from __future__ import annotations

from burnish_engine.models.decoder.layer_tensors import ANY, EVERY, TOKENS, LayerTensor, StackSizes, always

MX_BLOCK = 32
"""Columns of a token, and rows and columns of a weight, that share a power of two in MXFP8."""


def coded_bytes(columns: int, products: str) -> int:
    """Return the bytes of a token's codes; in MXFP8 its exponents are counted with them."""
    return columns + (columns // MX_BLOCK if products == "mxfp8" else 0)


def operand_codes(stacks: StackSizes, products: str) -> tuple[LayerTensor, ...]:
    """Declare the codes of the operands of products in 8 bits, where they exist beside a phase's other tensors.

    In the other phases a product is over before the widest of them are made.

    Args:
        stacks: sizes of the layer's stacks.
        products: format of the operands, one of `contract.recipe.eight_bit_use.EIGHT_BITS`.
    """
    widest = max(stacks["mixer_in"].inputs, stacks["mixer_out"].inputs)
    every, evaluated = always(ANY), always(EVERY)
    return (
        LayerTensor("mixer_codes_TK", (TOKENS, coded_bytes(widest, products)), extra={"mixer": every}, is_byte=True),
        LayerTensor(
            "activated_codes_TI", (TOKENS, coded_bytes(stacks["down"].inputs, products)),
            extra={"feed_forward": every}, by_chunk=True, is_byte=True,
        ),
        LayerTensor(
            "gate_up_gradient_codes_TJ", (TOKENS, coded_bytes(stacks["gate_up"].outputs, products)),
            extra={"input_gradient": evaluated}, by_chunk=True, is_byte=True,
        ),
    )  # fmt: skip
