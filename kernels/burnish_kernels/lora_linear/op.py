"""A frozen projection with LoRA adapters: forward and backward, and the two halves of backward.

The adapters are computed within the frozen product. With the buffer M = [[W, sB], [A, 0]] of `[N + R, K + R]`, an input
`[x | xAᵀ]` and an output gradient `[dy | dy sB]`:

    y  = [x | xAᵀ] M[:N]ᵀ        dx = [dy | dy sB] M[:, :K]
    dA = (dy sB)ᵀ x              dB = s dyᵀ (xAᵀ)

so each large product is done once and its output is touched once. The skinny products are kernels of their own:
`project` for xAᵀ and dy sB, `outer_accumulate` for dA and dB. Dropout, and ranks whose zeros would cost too much, take
separate products over views of the same buffer.

Shapes: T tokens, K input features, N output features, R padded ranks of all adapters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish_kernels.lora_linear.dropout import add_dropped_, dropout
from burnish_kernels.lora_linear.skinny import outer_accumulate, project
from burnish_kernels.lora_linear.stack import Dropout, Stack, StackedAdapter
from burnish_kernels.lora_linear.tiles import RankSegment

__all__ = [
    "Dropout",
    "RankSegment",
    "Stack",
    "StackedAdapter",
    "accumulate",
    "add_adapter_gradient",
    "add_dropped_",
    "backward",
    "dropout",
    "forward",
    "input_gradient",
    "outer_accumulate",
    "output_segments",
    "project",
    "project_gradient",
    "project_input",
    "times_transposed",
]


def forward(
    x_ext_TE: torch.Tensor,
    buffer: torch.Tensor,
    stack: Stack,
    *,
    bias_N: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    drop: Dropout | None = None,
) -> torch.Tensor:
    """Compute x Wᵀ + bias + the adapters' output; fill the last R columns of `x_ext_TE` with xAᵀ.

    Args:
        x_ext_TE: input `[T, K + R]`, rows may be strided; the first K columns hold x.
        buffer: matrix `[N + R, K + R]`, `[[W, sB], [A, 0]]`.
        stack: layout of the adapters in the buffer.
        bias_N: frozen bias `[N]`.
        out: tensor `[T, N]` to write to, rows may be strided. Allocated if None.
        drop: dropout on the adapters' input.

    Returns:
        The output `[T, N]`.

    Raises:
        ValueError: Shapes do not fit.
    """
    _validate(stack, buffer, x_ext_TE=x_ext_TE)
    if out is None:
        out = x_ext_TE.new_empty(x_ext_TE.shape[0], stack.N)
    if out.shape != (x_ext_TE.shape[0], stack.N):
        raise ValueError(f"out must be {(x_ext_TE.shape[0], stack.N)}, not {tuple(out.shape)}")
    if not stack.adapters:
        return times_transposed(x_ext_TE, buffer, bias_N, out)
    x_TK, xa_TR = x_ext_TE[:, : stack.K], x_ext_TE[:, stack.K :]
    drop = _active(drop)
    project_input(x_ext_TE, buffer[stack.N :, : stack.K], stack, drop)
    if drop is None and stack.fused:
        return times_transposed(x_ext_TE, buffer[: stack.N], bias_N, out)
    times_transposed(x_TK, buffer[: stack.N, : stack.K], bias_N, out)
    for adapter, first in zip(stack.adapters, stack.firsts, strict=True):
        own = slice(first, first + adapter.padded)
        out[:, adapter.span].addmm_(xa_TR[:, own], buffer[adapter.span, stack.K :][:, own].t())
    return out


def backward(
    dy_ext_TF: torch.Tensor,
    x_ext_TE: torch.Tensor,
    buffer: torch.Tensor,
    stack: Stack,
    *,
    grad_a: Sequence[torch.Tensor],
    grad_b: Sequence[torch.Tensor],
    dx_out: torch.Tensor | None = None,
    needs_dx: bool = True,
    drop: Dropout | None = None,
) -> torch.Tensor | None:
    """Return x's gradient, add those of A and B to existing ones; fill the last R columns of `dy_ext_TF` with dy sB.

    Args:
        dy_ext_TF: gradient `[T, N + R]`, rows may be strided; the first N columns hold dy.
        x_ext_TE: input `[T, K + R]` as `forward` left it.
        buffer: matrix `[N + R, K + R]`, `[[W, sB], [A, 0]]`.
        stack: layout of the adapters in the buffer.
        grad_a: gradient of each adapter's A, `[r_i, K]` fp32; any strides.
        grad_b: gradient of each adapter's B, `[rows_i, r_i]` fp32; any strides.
        dx_out: tensor `[T, K]` to write to, rows may be strided. Allocated if None.
        needs_dx: whether x's gradient is needed; False below the lowest adapter.
        drop: same as in `forward`.

    Returns:
        The gradient `[T, K]`, or None if not needed.

    Raises:
        ValueError: Shapes do not fit.
    """
    _validate(stack, buffer, x_ext_TE=x_ext_TE, dy_ext_TF=dy_ext_TF)
    dx_TK = input_gradient(dy_ext_TF, buffer, stack, dx_out=dx_out, needs_dx=needs_dx, drop=drop)
    x_TK, xa_TR = x_ext_TE[:, : stack.K], x_ext_TE[:, stack.K :]
    accumulate(dy_ext_TF, x_TK, xa_TR, stack, grad_a=grad_a, grad_b=grad_b, drop=drop)
    return dx_TK


def input_gradient(
    dy_ext_TF: torch.Tensor,
    buffer: torch.Tensor,
    stack: Stack,
    *,
    dx_out: torch.Tensor | None = None,
    needs_dx: bool = True,
    drop: Dropout | None = None,
) -> torch.Tensor | None:
    """Do the first half of `backward`: fill the last R columns of `dy_ext_TF` with dy sB, return the gradient of x.

    Raises:
        ValueError: Shapes do not fit.
    """
    _validate(stack, buffer, dy_ext_TF=dy_ext_TF)
    drop = _active(drop)
    dy_TN, dxa_TR = dy_ext_TF[:, : stack.N], dy_ext_TF[:, stack.N :]
    project_gradient(dy_ext_TF, buffer[: stack.N, stack.K :], stack)
    if not needs_dx:
        return None
    tokens = dy_ext_TF.shape[0]
    dx_TK = dy_ext_TF.new_empty(tokens, stack.K) if dx_out is None else dx_out
    if dx_TK.shape != (tokens, stack.K):
        raise ValueError(f"dx_out must be {(tokens, stack.K)}, not {tuple(dx_TK.shape)}")
    if drop is None and stack.fused:
        return torch.mm(dy_ext_TF, buffer[:, : stack.K], out=dx_TK)
    torch.mm(dy_TN, buffer[: stack.N, : stack.K], out=dx_TK)
    return add_adapter_gradient(dx_TK, dxa_TR, buffer[stack.N :, : stack.K], stack, drop)


def accumulate(
    dy_ext_TF: torch.Tensor,
    x_TK: torch.Tensor,
    xa_TR: torch.Tensor,
    stack: Stack,
    *,
    grad_a: Sequence[torch.Tensor],
    grad_b: Sequence[torch.Tensor],
    drop: Dropout | None = None,
) -> None:
    """Do the second half of `backward`: add the gradients of A and B to existing ones.

    Args:
        dy_ext_TF: gradient as `input_gradient` left it.
        x_TK: input, which may have been recomputed.
        xa_TR: product xAᵀ as `forward` left it, or a copy.
        stack: layout of the adapters in the buffer.
        grad_a: same as in `backward`.
        grad_b: same as in `backward`.
        drop: same as in `forward`.

    Raises:
        ValueError: Shapes do not fit.
    """
    _validate_gradients(stack, grad_a, grad_b)
    if not stack.adapters:
        return
    scales = [adapter.scale for adapter in stack.adapters]
    outer_accumulate(xa_TR, dy_ext_TF[:, : stack.N], [grad.t() for grad in grad_b], scales, output_segments(stack))
    _accumulate_a(dy_ext_TF[:, stack.N :], x_TK, stack, grad_a, _active(drop))


def project_input(x_ext_TE: torch.Tensor, a_RK: torch.Tensor, stack: Stack, drop: Dropout | None = None) -> None:
    """Fill the last R columns of an input with xAᵀ.

    Args:
        x_ext_TE: input `[T, K + R]`, rows may be strided; the first K columns hold x.
        a_RK: A of all adapters `[R, K]`, rows may be strided.
        stack: layout of the adapters.
        drop: dropout on the adapters' input.
    """
    if not stack.adapters:
        return
    x_TK, xa_TR, drop = x_ext_TE[:, : stack.K], x_ext_TE[:, stack.K :], _active(drop)
    if drop is None:
        project(x_TK, a_RK, xa_TR, [RankSegment(0, stack.K, 0, stack.R)])
        return
    dropped_TK = x_TK.new_empty(x_TK.shape)
    for index, (adapter, first) in enumerate(_placed(stack)):
        dropout(x_TK, drop.seed, drop.stream + index, drop.probability, dropped_TK)
        project(dropped_TK, a_RK, xa_TR, [RankSegment(0, stack.K, first, adapter.padded)])


def project_gradient(dy_ext_TF: torch.Tensor, sb_NR: torch.Tensor, stack: Stack) -> None:
    """Fill the last R columns of an output's gradient with dy sB.

    Args:
        dy_ext_TF: gradient `[T, N + R]`, rows may be strided; the first N columns hold dy.
        sb_NR: scaled B of all adapters `[N, R]`, rows may be strided.
        stack: layout of the adapters.
    """
    if stack.adapters:
        project(dy_ext_TF[:, : stack.N], sb_NR.t(), dy_ext_TF[:, stack.N :], output_segments(stack))


def add_adapter_gradient(
    dx_TK: torch.Tensor, dxa_TR: torch.Tensor, a_RK: torch.Tensor, stack: Stack, drop: Dropout | None = None
) -> torch.Tensor:
    """Add the adapters' part of an input's gradient, (dy sB) A with the input's dropout, in place.

    Args:
        dx_TK: gradient `[T, K]` so far.
        dxa_TR: what `project_gradient` filled.
        a_RK: A of all adapters `[R, K]`.
        stack: layout of the adapters.
        drop: same as in the forward pass.

    Returns:
        The given gradient.
    """
    drop = _active(drop)
    if drop is None:
        return dx_TK.addmm_(dxa_TR, a_RK)
    for index, (adapter, first) in enumerate(_placed(stack)):
        own = slice(first, first + adapter.padded)
        add_dropped_(dx_TK, torch.mm(dxa_TR[:, own], a_RK[own]), drop.seed, drop.stream + index, drop.probability)
    return dx_TK


def times_transposed(
    x_TK: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None, out: torch.Tensor
) -> torch.Tensor:
    """Compute x Wᵀ + bias in one product; return `out`, `[T, N]`."""
    if bias_N is None:
        return torch.mm(x_TK, weight_NK.t(), out=out)
    return torch.addmm(bias_N, x_TK, weight_NK.t(), out=out)


def output_segments(stack: Stack) -> list[RankSegment]:
    """Return which of the N columns of dy belong to which of the R ranks."""
    return [RankSegment(adapter.first_row, adapter.rows, first, adapter.padded) for adapter, first in _placed(stack)]


def _accumulate_a(
    dxa_TR: torch.Tensor, x_TK: torch.Tensor, stack: Stack, grad_a: Sequence[torch.Tensor], drop: Dropout | None
) -> None:
    """Add (dy sB)ᵀ x to dA: the scale is in sB already."""
    if drop is None:
        segments = [RankSegment(0, stack.K, first, adapter.padded) for adapter, first in _placed(stack)]
        outer_accumulate(dxa_TR, x_TK, grad_a, [1.0] * len(segments), segments)
        return
    dropped_TK = x_TK.new_empty(x_TK.shape)
    for index, (adapter, first) in enumerate(_placed(stack)):
        dropout(x_TK, drop.seed, drop.stream + index, drop.probability, dropped_TK)
        outer_accumulate(dxa_TR, dropped_TK, [grad_a[index]], [1.0], [RankSegment(0, stack.K, first, adapter.padded)])


def _placed(stack: Stack) -> list[tuple[StackedAdapter, int]]:
    return list(zip(stack.adapters, stack.firsts, strict=True))


def _active(drop: Dropout | None) -> Dropout | None:
    if drop is None or drop.probability == 0.0:
        return None
    if not 0.0 < drop.probability < 1.0:
        raise ValueError(f"dropout must be at least 0 and under 1, not {drop.probability}")
    return drop


def _validate(stack: Stack, buffer: torch.Tensor, **extended: torch.Tensor) -> None:
    if buffer.shape != stack.buffer_shape or buffer.stride(1) != 1:
        raise ValueError(f"buffer must be {stack.buffer_shape}, not {tuple(buffer.shape)} strided {buffer.stride()}")
    widths = {"x_ext_TE": stack.K + stack.R, "dy_ext_TF": stack.N + stack.R}
    tokens = next(iter(extended.values())).shape[0]
    for name, tensor in extended.items():
        if tensor.shape != (tokens, widths[name]) or tensor.dtype != buffer.dtype or tensor.stride(1) != 1:
            raise ValueError(
                f"{name} must be {(tokens, widths[name])} {buffer.dtype}, its columns side by side, "
                f"not {tuple(tensor.shape)} {tensor.dtype} strided {tensor.stride()}"
            )


def _validate_gradients(stack: Stack, grad_a: Sequence[torch.Tensor], grad_b: Sequence[torch.Tensor]) -> None:
    if not len(grad_a) == len(grad_b) == len(stack.adapters):
        raise ValueError(f"{len(stack.adapters)} adapters need as many gradients, not {len(grad_a)}, {len(grad_b)}")
    for adapter, a, b in zip(stack.adapters, grad_a, grad_b, strict=True):
        if a.shape != (adapter.rank, stack.K) or b.shape != (adapter.rows, adapter.rank):
            raise ValueError(f"gradients {tuple(a.shape)} and {tuple(b.shape)} are not those of {adapter}")
        if a.dtype not in (torch.float32, torch.float64) or b.dtype != a.dtype:
            raise ValueError(f"gradients are accumulated in fp32, not {a.dtype}, {b.dtype}")
