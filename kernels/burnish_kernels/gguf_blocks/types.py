"""Layout of GGUF's block types. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockType:
    """Layout of a type's blocks (ggml-common.h of llama.cpp).

    Attributes:
        values: number of neighboring weights of a row in a block.
        bytes: size of a block.
        group: number of neighbors that share scale and offset.
        low: offset of the codes' low four bits, or of the codes where they are bytes.
        high: offset of the codes' higher bits; -1 where there are none.
        center: number that is taken from each code.
        form: how scales and codes are arranged: "plain" with one scale a block, "bytes" with codes of eight bits too,
            or as in the type of that name; "K" is that of Q4_K and Q5_K.
        offset: whether a number is added to scale times code.
        codebook: whether codes stand for the numbers of `CODEBOOK`.
    """

    values: int
    bytes: int
    group: int
    low: int
    high: int = -1
    center: int = 0
    form: str = "plain"
    offset: bool = False
    codebook: bool = False


BLOCK_TYPES = {
    "Q4_0": BlockType(32, 18, 32, 2, center=8),
    "Q4_1": BlockType(32, 20, 32, 4, offset=True),
    "Q5_0": BlockType(32, 22, 32, 6, high=2, center=16),
    "Q5_1": BlockType(32, 24, 32, 8, high=4, offset=True),
    "Q8_0": BlockType(32, 34, 32, 2, form="bytes"),
    "IQ4_NL": BlockType(32, 18, 32, 2, codebook=True),
    "Q4_K": BlockType(256, 144, 32, 16, form="K", offset=True),
    "Q5_K": BlockType(256, 176, 32, 48, high=16, form="K", offset=True),
    "Q6_K": BlockType(256, 210, 16, 0, high=128, center=32, form="Q6_K"),
    "IQ4_XS": BlockType(256, 136, 32, 8, form="IQ4_XS", codebook=True),
}
"""Types that can be decoded, by GGUF's name."""

CODEBOOK = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Levels of IQ4_NL and IQ4_XS (`kvalues_iq4nl`, ggml-common.h)."""


def row_bytes(kind: str, columns: int) -> int:
    """Return the bytes of a row.

    Args:
        kind: name of the type, one of `BLOCK_TYPES`.
        columns: number of weights of a row.

    Raises:
        ValueError: The weights do not fill whole blocks.
    """
    own = BLOCK_TYPES[kind]
    if columns % own.values:
        raise ValueError(f"rows of {columns} do not fill blocks of {own.values}")
    return columns // own.values * own.bytes
