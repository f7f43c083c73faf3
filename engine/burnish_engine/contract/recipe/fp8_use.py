"""Says what of a run is done in FP8 (E4M3). Loads no torch."""

from __future__ import annotations

from typing import NamedTuple


class Fp8Use(NamedTuple):
    """Use of FP8 in a run.

    Attributes:
        stored: whether the frozen weights of the layers' dense stacks are kept in FP8, one scale an output row.
        products: whether products with these weights are computed in FP8; else in the compute dtype.
    """

    stored: bool = False
    products: bool = False


NO_FP8 = Fp8Use()
