"""The smallest Triton kernel, in a file of its own because Triton reads a kernel's source from its file."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def double(x_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N803
    """Double SIZE numbers in place."""
    at = tl.arange(0, SIZE)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * 2)
