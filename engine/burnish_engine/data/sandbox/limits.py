"""Defines the limits on rendering a chat template, and the phrases that name a template's fault.

Templates come with models from strangers. The sandbox counts steps, texts and numbers; the render process is limited in
memory and processor time, which covers the rest. Each function returns the phrase for one exceeded limit.
"""

from __future__ import annotations

import sys

from burnish_engine.contract.units import memory_size

LONGEST_SOURCE = 262_144
"""Longest template accepted, characters; real ones have up to about 20,000."""

FREE_STEPS = 100_000
"""Loop passes and macro calls of one rendering, beside `STEPS_PER_TURN`."""
STEPS_PER_TURN = 1000
LARGEST_SIZE = 1_000_000
"""Largest integer handed to a function or filter, such as a width or a count."""
LARGEST_NUMBER_BITS = 4096
"""Largest integer that arithmetic may build, bits. Templates count turns."""
MOST_RANGE = 100_000
"""Longest range that can be counted; jinja's MAX_RANGE."""
FREE_CHARS = 1_000_000
"""Largest text that a template may build, characters, beside `CHARS_PER_CHAR` for each character that it was given."""
CHARS_PER_CHAR = 16
SPARE_CHARS = 16_000_000
"""Text that all renderings together may write beyond their allowances, characters."""

START_BYTES = 512 * 2**20
"""Address space of the render process. Python with jinja takes about 40 MB of it, and eight such processes must
fit beside a model on a machine with 8 GB."""
BYTES_PER_BYTE = 64
"""Further address space for each byte of a request's rows: characters take up to four bytes, and a row, its renderings
and those with marks exist at the same time."""

SPARE_S = 5.0
"""Processor time that a template may use beyond its allowances, seconds; a rendering's unused allowance refills it, up
to this value."""
COMPILE_S_PER_CHAR = 2e-5
"""Allowance to compile a template, seconds for each of its characters."""
FREE_S = 0.003
"""Allowance of each rendering, seconds: about 20 times what real templates take for two turns on one slow core."""
S_PER_TURN = 0.0003
S_PER_CHAR = 2e-7


def exceeded(name: str, limit: str) -> str:
    """Return the fault of a template that exceeds a limit.

    Args:
        name: name of the limit: memory, time, text, step, depth or number.
        limit: value of the limit with its unit.
    """
    return f"it exceeds the {name} limit ({limit})"


def time_limit() -> str:
    """Return the fault of a template that takes too long."""
    return exceeded("time", f"{SPARE_S:g} s of processor time more than its length and its rows explain")


def memory_limit(limit_bytes: int) -> str:
    """Return the fault of a template that takes too much memory.

    Args:
        limit_bytes: address space of the render process, bytes.
    """
    return exceeded("memory", memory_size(limit_bytes))


def depth_limit() -> str:
    """Return the fault of a template whose macros or expressions nest too deep."""
    return exceeded("depth", "Python's stack")


def range_limit() -> str:
    """Return the fault of a template that counts too far."""
    return exceeded("number", f"ranges of {MOST_RANGE:,}")


def float_limit() -> str:
    """Return the fault of a template that computes a number too large for Python's floats."""
    return exceeded("number", f"{sys.float_info.max:.1e} for numbers with a fraction")


def text_limit(most_chars: int) -> str:
    """Return the fault of a template that builds too large a text or list.

    Args:
        most_chars: largest number of characters or items.
    """
    return exceeded("text", f"{most_chars:,} characters or items")
