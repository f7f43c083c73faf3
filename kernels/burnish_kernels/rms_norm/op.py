"""RMSNorm: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

`forward` and `backward` know nothing of autograd; `rms_norm` is the autograd operation built on them.

Rows may be strided, so that y can be written into a wider buffer; the last dimension is contiguous.
Shapes: T rows (tokens), H hidden size.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.eight_bit_linear.op import EightBitRows, quantize_rows, writes_codes
from burnish_kernels.rms_norm import reference
from burnish_kernels.row_blocks import row_blocks

MAX_HIDDEN = 16384  # one row must fit one program's registers, twice in the backward


def forward(
    x_TH: torch.Tensor,
    weight_H: torch.Tensor,
    *,
    eps: float,
    residual_TH: torch.Tensor | None = None,
    one_plus_weight: bool = False,
    out: torch.Tensor | None = None,
    sum_out: torch.Tensor | None = None,
    codes_out: EightBitRows | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Add the residual, if any, and normalize each row.

    Args:
        x_TH: input `[T, H]`, fp32, fp16 or bf16.
        weight_H: frozen weight `[H]` in the same dtype.
        eps: number added to the mean square.
        residual_TH: residual `[T, H]`, added to x before the norm; the sum is rounded to the dtype first.
        one_plus_weight: whether to scale by 1 + weight and round once (Gemma).
        out: tensor to write y to; may be x or the residual themselves.
        sum_out: tensor to write the sum to; may be x or the residual themselves.
        codes_out: codes and scales of y to write beside it, as `eight_bit_linear.quantize_rows` makes them; None: none.

    Returns:
        The normalized rows, the sum that was normalized (x itself without a residual), both `[T, H]`, and the inverse
        root mean square of each row, `[T]` fp32: the inputs of `backward`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _check_rows("x", x_TH, x_TH)
    _check_weight(weight_H, x_TH)
    for name, tensor in (("residual", residual_TH), ("out", out), ("sum_out", sum_out)):
        if tensor is not None:
            _check_rows(name, tensor, x_TH)
    if residual_TH is None and sum_out is not None:
        raise ValueError("sum_out without a residual: the sum is x itself")
    if not use_kernels(x_TH):
        y_TH, sum_TH, inverse_T = reference.forward(
            x_TH, weight_H, eps=eps, residual_TH=residual_TH, one_plus_weight=one_plus_weight
        )
        sum_TH = sum_TH if sum_out is None else sum_out.copy_(sum_TH)
        y_TH = y_TH if out is None else out.copy_(y_TH)
        if codes_out is not None:
            quantize_rows(y_TH, out=codes_out)
        return y_TH, sum_TH, inverse_T
    from burnish_kernels.rms_norm.kernel import launch_forward

    y_TH = _empty(x_TH) if out is None else out
    sum_TH = x_TH if residual_TH is None else _empty(x_TH) if sum_out is None else sum_out
    inverse_T = torch.empty(x_TH.shape[0], dtype=torch.float32, device=x_TH.device)
    fused = writes_codes(codes_out, x_TH)
    if x_TH.shape[0]:
        launch_forward(
            x_TH=x_TH,
            residual_TH=residual_TH,
            weight_H=weight_H,
            y_TH=y_TH,
            sum_TH=sum_TH,
            inverse_T=inverse_T,
            codes=codes_out if fused else None,
            eps=eps,
            one_plus_weight=one_plus_weight,
        )
    if codes_out is not None and not fused:
        quantize_rows(y_TH, out=codes_out)
    return y_TH, sum_TH, inverse_T


def backward(
    dy_TH: torch.Tensor,
    sum_TH: torch.Tensor,
    weight_H: torch.Tensor,
    inverse_T: torch.Tensor,
    *,
    dsum_TH: torch.Tensor | None = None,
    one_plus_weight: bool = False,
    out: torch.Tensor | None = None,
    y_out: torch.Tensor | None = None,
    codes_out: EightBitRows | None = None,
    factor_H: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the gradient of the sum, which is that of x and of the residual alike.

    Args:
        dy_TH: gradient `[T, H]` of the normalized rows.
        sum_TH: sum `[T, H]` that `forward` normalized.
        weight_H: weight `[H]`, same as in `forward`.
        inverse_T: inverse root mean square `[T]` that `forward` returned.
        dsum_TH: gradient `[T, H]` that reached the sum by another way (the residual stream); added in.
        one_plus_weight: same as in `forward`.
        out: tensor to write the gradient to; may be dsum or dy themselves.
        y_out: tensor that y is written to again, bit for bit as `forward` made it; None: y is not wanted.
        codes_out: codes and scales of the gradient times `factor_H` to write beside it, as
            `eight_bit_linear.quantize_rows` makes them, for the product that the gradient goes to next; None: none.
        factor_H: factor of each column `[H]` fp32 in the codes, the scales of that product's weight rows; None: none.

    Returns:
        The gradient, `[T, H]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _check_rows("sum", sum_TH, sum_TH)
    _check_weight(weight_H, sum_TH)
    for name, tensor in (("dy", dy_TH), ("dsum", dsum_TH), ("out", out), ("y_out", y_out)):
        if tensor is not None:
            _check_rows(name, tensor, sum_TH)
    wide = torch.promote_types(sum_TH.dtype, torch.float32)
    if inverse_T.shape != sum_TH.shape[:1] or inverse_T.dtype != wide or not inverse_T.is_contiguous():
        raise ValueError(f"inverse must be [{sum_TH.shape[0]}] {wide}, contiguous, as forward returned it")
    dx_TH = _empty(sum_TH) if out is None else out
    if not use_kernels(sum_TH):
        for rows in row_blocks(sum_TH):
            fixed = sum_TH[rows], weight_H, inverse_T[rows]
            found_TH = reference.backward(
                dy_TH[rows],
                *fixed,
                dsum_TH=None if dsum_TH is None else dsum_TH[rows],
                one_plus_weight=one_plus_weight,
            )
            if y_out is not None:
                y_out[rows] = reference.scale(*fixed, one_plus_weight=one_plus_weight)
            dx_TH[rows] = found_TH
        if codes_out is not None:
            quantize_rows(dx_TH, factor_K=factor_H, out=codes_out)
        return dx_TH
    from burnish_kernels.rms_norm.kernel import launch_backward

    fused = writes_codes(codes_out, sum_TH, factor_H)
    if sum_TH.shape[0]:
        launch_backward(
            dy_TH=dy_TH,
            dsum_TH=dsum_TH,
            sum_TH=sum_TH,
            weight_H=weight_H,
            inverse_T=inverse_T,
            dx_TH=dx_TH,
            y_TH=y_out,
            codes=codes_out if fused else None,
            factor_H=factor_H if fused else None,
            one_plus_weight=one_plus_weight,
        )
    if codes_out is not None and not fused:
        quantize_rows(dx_TH, factor_K=factor_H, out=codes_out)
    return dx_TH


def _empty(like_TH: torch.Tensor) -> torch.Tensor:
    return torch.empty(like_TH.shape, dtype=like_TH.dtype, device=like_TH.device)


def _check_rows(name: str, tensor: torch.Tensor, like_TH: torch.Tensor) -> None:
    if like_TH.ndim != 2 or not 1 <= like_TH.shape[1] <= MAX_HIDDEN:
        raise ValueError(f"{name} must be [T, H] with H up to {MAX_HIDDEN}, not {tuple(like_TH.shape)}")
    if like_TH.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(like_TH):
        raise ValueError(f"{name} must be fp32, fp16 or bf16, not {like_TH.dtype}")
    if tensor.shape != like_TH.shape or tensor.dtype != like_TH.dtype:
        raise ValueError(
            f"{name} must be {tuple(like_TH.shape)} {like_TH.dtype}, not {tuple(tensor.shape)} {tensor.dtype}"
        )
    if tensor.stride(1) != 1 and tensor.shape[1] > 1 and tensor.numel():
        raise ValueError(f"each row of {name} must be contiguous")


def _check_weight(weight_H: torch.Tensor, like_TH: torch.Tensor) -> None:
    shape, dtype = like_TH.shape[1:], like_TH.dtype
    if weight_H.shape != shape or weight_H.dtype != dtype or not weight_H.is_contiguous():
        raise ValueError(
            f"weight must be {tuple(shape)} {dtype}, contiguous, not {tuple(weight_H.shape)} {weight_H.dtype}"
        )
