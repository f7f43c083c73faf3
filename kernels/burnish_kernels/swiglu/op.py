"""Gated activation: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

`forward` and `backward` know nothing of autograd; `swiglu` is the autograd operation built on them.

Rows may be strided, so that the result can be written into a wider buffer; the last dimension is
contiguous. Shapes: T rows (tokens), I intermediate size, J = 2I (gate, then up).
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.eight_bit_linear.op import EightBitRows, quantize_rows, writes_codes
from burnish_kernels.row_blocks import row_blocks
from burnish_kernels.swiglu import reference

ACTIVATIONS = ("silu", "gelu_tanh", "gelu")


def forward(
    gate_up_TJ: torch.Tensor,
    *,
    activation: str,
    out: torch.Tensor | None = None,
    codes_out: EightBitRows | None = None,
) -> torch.Tensor:
    """Compute the activated gate times up.

    Args:
        gate_up_TJ: input `[T, 2I]`, fp32, fp16 or bf16: gate, then up.
        activation: name "silu", "gelu_tanh" or "gelu".
        out: tensor `[T, I]` to write the result to; may be the gate half of `gate_up_TJ`.
        codes_out: codes and scales of the result to write beside it, as `eight_bit_linear.quantize_rows` makes them;
            None: none.

    Returns:
        The result `[T, I]`.

    Raises:
        ValueError: Shapes, dtypes, layout or the activation's name do not fit.
    """
    validate(gate_up_TJ, activation, act_TI=(("out", out),))
    act_TI = gate_up_TJ.new_empty(len(gate_up_TJ), gate_up_TJ.shape[1] // 2) if out is None else out
    if not use_kernels(gate_up_TJ):
        for rows in row_blocks(gate_up_TJ):
            act_TI[rows] = reference.forward(gate_up_TJ[rows], activation=activation)
        if codes_out is not None:
            quantize_rows(act_TI, out=codes_out)
        return act_TI
    from burnish_kernels.swiglu.kernel import launch_forward

    fused = writes_codes(codes_out, act_TI)
    if act_TI.numel():
        launch_forward(gate_up_TJ, act_TI, activation, codes_out if fused else None)
    if codes_out is not None and not fused:
        quantize_rows(act_TI, out=codes_out)
    return act_TI


def backward(
    dact_TI: torch.Tensor,
    gate_up_TJ: torch.Tensor,
    *,
    activation: str,
    out: torch.Tensor | None = None,
    act_out: torch.Tensor | None = None,
    codes_out: EightBitRows | None = None,
    factor_J: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the gradient of the stacked gate and up.

    Args:
        dact_TI: gradient `[T, I]` of the result.
        gate_up_TJ: input `[T, 2I]` given to `forward`.
        activation: same as in `forward`.
        out: tensor `[T, 2I]` to write the gradient to; may be `gate_up_TJ` itself.
        act_out: tensor `[T, I]` that the result is written to again, bit for bit; may be `dact_TI` itself. None: not
            wanted.
        codes_out: codes and scales of the gradient times `factor_J` to write beside it, as
            `eight_bit_linear.quantize_rows` makes them, for the product that gives the input's gradient; None: none.
        factor_J: factor of each column `[2I]` fp32 in the codes, the scales of that product's weight rows; None: none.

    Returns:
        The gradient `[T, 2I]` of gate, then of up.

    Raises:
        ValueError: Shapes, dtypes, layout or the activation's name do not fit.
    """
    validate(gate_up_TJ, activation, act_TI=(("dact", dact_TI), ("act_out", act_out)), stacked_TJ=(("out", out),))
    dgate_up_TJ = torch.empty_like(gate_up_TJ, memory_format=torch.contiguous_format) if out is None else out
    if not use_kernels(gate_up_TJ):
        size = dact_TI.shape[1]
        for rows in row_blocks(gate_up_TJ):  # of each block all is read before anything is written
            block_TJ = gate_up_TJ[rows]
            act_TI = None if act_out is None else reference.forward(block_TJ, activation=activation)
            dgate_TI, dup_TI = reference.backward(dact_TI[rows], block_TJ, activation=activation)
            dgate_up_TJ[rows, :size], dgate_up_TJ[rows, size:] = dgate_TI, dup_TI
            if act_out is not None and act_TI is not None:
                act_out[rows] = act_TI
        if codes_out is not None:
            quantize_rows(dgate_up_TJ, factor_K=factor_J, out=codes_out)
        return dgate_up_TJ
    from burnish_kernels.swiglu.kernel import launch_backward

    fused = writes_codes(codes_out, gate_up_TJ, factor_J)
    if gate_up_TJ.numel():
        launch_backward(dact_TI, gate_up_TJ, dgate_up_TJ, act_out, activation, codes_out if fused else None, factor_J)
    if codes_out is not None and not fused:
        quantize_rows(dgate_up_TJ, factor_K=factor_J, out=codes_out)
    return dgate_up_TJ


def validate(
    gate_up_TJ: torch.Tensor,
    activation: str,
    act_TI: tuple[tuple[str, torch.Tensor | None], ...],
    stacked_TJ: tuple[tuple[str, torch.Tensor | None], ...] = (),
) -> None:
    """Check the operands of a gated activation.

    Args:
        gate_up_TJ: input `[T, 2I]`.
        activation: name of the activation.
        act_TI: names and tensors that must be `[T, I]` of the same type, or None.
        stacked_TJ: names and tensors that must be `[T, 2I]` of the same type, or None.

    Raises:
        ValueError: Shapes, dtypes, layout or the activation's name do not fit.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
    if gate_up_TJ.ndim != 2 or gate_up_TJ.shape[1] % 2 or not gate_up_TJ.shape[1]:
        raise ValueError(f"gate_up must be [T, 2I], not {tuple(gate_up_TJ.shape)}")
    if gate_up_TJ.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(gate_up_TJ):
        raise ValueError(f"gate_up must be fp32, fp16 or bf16, not {gate_up_TJ.dtype}")
    rows, stacked = gate_up_TJ.shape
    named = [(name, tensor, stacked // 2) for name, tensor in act_TI]
    named += [(name, tensor, stacked) for name, tensor in (("gate_up", gate_up_TJ), *stacked_TJ)]
    for name, tensor, width in named:
        if tensor is None:
            continue
        if tensor.shape != (rows, width) or tensor.dtype != gate_up_TJ.dtype:
            raise ValueError(
                f"{name} must be {(rows, width)} {gate_up_TJ.dtype}, not {tuple(tensor.shape)} {tensor.dtype}"
            )
        if tensor.stride(1) != 1 and width > 1 and rows:
            raise ValueError(f"each row of {name} must be contiguous")
