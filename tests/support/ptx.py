"""Inline PTX of 32-bit words run by hand, which Triton's interpreter does not do."""

import re


def permuted(low, high, selector):
    """Bytes of two registers as PTX's `prmt` picks them: by three bits, the fourth would spread a sign."""
    found = 0
    for place in range(4):
        chosen = (selector >> (4 * place)) & 15
        assert chosen < 8
        found |= ((high << 32 | low) >> (8 * chosen) & 255) << (8 * place)
    return found


def combined(a, b, c, table):
    """Bits of three registers as PTX's `lop3` combines them."""
    bits = ((table >> ((a >> at & 1) * 4 + (b >> at & 1) * 2 + (c >> at & 1)) & 1) << at for at in range(32))
    return sum(bits)


INSTRUCTIONS = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b & 0xFFFFFFFF,
    "shr": lambda a, b: a >> b,
    "mov": lambda a: a,
    "prmt": permuted,
    "lop3": combined,
}


def run_ptx(text, held, others=None):
    """Values of the registers afterwards, by name.

    Args:
        text: instructions, each with one result.
        held: what they hold before, by name.
        others: functions of instructions that are not of whole words, by name.
    """
    known, held = INSTRUCTIONS | (others or {}), dict(held)
    for name, operands in re.findall(r"(\w+)(?:\.\w+)+ ([^;]+);", text):
        if name in known:  # others declare registers
            out, *given = operands.split(", ")
            held[out] = known[name](*(held[one] if one in held else int(one, 0) for one in given))
    return held
