"""Gated delta rule: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

`forward` and `backward` know nothing of autograd. Nothing but the inputs is kept between them: the backward pass makes
the states of all chunks again, in a workspace that the caller may hand in.

Rows may be strided; the last dimension is contiguous. Shapes: T rows (tokens), B rows (replies), K key heads of D,
V value heads of E, C = 2 K D + V E (queries, keys, values), J = V E, R documents whose states are wanted.
"""

from __future__ import annotations

import torch

from burnish_kernels.delta_rule import reference
from burnish_kernels.delta_rule.sizes import Sizes, heads_at_a_time, workspace_bytes
from burnish_kernels.dispatch import interpreted, use_kernels

HEAD_SIZES = (16, 32, 64, 128)
"""Head sizes that the kernels are made for."""
_LEAST_16_BITS = 64
"""Least head size in 16 bits on a GPU: with narrower tiles, Triton 3.6 computes wrong products for an H200."""
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def forward(
    qkv_TC: torch.Tensor,
    b_TV: torch.Tensor,
    a_TV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    start_T: torch.Tensor,
    sizes: Sizes,
    *,
    out: torch.Tensor | None = None,
    last_R: torch.Tensor | None = None,
    states_RVDE: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute what each token reads from its document's state.

    Args:
        qkv_TC: queries, keys and values `[T, 2 K D + V E]`, not normalized, fp32, fp16 or bf16.
        b_TV: logit of each token's strength beta `[T, V]`, in the same dtype; rows may be strided.
        a_TV: input of each token's decay `[T, V]`, likewise.
        a_log_V: logarithm of each head's decay rate `[V]`, fp32.
        dt_bias_V: number added to a `[V]`, fp32.
        start_T: first row of each row's document, int32 `[T]`.
        sizes: heads.
        out: tensor `[T, V E]` to write the result to; no part of the inputs.
        last_R: int32 rows `[R]` behind which the state is wanted (a document's last row); None: no states.
        states_RVDE: tensor `[R, V, D, E]` fp32 to write those states to; goes with `last_R`.
        workspace: scratch memory on the device, uint8, of `workspace_bytes`; a smaller one is used for some heads at a
            time. None: allocated here. Not used where the reference computes.

    Returns:
        The output `[T, V E]`.

    Raises:
        ValueError: Shapes, dtypes, layout or workspace do not fit.
    """
    _validate(qkv_TC, b_TV, a_TV, a_log_V, dt_bias_V, sizes)
    _validate_rows(qkv_TC, start_T, {"out": (out, sizes.out_width)})
    _validate_states(qkv_TC, last_R, states_RVDE, sizes)
    o_TJ = qkv_TC.new_empty(len(qkv_TC), sizes.out_width) if out is None else out
    if not _has_kernels(qkv_TC, sizes):
        found_TJ, states = reference.forward(qkv_TC, b_TV, a_TV, a_log_V, dt_bias_V, start_T, sizes, last_R=last_R)
        if states is not None and states_RVDE is not None:
            states_RVDE.copy_(states)
        return o_TJ.copy_(found_TJ)
    from burnish_kernels.delta_rule.launch_kernels import DeltaInputs, launch_forward

    if o_TJ.numel():
        workspace, heads = _scratch(qkv_TC, sizes, workspace, exact_states=last_R is not None)
        launch_forward(
            DeltaInputs(qkv_TC, b_TV, a_TV, a_log_V, dt_bias_V, start_T, sizes),
            o_TJ=o_TJ,
            last_R=last_R,
            states_RVDE=states_RVDE,
            workspace=workspace,
            heads_at_a_time=heads,
        )
    return o_TJ


def backward(
    do_TJ: torch.Tensor,
    qkv_TC: torch.Tensor,
    b_TV: torch.Tensor,
    a_TV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    start_T: torch.Tensor,
    sizes: Sizes,
    *,
    dqkv_out: torch.Tensor | None = None,
    db_out: torch.Tensor | None = None,
    da_out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of queries, keys and values, of b and of a; the decay's parameters are frozen.

    Args:
        do_TJ: gradient `[T, V E]` of the output.
        qkv_TC: same as in `forward`.
        b_TV: same as in `forward`.
        a_TV: same as in `forward`.
        a_log_V: same as in `forward`.
        dt_bias_V: same as in `forward`.
        start_T: same as in `forward`.
        sizes: same as in `forward`.
        dqkv_out: tensor `[T, 2 K D + V E]` to write to; may be `qkv_TC` itself.
        db_out: tensor `[T, V]` to write to; may be `b_TV` itself.
        da_out: tensor `[T, V]` to write to; may be `a_TV` itself.
        workspace: as in `forward`, of the backward pass.

    Returns:
        The gradients of qkv `[T, 2 K D + V E]`, of b and of a `[T, V]`.

    Raises:
        ValueError: Shapes, dtypes, layout or workspace do not fit.
    """
    _validate(qkv_TC, b_TV, a_TV, a_log_V, dt_bias_V, sizes)
    wanted = {"dqkv_out": (dqkv_out, sizes.width)} | {
        name: (one, sizes.value_heads) for name, one in (("db_out", db_out), ("da_out", da_out))
    }
    _validate_rows(qkv_TC, start_T, {"do": (do_TJ, sizes.out_width), **wanted})
    dqkv_TC, db_TV, da_TV = (
        qkv_TC.new_empty(len(qkv_TC), width) if one is None else one for one, width in wanted.values()
    )
    if not len(qkv_TC):
        return dqkv_TC, db_TV, da_TV
    if not _has_kernels(qkv_TC, sizes):
        found = reference.backward(do_TJ, qkv_TC, b_TV, a_TV, a_log_V, dt_bias_V, start_T, sizes)
        return dqkv_TC.copy_(found[0]), db_TV.copy_(found[1]), da_TV.copy_(found[2])
    from burnish_kernels.delta_rule.launch_kernels import DeltaInputs, launch_backward

    workspace, heads = _scratch(qkv_TC, sizes, workspace, backward=True)
    launch_backward(
        DeltaInputs(qkv_TC, b_TV, a_TV, a_log_V, dt_bias_V, start_T, sizes),
        do_TJ=do_TJ,
        dqkv_TC=dqkv_TC,
        db_TV=db_TV,
        da_TV=da_TV,
        workspace=workspace,
        heads_at_a_time=heads,
    )
    return dqkv_TC, db_TV, da_TV


def step(
    qkv_BC: torch.Tensor,
    b_BV: torch.Tensor,
    a_BV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    state_BVDE: torch.Tensor,
    sizes: Sizes,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Let each row's state take in its newest token, and compute what that token reads.

    Args:
        qkv_BC: queries, keys and values `[B, 2 K D + V E]` of the newest tokens.
        b_BV: logits of beta `[B, V]`.
        a_BV: inputs of the decay `[B, V]`.
        a_log_V: same as in `forward`.
        dt_bias_V: same as in `forward`.
        state_BVDE: states `[B, V, D, E]` fp32, contiguous, zeros before a row's first token; changed.
        sizes: heads.
        out: tensor `[B, V E]` to write the result to; no part of the inputs.

    Returns:
        The output `[B, V E]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(qkv_BC, b_BV, a_BV, a_log_V, dt_bias_V, sizes)
    _validate_rows(qkv_BC, None, {"out": (out, sizes.out_width)})
    shape = (len(qkv_BC), sizes.value_heads, sizes.key_size, sizes.value_size)
    if state_BVDE.shape != shape or state_BVDE.dtype != a_log_V.dtype or not state_BVDE.is_contiguous():
        raise ValueError(f"state must be {shape} {a_log_V.dtype}, contiguous, not {tuple(state_BVDE.shape)}")
    o_BJ = qkv_BC.new_empty(len(qkv_BC), sizes.out_width) if out is None else out
    if not use_kernels(qkv_BC):
        return o_BJ.copy_(reference.step(qkv_BC, b_BV, a_BV, a_log_V, dt_bias_V, state_BVDE, sizes))
    from burnish_kernels.delta_rule.launch_kernels import launch_step

    if o_BJ.numel():
        launch_step(
            qkv_BC=qkv_BC,
            b_BV=b_BV,
            a_BV=a_BV,
            a_log_V=a_log_V,
            dt_bias_V=dt_bias_V,
            state_BVDE=state_BVDE,
            sizes=sizes,
            o_BJ=o_BJ,
        )
    return o_BJ


def _scratch(
    qkv_TC: torch.Tensor,
    sizes: Sizes,
    workspace: torch.Tensor | None,
    *,
    backward: bool = False,
    exact_states: bool = False,
) -> tuple[torch.Tensor, int]:
    """Return the workspace and how many key heads it serves at a time."""
    rows, dtype = len(qkv_TC), qkv_TC.dtype
    flags = {"backward": backward, "exact_states": exact_states}
    if workspace is None:
        size = workspace_bytes(rows, sizes, dtype, **flags)
        return torch.empty(size, dtype=torch.uint8, device=qkv_TC.device), sizes.key_heads
    if workspace.dtype != torch.uint8 or workspace.ndim != 1 or not workspace.is_contiguous():
        raise ValueError(f"the workspace must be [bytes] uint8, contiguous, not {workspace.dtype}")
    return workspace, heads_at_a_time(workspace, rows, sizes, dtype, **flags)


def _has_kernels(qkv_TC: torch.Tensor, sizes: Sizes) -> bool:
    """Return whether the kernels do the passes over documents."""
    is_wide = min(sizes.key_size, sizes.value_size) >= _LEAST_16_BITS or qkv_TC.element_size() > 2
    return use_kernels(qkv_TC) and (is_wide or interpreted())


def _validate(
    qkv_TC: torch.Tensor,
    b_TV: torch.Tensor,
    a_TV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    sizes: Sizes,
) -> None:
    """Check what all passes are given.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    if qkv_TC.dtype not in _DTYPES and use_kernels(qkv_TC):
        raise ValueError(f"qkv must be fp32, fp16 or bf16, not {qkv_TC.dtype}")
    if sizes.key_heads < 1 or sizes.value_heads < 1 or sizes.value_heads % sizes.key_heads:
        raise ValueError(f"{sizes.value_heads} value heads are no multiple of {sizes.key_heads} key heads")
    for size in (sizes.key_size, sizes.value_size):
        if size not in HEAD_SIZES and use_kernels(qkv_TC):
            raise ValueError(f"head sizes must be among {HEAD_SIZES}, not {size}")
    widths = {"qkv": (qkv_TC, sizes.width), "b": (b_TV, sizes.value_heads), "a": (a_TV, sizes.value_heads)}
    _validate_rows(qkv_TC, None, widths)
    exact = torch.promote_types(qkv_TC.dtype, torch.float32)
    for name, one in (("a_log", a_log_V), ("dt_bias", dt_bias_V)):
        if one.shape != (sizes.value_heads,) or one.dtype != exact or not one.is_contiguous():
            raise ValueError(f"{name} must be [{sizes.value_heads}] {exact}, not {tuple(one.shape)} {one.dtype}")


def _validate_rows(
    qkv_TC: torch.Tensor, start_T: torch.Tensor | None, widths: dict[str, tuple[torch.Tensor | None, int]]
) -> None:
    """Check tensors that have a row for each row of qkv, with the width each must have."""
    rows = qkv_TC.shape[0]
    if start_T is not None and (start_T.shape != (rows,) or start_T.dtype != torch.int32):
        raise ValueError(f"start must be [{rows}] int32, not {tuple(start_T.shape)} {start_T.dtype}")
    for name, (found, width) in widths.items():
        if found is None:
            continue
        if found.shape != (rows, width) or found.dtype != qkv_TC.dtype:
            raise ValueError(f"{name} must be {(rows, width)} {qkv_TC.dtype}, not {tuple(found.shape)} {found.dtype}")
        if found.stride(1) != 1 and width > 1 and rows:
            raise ValueError(f"each row of {name} must be contiguous")


def _validate_states(
    qkv_TC: torch.Tensor, last_R: torch.Tensor | None, states_RVDE: torch.Tensor | None, sizes: Sizes
) -> None:
    """Check the rows behind which states are wanted, and where the states go."""
    if (last_R is None) != (states_RVDE is None):
        raise ValueError("last and states go together")
    if last_R is None or states_RVDE is None:
        return
    if last_R.ndim != 1 or last_R.dtype != torch.int32:
        raise ValueError(f"last must be [R] int32, not {tuple(last_R.shape)} {last_R.dtype}")
    shape = (len(last_R), sizes.value_heads, sizes.key_size, sizes.value_size)
    exact = torch.promote_types(qkv_TC.dtype, torch.float32)
    if states_RVDE.shape != shape or states_RVDE.dtype != exact or not states_RVDE.is_contiguous():
        raise ValueError(f"states must be {shape} {exact}, contiguous, not {tuple(states_RVDE.shape)}")
