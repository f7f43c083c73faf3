"""The picking of NF4's codes that is written in PTX, which Triton's interpreter does not run: run here by hand."""

import re

import pytest

pytest.importorskip("triton")
from burnish_kernels.grouped_codes.nf4 import kernel


def permuted(low, high, selector):
    """Bytes of two registers as PTX's `prmt` picks them: by three bits, the fourth would spread a sign."""
    found = 0
    for place in range(4):
        chosen = (selector >> (4 * place)) & 15
        assert chosen < 8
        found |= ((high << 32 | low) >> (8 * chosen) & 255) << (8 * place)
    return found


INSTRUCTIONS = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b & 0xFFFFFFFF,
    "shr": lambda a, b: a >> b,
    "mov": lambda a: a,
    "prmt": permuted,
}


def run_ptx(text, arguments):
    """The two outputs of inline PTX of 32-bit words, `$2` and following being its arguments."""
    held = {f"${number}": value for number, value in enumerate(arguments, 2)}
    for name, operands in re.findall(r"(\w+)\.b32 ([^;]+);", text):
        if name in INSTRUCTIONS:  # others declare registers
            out, *given = operands.split(", ")
            held[out] = INSTRUCTIONS[name](*(held[one] if one in held else int(one, 0) for one in given))
    return held["$0"], held["$1"]


@pytest.mark.parametrize("first", range(16))
def test_ptx_picks_each_weights_code_in_the_order_of_the_weights(first):
    """A byte's first weight is in its high nibble, a word's first byte is its lowest. Some codes have a sign."""
    codes = [17 * level ^ 0xA5 for level in range(16)]
    table = [int.from_bytes(codes[word : word + 4], "little") for word in range(0, 16, 4)]
    levels = [(first + step * place) % 16 for step in (3, 5) for place in range(4)]
    packed = bytes(levels[place] << 4 | levels[place + 1] for place in range(0, 8, 2))
    found = run_ptx(kernel._PICK.value, [int.from_bytes(packed, "little"), *table])
    assert b"".join(word.to_bytes(4, "little") for word in found) == bytes(codes[level] for level in levels)
