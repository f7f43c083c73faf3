"""Sizes of a gated delta rule, and the scratch memory that its kernels need.

Shapes: T rows (tokens), P rows of whole chunks, N chunks of L rows, K key heads of D, V value heads of E.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

CHUNK = 64
"""Rows of a chunk."""
WIDE_CHUNK = 32
"""The same in the kernels for fp32, whose registers hold half as much."""
_ALIGNMENT = 256


@dataclass(frozen=True)
class Sizes:
    """Heads of a gated delta rule; each key head serves as many value heads next to each other as the others.

    Attributes:
        key_heads: number of key heads, K.
        value_heads: number of value heads, V, a multiple of K.
        key_size: numbers of a query or key, D.
        value_size: numbers of a value, E.
    """

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int

    @property
    def shared(self) -> int:
        """Number of value heads that one key head serves."""
        return self.value_heads // self.key_heads

    @property
    def width(self) -> int:
        """Numbers of a row of queries, keys and values, C = 2 K D + V E."""
        return 2 * self.key_heads * self.key_size + self.value_heads * self.value_size

    @property
    def out_width(self) -> int:
        """Numbers of a row of the output, J = V E."""
        return self.value_heads * self.value_size


@dataclass(frozen=True)
class Workspace:
    """Scratch memory of one pass, for a group of key heads G with their value heads W.

    `delta_dvalues_kernel` replaces beta, inverse, u and du by what `delta_ddecays_kernel` and `delta_dkeys_kernel`
    take.

    Attributes:
        gates_4WP: fp32, for each row: sum of g within document and chunk, beta, share of the state before the chunk
            that the row sees, share of the row in the state behind the chunk.
        q_GPD: normalized queries.
        k_GPD: normalized keys.
        inverse_WPL: inverse of each chunk's triangular system, a row of it for each row.
        w_WPD: keys through that inverse.
        u_WPE: values through that inverse.
        states_WNDE: state before each chunk, rounded to the inputs' type unless exact ones are wanted.
        du_WPE: gradient of the new values, as far as it comes from their chunk; None in the forward pass.
        dstates_WNDE: gradient of the state behind each chunk; None in the forward pass.
    """

    gates_4WP: torch.Tensor
    q_GPD: torch.Tensor
    k_GPD: torch.Tensor
    inverse_WPL: torch.Tensor
    w_WPD: torch.Tensor
    u_WPE: torch.Tensor
    states_WNDE: torch.Tensor
    du_WPE: torch.Tensor | None = None
    dstates_WNDE: torch.Tensor | None = None


def chunk_rows(dtype: torch.dtype) -> int:
    """Return the rows of a chunk in the kernels for inputs of a type."""
    return WIDE_CHUNK if dtype == torch.float32 else CHUNK


def workspace_bytes(
    tokens: int,
    sizes: Sizes,
    dtype: torch.dtype,
    *,
    backward: bool,
    key_heads: int | None = None,
    exact_states: bool = False,
) -> int:
    """Return the bytes of scratch memory that a pass needs on a GPU.

    Args:
        tokens: number of rows.
        sizes: heads.
        dtype: type of the inputs.
        backward: whether it is the backward pass.
        key_heads: number of key heads that are computed at a time; None: all. Fewer need as much less memory; the
            results are the same bit for bit.
        exact_states: whether the states behind some rows are wanted, for which states are kept in fp32.
    """
    heads = sizes.key_heads if key_heads is None else key_heads
    shapes = _shapes(tokens, sizes, heads, dtype, backward=backward, exact_states=exact_states)
    return sum(_bytes(shape, kind) for shape, kind in shapes)


def heads_at_a_time(
    workspace: torch.Tensor,
    tokens: int,
    sizes: Sizes,
    dtype: torch.dtype,
    *,
    backward: bool = False,
    exact_states: bool = False,
) -> int:
    """Return the most key heads whose scratch memory fits into a workspace.

    Raises:
        ValueError: Not even one head's memory fits.
    """
    flags = {"backward": backward, "exact_states": exact_states}
    for heads in range(sizes.key_heads, 0, -1):
        needed = workspace_bytes(tokens, sizes, dtype, key_heads=heads, **flags)
        if needed <= workspace.numel():
            return heads
    raise ValueError(f"the workspace must have at least {needed} bytes, not {workspace.numel()}")


def divide(
    workspace: torch.Tensor,
    tokens: int,
    sizes: Sizes,
    key_heads: int,
    dtype: torch.dtype,
    *,
    backward: bool,
    exact_states: bool,
) -> Workspace:
    """Divide a workspace, uint8, among the tensors of some key heads."""
    parts = []
    first = 0
    for shape, kind in _shapes(tokens, sizes, key_heads, dtype, backward=backward, exact_states=exact_states):
        count = torch.Size(shape).numel() * kind.itemsize
        parts.append(workspace[first : first + count].view(kind).view(shape))
        first += _bytes(shape, kind)
    return Workspace(*parts)


def _shapes(
    tokens: int, sizes: Sizes, key_heads: int, dtype: torch.dtype, *, backward: bool, exact_states: bool
) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Return shape and type of each field of a workspace, in order."""
    chunk = chunk_rows(dtype)
    chunks = -(-tokens // chunk)
    rows, heads = chunks * chunk, key_heads * sizes.shared
    keys, values = sizes.key_size, sizes.value_size
    states = (heads, chunks, keys, values)
    numbers: list[tuple[int, ...]] = [(key_heads, rows, keys), (key_heads, rows, keys)]
    numbers += [(heads, rows, chunk), (heads, rows, keys), (heads, rows, values)]
    found: list[tuple[tuple[int, ...], torch.dtype]] = [((4, heads, rows), torch.float32)]
    found += [(shape, dtype) for shape in numbers]
    found += [(states, torch.float32 if exact_states else dtype)]
    return [*found, ((heads, rows, values), dtype), (states, dtype)] if backward else found


def _bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return -(-torch.Size(shape).numel() * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
