"""Linear layer and cross entropy: validate, allocate, launch. CUDA tensors use the kernel, others the reference.

The gradient of the logits replaces the logits, so that one chunk's buffer `[chunk, V]` is all that the head needs.

Shapes: R rows, V vocabulary, H hidden size.
"""

from __future__ import annotations

from typing import Any

import torch

from burnish_kernels import tuning
from burnish_kernels.cross_entropy import reference
from burnish_kernels.cross_entropy.config import CONFIGS, default_config, tuning_key
from burnish_kernels.dispatch import use_kernels

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ROW_ALIGNMENT = 16  # elements; what Triton must know of a stride to use 16-byte accesses


def new_logits_buffer(rows: int, vocabulary: int, dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Allocate an uninitialized `[rows, vocabulary]` whose rows start at 16-byte multiples for any vocabulary."""
    padded = -(-vocabulary // ROW_ALIGNMENT) * ROW_ALIGNMENT
    return torch.empty(rows, padded, dtype=dtype, device=device)[:, :vocabulary]


def loss_and_gradient_(
    logits_RV: torch.Tensor,
    targets_R: torch.Tensor,
    loss_R: torch.Tensor,
    scale: torch.Tensor,
    *,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    correct_R: torch.Tensor | None = None,
) -> None:
    """Compute each row's loss and replace the logits by scale · dloss / dlogits.

    Args:
        logits_RV: logits `[R, V]`, fp32, fp16 or bf16, before any soft cap; rows may be strided. Overwritten.
        targets_R: labels `[R]` int32 or int64; -100 where a row is not supervised: its loss and gradient are 0.
        loss_R: losses `[R]` fp32 in nats, filled, not multiplied by `scale`.
        scale: one fp32 element on the logits' device; carries the loss scale with fp16.
        softcap: bound c of the logits, c·tanh(z / c).
        label_smoothing: share of the target spread evenly over the vocabulary.
        z_loss: weight of the squared log-partition.
        correct_R: int32 or bool `[R]`, filled with whether the target is the (first) largest logit.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(logits_RV, targets_R, loss_R, correct_R, softcap, label_smoothing)
    if scale.numel() != 1 or scale.dtype != torch.float32 or scale.device != logits_RV.device:
        raise ValueError(
            f"scale must be one fp32 element on {logits_RV.device}, not {tuple(scale.shape)} {scale.dtype}"
        )
    _run(logits_RV, targets_R, loss_R, scale, softcap, label_smoothing, z_loss, correct_R)


def loss_only(
    logits_RV: torch.Tensor,
    targets_R: torch.Tensor,
    loss_R: torch.Tensor,
    *,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    correct_R: torch.Tensor | None = None,
) -> None:
    """Compute each row's loss and leave the logits alone; arguments as in `loss_and_gradient_`."""
    _validate(logits_RV, targets_R, loss_R, correct_R, softcap, label_smoothing)
    _run(logits_RV, targets_R, loss_R, None, softcap, label_smoothing, z_loss, correct_R)


def linear_cross_entropy(
    h_RH: torch.Tensor,
    weight_VH: torch.Tensor,
    targets_R: torch.Tensor,
    scale: torch.Tensor,
    *,
    dh_out: torch.Tensor | None,
    loss_R: torch.Tensor,
    logits_buffer: torch.Tensor,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    correct_R: torch.Tensor | None = None,
) -> None:
    """Compute the loss of h·Wᵀ and its gradient by h, one chunk of rows at a time; nothing is allocated.

    Args:
        h_RH: hidden states `[R, H]`; rows may be strided.
        weight_VH: frozen weight `[V, H]` in the same dtype.
        targets_R: same as in `loss_and_gradient_`.
        scale: same as in `loss_and_gradient_`.
        dh_out: gradient `[R, H]`, filled with scale · dloss / dh; may be `h_RH` itself. None: the losses only.
        loss_R: same as in `loss_and_gradient_`.
        logits_buffer: scratch `[chunk, V]`; `new_logits_buffer` makes one that is fast for any V.
        softcap: same as in `loss_and_gradient_`.
        label_smoothing: same as in `loss_and_gradient_`.
        z_loss: same as in `loss_and_gradient_`.
        correct_R: same as in `loss_and_gradient_`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate_linear(h_RH, weight_VH, dh_out, logits_buffer)
    for start in range(0, h_RH.shape[0], logits_buffer.shape[0]):
        rows = slice(start, min(start + logits_buffer.shape[0], h_RH.shape[0]))
        logits_RV = logits_buffer[: rows.stop - rows.start]
        torch.mm(h_RH[rows], weight_VH.t(), out=logits_RV)
        arguments: dict[str, Any] = {
            "softcap": softcap,
            "label_smoothing": label_smoothing,
            "z_loss": z_loss,
            "correct_R": None if correct_R is None else correct_R[rows],
        }
        if dh_out is None:
            loss_only(logits_RV, targets_R[rows], loss_R[rows], **arguments)
        else:
            loss_and_gradient_(logits_RV, targets_R[rows], loss_R[rows], scale, **arguments)
            torch.mm(logits_RV, weight_VH, out=dh_out[rows])


def _run(
    logits_RV: torch.Tensor,
    targets_R: torch.Tensor,
    loss_R: torch.Tensor,
    scale: torch.Tensor | None,
    softcap: float | None,
    label_smoothing: float,
    z_loss: float,
    correct_R: torch.Tensor | None,
) -> None:
    if logits_RV.shape[0] == 0:
        return
    if use_kernels(logits_RV):
        from burnish_kernels.cross_entropy.kernel import launch

        vocabulary, element_bytes = logits_RV.shape[1], logits_RV.element_size()
        config = tuning.choose(
            "cross_entropy",
            tuning_key(vocabulary, element_bytes),
            default_config(vocabulary, element_bytes),
            allowed=CONFIGS,
            device=logits_RV.device,
        )
        launch(
            logits_RV=logits_RV,
            targets_R=targets_R,
            loss_R=loss_R,
            scale=scale,
            softcap=softcap,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            correct_R=correct_R,
            config=config,
        )
        return
    arguments: dict[str, Any] = {"softcap": softcap, "label_smoothing": label_smoothing, "z_loss": z_loss}
    loss_R.copy_(reference.losses(logits_RV, targets_R, **arguments))
    if correct_R is not None:
        correct_R.copy_(reference.correct(logits_RV, targets_R))
    if scale is not None:
        logits_RV.copy_(reference.gradient(logits_RV, targets_R, scale, **arguments))


def _validate(
    logits_RV: torch.Tensor,
    targets_R: torch.Tensor,
    loss_R: torch.Tensor,
    correct_R: torch.Tensor | None,
    softcap: float | None,
    label_smoothing: float,
) -> None:
    if logits_RV.ndim != 2 or logits_RV.shape[1] == 0 or logits_RV.dtype not in DTYPES:
        raise ValueError(f"logits must be [R, V] in fp32, fp16 or bf16, not {tuple(logits_RV.shape)} {logits_RV.dtype}")
    if logits_RV.stride(1) != 1 or logits_RV.stride(0) < logits_RV.shape[1] > 1:
        raise ValueError("each row of the logits must be contiguous, and rows must not overlap")
    rows = logits_RV.shape[:1]
    if targets_R.shape != rows or targets_R.dtype not in {torch.int32, torch.int64}:
        raise ValueError(f"targets must be [{rows[0]}] int32 or int64, not {tuple(targets_R.shape)} {targets_R.dtype}")
    if loss_R.shape != rows or loss_R.dtype != torch.float32:
        raise ValueError(f"loss must be [{rows[0]}] fp32, not {tuple(loss_R.shape)} {loss_R.dtype}")
    if correct_R is not None and (correct_R.shape != rows or correct_R.dtype not in {torch.int32, torch.bool}):
        raise ValueError(f"correct must be [{rows[0]}] int32 or bool, not {tuple(correct_R.shape)} {correct_R.dtype}")
    for tensor in (targets_R, loss_R, correct_R):
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError("targets, loss and correct must be contiguous")
    if softcap is not None and not softcap > 0.0:
        raise ValueError(f"the soft cap must be positive, not {softcap}")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label smoothing must be from 0 to 1, not {label_smoothing}")


def _validate_linear(
    h_RH: torch.Tensor, weight_VH: torch.Tensor, dh_out: torch.Tensor | None, logits_buffer: torch.Tensor
) -> None:
    if h_RH.ndim != 2 or weight_VH.ndim != 2 or h_RH.shape[1] != weight_VH.shape[1] or h_RH.dtype != weight_VH.dtype:
        raise ValueError(
            "h and weight must be [R, H] and [V, H] of one dtype, "
            f"not {tuple(h_RH.shape)} {h_RH.dtype} and {tuple(weight_VH.shape)} {weight_VH.dtype}"
        )
    if dh_out is not None and (dh_out.shape != h_RH.shape or dh_out.dtype != h_RH.dtype):
        raise ValueError(f"dh must be {tuple(h_RH.shape)} {h_RH.dtype}, not {tuple(dh_out.shape)} {dh_out.dtype}")
    if logits_buffer.ndim != 2 or logits_buffer.shape[1] != weight_VH.shape[0] or logits_buffer.dtype != h_RH.dtype:
        raise ValueError(
            f"the logits' buffer must be [chunk, {weight_VH.shape[0]}] {h_RH.dtype}, "
            f"not {tuple(logits_buffer.shape)} {logits_buffer.dtype}"
        )
    if logits_buffer.shape[0] == 0:
        raise ValueError("the logits' buffer must have at least one row")
