"""The codes that products in FP8 make of their operands, each declared once. Loads no torch."""

from __future__ import annotations

from burnish_engine.models.decoder.layer_tensors import ANY, EVERY, TOKENS, LayerTensor, StackSizes, always


def operand_codes(stacks: StackSizes) -> tuple[LayerTensor, ...]:
    """Declare the codes of the operands of products in FP8, where they exist beside a phase's other tensors.

    In the other phases a product is over before the widest of them are made.
    """
    widest = max(stacks["mixer_in"].inputs, stacks["mixer_out"].inputs)
    every, evaluated = always(ANY), always(EVERY)
    return (
        LayerTensor("mixer_codes_TK", (TOKENS, widest), extra={"mixer": every}, is_byte=True),
        LayerTensor(
            "activated_codes_TI", (TOKENS, stacks["down"].inputs), extra={"feed_forward": every}, by_chunk=True,
            is_byte=True,
        ),
        LayerTensor(
            "gate_up_gradient_codes_TJ", (TOKENS, stacks["gate_up"].outputs), extra={"input_gradient": evaluated},
            by_chunk=True, is_byte=True,
        ),
    )  # fmt: skip
