"""The formats of codes by their names in a recipe, and the one that a stack's products have."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import LayerKind
from burnish_engine.models.decoder.frozen.code_format import CodeFormat
from burnish_engine.models.decoder.frozen.mxfp8_format import Mxfp8Format
from burnish_engine.models.decoder.frozen.row_format import RowFormat
from burnish_engine.models.families.matrices import StackName
from burnish_kernels.eight_bit_linear.op import CODES, INT8

CODE_FORMATS: dict[str, CodeFormat] = {
    "int8": RowFormat(INT8, rotated=True),
    "fp8": RowFormat(CODES),
    "mxfp8": Mxfp8Format(),
}
"""Formats by the values of `contract.recipe.eight_bit_use.EIGHT_BITS`."""

_NOT_ROTATED = RowFormat(INT8)


def code_format(name: str, stack: StackName, kind: LayerKind) -> CodeFormat:
    """Return the format of a stack's weight and operands.

    INT8 rotates what the hidden state and the activation have: numbers far above their neighbors. Attention returns
    means of values, which have none: rounded as they are, they cost the first gradient about 0.001 of its cosine.

    Args:
        name: name of the format, a key of `CODE_FORMATS`.
        stack: stack of the weight.
        kind: kind of its layer.
    """
    is_behind_attention = stack == "mixer_out" and kind in {"attention", "sliding_attention"}
    return _NOT_ROTATED if name == "int8" and is_behind_attention else CODE_FORMATS[name]
