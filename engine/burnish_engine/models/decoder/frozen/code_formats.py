"""The formats of codes by their names in a recipe."""

from __future__ import annotations

from burnish_engine.models.decoder.frozen.code_format import CodeFormat
from burnish_engine.models.decoder.frozen.mxfp8_format import Mxfp8Format
from burnish_engine.models.decoder.frozen.row_format import RowFormat
from burnish_kernels.eight_bit_linear.op import CODES, INT8

CODE_FORMATS: dict[str, CodeFormat] = {
    "int8": RowFormat(INT8, rotated=True),
    "fp8": RowFormat(CODES),
    "mxfp8": Mxfp8Format(),
}
"""Formats by the values of `contract.recipe.eight_bit_use.EIGHT_BITS`."""
