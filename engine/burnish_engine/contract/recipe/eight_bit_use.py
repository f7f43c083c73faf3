"""Says what of a run is done in 8 bits, and in which format. Loads no torch."""

from __future__ import annotations

from typing import NamedTuple

EIGHT_BITS = ("int8", "fp8", "mxfp8")
"""Values of train.products for products of 8-bit operands, the one with the smallest error first.

Each is a format that weights can be kept in as well: whole numbers from -127 to 127 with a scale for each row, whose
columns are rotated by blocks before, E4M3 with a scale for each row, and E4M3 with a power of two for each block of 32.
"""

TIMED_BY_AUTO = ("int8",)
"""Formats that train.products = "auto" may choose: those whose loss on documentation was measured within 0.3 % of that
in 16 bits. FP8 costs 0.6 %, and MXFP8 rounds more; both are chosen by name."""


class EightBitUse(NamedTuple):
    """Use of 8-bit numbers in a run.

    Attributes:
        stored: format that the frozen weights of the layers' stacks are kept in, one of `EIGHT_BITS`, and those of
            experts that are not in MXFP4; empty: none of them.
        products: format of the operands of products with these weights and, in FP8, with experts'; empty: they are of
            the compute dtype.
    """

    stored: str = ""
    products: str = ""

    @property
    def stores_experts(self) -> bool:
        """Whether experts that are not in MXFP4 are kept as codes too: where nothing else would be read of them."""
        return bool(self.stored and self.products)

    @property
    def logits_in_int8(self) -> bool:
        """Whether logits are products of INT8, whatever the format of the other products: its error is the smallest."""
        return bool(self.products)


NO_EIGHT_BITS = EightBitUse()
