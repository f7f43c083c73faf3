"""Gated delta rule in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

Gated DeltaNet (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464; transformers' `Qwen3_5GatedDeltaNet`). A document's
state S `[D, E]` begins with zeros. Each token first lets it decay, S = exp(g) S, then moves what the state answers to
its key toward its value, S = S + k (beta (v - S^T k))^T, and reads S^T q. Queries and keys are normalized, queries
scaled by D^-0.5, beta = sigmoid(b), g = -exp(A_log) softplus(a + dt_bias).

In chunks of L tokens (section 3.3 there): the new values u of a chunk solve a triangular system, so that only the
states between chunks are computed one after the other. Documents are told apart by masks, exactly: whatever stands
before a token's document has no part in its result.

All is summed in at least fp32 and rounded once. `forward` can be differentiated by autograd.

Shapes: T rows (tokens), B rows (replies), N chunks of L rows, K key heads of D, V value heads of E, C = 2 K D + V E
(queries, keys, values), J = V E, R documents whose states are wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from burnish_kernels.delta_rule.sizes import CHUNK, Sizes
from burnish_kernels.taps import wide

EPS = 1e-6


@dataclass(frozen=True)
class _Chunks:
    """The parts of a chunk that need no state.

    Attributes:
        k_VNLD: normalized keys.
        seen_VNL: share of the state before the chunk that a row sees; 0 where its document began later.
        left_VNL: share of a row in the state behind the chunk; 0 where its document ended earlier.
        pairs_VNLL: decay from a row (last dimension) to a later one of its document; 0 elsewhere.
        read_VNLL: what each row reads from each new value.
        q_VNLD: normalized and scaled queries.
        w_VNLD: keys through the triangular system.
        u_VNLE: values through the triangular system.
    """

    k_VNLD: torch.Tensor
    seen_VNL: torch.Tensor
    left_VNL: torch.Tensor
    pairs_VNLL: torch.Tensor
    read_VNLL: torch.Tensor
    q_VNLD: torch.Tensor
    w_VNLD: torch.Tensor
    u_VNLE: torch.Tensor


def forward(
    qkv_TC: torch.Tensor,
    b_TV: torch.Tensor,
    a_TV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    start_T: torch.Tensor,
    sizes: Sizes,
    *,
    last_R: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute the output and, behind the rows `last_R`, the states `[R, V, D, E]`; see `op.forward`."""
    rows = len(qkv_TC)
    if not rows:
        return qkv_TC.new_zeros(0, sizes.out_width), None
    chunks = _chunks(qkv_TC, b_TV, a_TV, a_log_V, dt_bias_V, start_T, sizes)
    states_VNDE, new_VNLE = _scan(chunks)
    o_VNLE = chunks.seen_VNL[..., None] * (chunks.q_VNLD @ states_VNDE) + chunks.read_VNLL @ new_VNLE
    o_TJ = o_VNLE.flatten(1, 2)[:, :rows].transpose(0, 1).flatten(1).to(qkv_TC.dtype)
    return o_TJ, None if last_R is None else _states_behind(last_R.long(), chunks, states_VNDE, new_VNLE)


def backward(
    do_TJ: torch.Tensor,
    qkv_TC: torch.Tensor,
    b_TV: torch.Tensor,
    a_TV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    start_T: torch.Tensor,
    sizes: Sizes,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of queries, keys and values, of b and of a, by autograd; see `op.backward`."""
    with torch.enable_grad():
        leaves = [one.detach().requires_grad_() for one in (qkv_TC, b_TV, a_TV)]
        o_TJ, _ = forward(leaves[0], leaves[1], leaves[2], a_log_V, dt_bias_V, start_T, sizes)
        dqkv_TC, db_TV, da_TV = torch.autograd.grad(o_TJ, leaves, do_TJ)
    return dqkv_TC, db_TV, da_TV


def step(
    qkv_BC: torch.Tensor,
    b_BV: torch.Tensor,
    a_BV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    state_BVDE: torch.Tensor,
    sizes: Sizes,
) -> torch.Tensor:
    """Let each row's state take in its newest token, and read it; see `op.step`."""
    q_BVD, k_BVD, v_BVE = heads(qkv_BC, sizes)
    beta_BV, g_BV = gates(b_BV, a_BV, a_log_V, dt_bias_V)
    state_BVDE.mul_(g_BV.exp()[..., None, None])
    answer_BVE = torch.einsum("bvd,bvde->bve", k_BVD, state_BVDE)
    state_BVDE.add_(k_BVD[..., None] * (beta_BV[..., None] * (v_BVE - answer_BVE))[..., None, :])
    return torch.einsum("bvd,bvde->bve", q_BVD, state_BVDE).flatten(1).to(qkv_BC.dtype)


def heads(qkv_TC: torch.Tensor, sizes: Sizes) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return normalized and scaled queries, normalized keys, both for every value head, and values, `[T, V, ...]`."""
    keys = sizes.key_heads * sizes.key_size
    q_TKD, k_TKD = (one.unflatten(1, (-1, sizes.key_size)) for one in wide(qkv_TC[:, : 2 * keys]).chunk(2, dim=1))
    q_TVD, k_TVD = (_normalized(one).repeat_interleave(sizes.shared, dim=1) for one in (q_TKD, k_TKD))
    return q_TVD * sizes.key_size**-0.5, k_TVD, wide(qkv_TC[:, 2 * keys :]).unflatten(1, (-1, sizes.value_size))


def gates(
    b_TV: torch.Tensor, a_TV: torch.Tensor, a_log_V: torch.Tensor, dt_bias_V: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return beta, rounded to b's type as transformers does, and g."""
    return wide(torch.sigmoid(b_TV)), -a_log_V.exp() * functional.softplus(wide(a_TV) + dt_bias_V)


def _normalized(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + EPS)


def _chunks(
    qkv_TC: torch.Tensor,
    b_TV: torch.Tensor,
    a_TV: torch.Tensor,
    a_log_V: torch.Tensor,
    dt_bias_V: torch.Tensor,
    start_T: torch.Tensor,
    sizes: Sizes,
) -> _Chunks:
    q_VNLD, k_VNLD, v_VNLE = (_in_chunks(one) for one in heads(qkv_TC, sizes))
    row_T = torch.arange(len(qkv_TC), device=qkv_TC.device)
    beta_TV, g_TV = gates(b_TV, a_TV, a_log_V, dt_bias_V)
    beta_VNL, g_VNL = _in_chunks(beta_TV), _in_chunks(torch.where((start_T == row_T)[:, None], 0.0, g_TV))
    # Rows that fill the last chunk belong to its last document: they come after all others and change none.
    start_NL = torch.cat((start_T, start_T[-1:].expand(-len(start_T) % CHUNK))).view(-1, CHUNK)
    same_NLL = (start_NL[:, :, None] == start_NL[:, None, :]).tril()
    summed_VNL = (same_NLL.to(g_VNL.dtype) @ g_VNL[..., None]).squeeze(-1)
    pairs_VNLL = _decay(summed_VNL[..., :, None] - summed_VNL[..., None, :], same_NLL)
    first_N1 = torch.arange(0, start_NL.numel(), CHUNK, device=start_T.device)[:, None]
    seen_VNL = summed_VNL.exp() * (start_NL < first_N1)
    left_VNL = pairs_VNLL[..., -1, :]
    system_VNLL = beta_VNL[..., None] * (k_VNLD @ k_VNLD.mT) * pairs_VNLL
    right_VNLX = torch.cat((k_VNLD * seen_VNL[..., None], v_VNLE), dim=-1) * beta_VNL[..., None]
    solved_VNLX = torch.linalg.solve_triangular(system_VNLL, right_VNLX, upper=False, unitriangular=True)
    w_VNLD, u_VNLE = solved_VNLX.split((sizes.key_size, sizes.value_size), dim=-1)
    read_VNLL = (q_VNLD @ k_VNLD.mT) * pairs_VNLL
    return _Chunks(k_VNLD, seen_VNL, left_VNL, pairs_VNLL, read_VNLL, q_VNLD, w_VNLD, u_VNLE)


def _in_chunks(x_TVX: torch.Tensor) -> torch.Tensor:
    """Return `[T, V, ...]` as `[V, N, L, ...]`, filled up with zeros."""
    x_VTX = x_TVX.transpose(0, 1)
    missing = -x_VTX.shape[1] % CHUNK
    x_VPX = functional.pad(x_VTX, (*[0] * (2 * (x_VTX.ndim - 2)), 0, missing))
    return x_VPX.unflatten(1, (-1, CHUNK))


def _decay(exponent: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Return exp where it is allowed, else 0, without an overflow that would make gradients NaN."""
    return torch.where(allowed, exponent, float("-inf")).exp()


def _scan(chunks: _Chunks) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the state before each chunk and its new values."""
    state_VDE = chunks.u_VNLE.new_zeros(len(chunks.u_VNLE), chunks.k_VNLD.shape[-1], chunks.u_VNLE.shape[-1])
    leaving_VNDL = (chunks.k_VNLD * chunks.left_VNL[..., None]).mT
    states, news = [], []
    for chunk in range(chunks.u_VNLE.shape[1]):
        new_VLE = chunks.u_VNLE[:, chunk] - chunks.w_VNLD[:, chunk] @ state_VDE
        states.append(state_VDE)
        news.append(new_VLE)
        kept_V11 = chunks.seen_VNL[:, chunk, -1, None, None]
        state_VDE = kept_V11 * state_VDE + leaving_VNDL[:, chunk] @ new_VLE
    return torch.stack(states, dim=1), torch.stack(news, dim=1)


def _states_behind(
    last_R: torch.Tensor, chunks: _Chunks, states_VNDE: torch.Tensor, new_VNLE: torch.Tensor
) -> torch.Tensor:
    """Return the states behind some rows."""
    chunk_R, row_R = last_R // CHUNK, last_R % CHUNK
    kept_VR11 = chunks.seen_VNL[:, chunk_R, row_R, None, None]
    leaving_VRDL = (chunks.k_VNLD[:, chunk_R] * chunks.pairs_VNLL[:, chunk_R, row_R, :, None]).mT
    return (kept_VR11 * states_VNDE[:, chunk_R] + leaving_VRDL @ new_VNLE[:, chunk_R]).transpose(0, 1)
