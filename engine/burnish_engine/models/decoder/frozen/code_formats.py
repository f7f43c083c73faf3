"""The formats of codes by their names in a recipe."""

from __future__ import annotations

from burnish_engine.models.decoder.frozen.code_format import CodeFormat
from burnish_engine.models.decoder.frozen.fp8_format import Fp8Format
from burnish_engine.models.decoder.frozen.mxfp8_format import Mxfp8Format

CODE_FORMATS: dict[str, CodeFormat] = {"fp8": Fp8Format(), "mxfp8": Mxfp8Format()}
"""Formats by the values of `contract.recipe.fp8_use.EIGHT_BITS`."""
