"""One token of a gated delta rule for each row, in Triton: a program holds some columns of a head's state in fp32."""

from __future__ import annotations

import triton
import triton.language as tl

from burnish_kernels.delta_rule.kernel import normalized


@triton.jit
def _unit(pointer, row, stride, column, D: tl.constexpr):
    """Return one normalized row in fp32."""
    x = tl.load(pointer + row * stride + column + tl.arange(0, D)).to(tl.float32)
    unit, _ = normalized(x[None, :])
    return tl.sum(unit, axis=0)


@triton.jit
def delta_step_kernel(
    q_ptr,  # [B, K D], rows as of v
    k_ptr,  # [B, K D]
    v_ptr,  # [B, V E]
    b_ptr,  # [B, V]
    a_ptr,  # [B, V]
    a_log_ptr,  # [V]
    dt_bias_ptr,  # [V]
    state_ptr,  # [B, V, D, E] fp32
    o_ptr,  # [B, V E]
    V,
    qkv_stride,
    b_stride,
    a_stride,
    o_stride,
    scale,
    SHARED: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Let one head's state take in a token, and compute what the token reads, some columns of it."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    q = _unit(q_ptr, row, qkv_stride, head // SHARED * D, D) * scale
    k = _unit(k_ptr, row, qkv_stride, head // SHARED * D, D)
    v = tl.load(v_ptr + row * qkv_stride + head * E + column).to(tl.float32)
    b = tl.load(b_ptr + row * b_stride + head)
    beta = tl.sigmoid(b.to(tl.float32)).to(b.dtype).to(tl.float32)
    x = tl.load(a_ptr + row * a_stride + head).to(tl.float32) + tl.load(dt_bias_ptr + head)
    softplus = tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    place = state_ptr + ((row * V + head) * D + tl.arange(0, D)[:, None]) * E + column[None, :]
    state = tl.load(place) * tl.exp(-tl.exp(tl.load(a_log_ptr + head)) * softplus)
    answer = tl.sum(k[:, None] * state, axis=0)
    state += k[:, None] * (beta * (v - answer))[None, :]
    tl.store(place, state)
    o = tl.sum(q[:, None] * state, axis=0)
    tl.store(o_ptr + row * o_stride + head * E + column, o.to(o_ptr.dtype.element_ty))
