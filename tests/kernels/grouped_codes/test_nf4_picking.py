"""The picking of NF4's codes that is written in PTX, which Triton's interpreter does not run: run here by hand."""

import pytest

from support.ptx import run_ptx

pytest.importorskip("triton")
from burnish_kernels.grouped_codes.nf4 import kernel


@pytest.mark.parametrize("first", range(16))
def test_ptx_picks_each_weights_code_in_the_order_of_the_weights(first):
    """A byte's first weight is in its high nibble, a word's first byte is its lowest. Some codes have a sign."""
    codes = [17 * level ^ 0xA5 for level in range(16)]
    table = [int.from_bytes(codes[word : word + 4], "little") for word in range(0, 16, 4)]
    levels = [(first + step * place) % 16 for step in (3, 5) for place in range(4)]
    packed = bytes(levels[place] << 4 | levels[place + 1] for place in range(0, 8, 2))
    given = [int.from_bytes(packed, "little"), *table]
    held = run_ptx(kernel._PICK.value, {f"${number}": value for number, value in enumerate(given, 2)})
    assert b"".join(held[name].to_bytes(4, "little") for name in ("$0", "$1")) == bytes(
        codes[level] for level in levels
    )
