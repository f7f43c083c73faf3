"""Random bits from a counter against published ones."""

import pytest

from burnish_kernels.philox import philox

# Salmon et al. 2011's known answers, from the file kat_vectors of their library Random123: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, result):
    low, high = (int(word, 16) for word in key.split())
    for seed in (low | high << 32, (low | high << 32) - 2**64):  # as an unsigned or a signed number
        words = philox(seed, [int(word, 16) for word in counter.split()])
        assert [word.item() for word in words] == [int(word, 16) for word in result.split()]
