"""Says what of a run is done in 8 bits, and in which format. Loads no torch."""

from __future__ import annotations

from typing import NamedTuple

EIGHT_BITS = ("fp8", "mxfp8", "int8")
"""Values of train.products for products of 8-bit operands, the one with the smallest error first.

Each is a format that weights can be kept in as well: E4M3 with a scale for each row, E4M3 with a power of two for each
block of 32, and whole numbers from -127 to 127 with a scale for each row.
"""

TIMED_BY_AUTO = ("fp8", "mxfp8")
"""Formats that train.products = "auto" may choose. INT8 is chosen by name alone: a scale for a whole row leaves few
levels to the others where one number of a token is large, and the loss rises half as much again as in FP8."""


class Fp8Use(NamedTuple):
    """Use of 8-bit numbers in a run.

    Attributes:
        stored: format that the frozen weights of the layers' dense stacks are kept in, one of `EIGHT_BITS`; empty: none
            of them.
        products: format of the operands of products with these weights; empty: they are of the compute dtype.
    """

    stored: str = ""
    products: str = ""


NO_FP8 = Fp8Use()
