"""Says what of a run is done in 8 bits, with codes of FP8 (E4M3) or INT8. Loads no torch."""

from __future__ import annotations

from typing import Literal, NamedTuple

Codes = Literal["fp8", "int8"]
"""Number format of codes in 8 bits: E4M3, or whole numbers from -127 to 127."""

EIGHT_BIT_PRODUCTS = ("fp8", "int8", "mxfp8")
"""Values of train.products that multiply frozen weights in 8 bits."""


class Fp8Use(NamedTuple):
    """Use of 8 bits in a run.

    Attributes:
        stored: whether the frozen weights of the layers' dense stacks are kept in 8 bits, one scale an output row.
        products: whether products with these weights are computed in 8 bits; else in the compute dtype.
        codes: number format of the codes.
    """

    stored: bool = False
    products: bool = False
    codes: Codes = "fp8"


NO_FP8 = Fp8Use()
