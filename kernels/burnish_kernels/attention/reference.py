"""Attention within documents in plain PyTorch: the definition that the kernels are compared with.

Scaled dot-product attention (Vaswani et al. 2017, arXiv 1706.03762) with grouped queries (Ainslie et al. 2023, arXiv
2305.13245), a sliding window (Beltagy et al. 2020, arXiv 2004.05150) and soft-capped scores (Gemma 2, arXiv
2408.00118), and sinks (gpt-oss, arXiv 2508.10925): one logit a head that takes its share of each row and has no value.
Key j is visible to query i if both are rows of one document, j <= i and, with a window, i - j < window.

Shapes: T rows, N query heads, M key heads (N = G M), D head size.
"""

from __future__ import annotations

import itertools

import torch

QUERY_BLOCK = 512
"""Rows whose scores are held at once: no matrix of T x T, and almost half of it is never computed."""


def attention(
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    start_T: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks_N: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention and the logarithm of each row's sum of exponentials; see `op.forward`.

    Args:
        q_TND: queries `[T, N, D]`.
        k_TMD: keys `[T, M, D]`.
        v_TMD: values `[T, M, D]`.
        start_T: first row of each row's document.
        scale: factor of the scores.
        window: number of keys that a query sees, itself included; None: all before it.
        softcap: bound of the scores, which become `softcap * tanh(score / softcap)`.
        sinks_N: logit of each head's sink; None: no sinks.

    Returns:
        `o_TND` in the dtype of `q_TND`, and `lse_NT` in at least single precision.
    """
    rows, heads = q_TND.shape[:2]
    wide = torch.promote_types(q_TND.dtype, torch.float32)
    outputs, sums = [q_TND.new_empty(0, *q_TND.shape[1:])], [q_TND.new_empty(heads, 0, dtype=wide)]
    edges = [*torch.unique_consecutive(start_T).tolist(), rows] if rows else []
    for start, end in itertools.pairwise(edges):
        for first in range(start, end, QUERY_BLOCK):
            past = min(first + QUERY_BLOCK, end)
            lowest = start if window is None else max(start, first - window + 1)
            k_KMD, v_KMD = k_TMD[lowest:past].to(wide), v_TMD[lowest:past].to(wide)
            o, lse = _block(q_TND[first:past].to(wide), k_KMD, v_KMD, scale, window, softcap, sinks_N)
            outputs.append(o.to(q_TND.dtype))
            sums.append(lse)
    return torch.cat(outputs), torch.cat(sums, dim=1)


def _block(
    q_QND: torch.Tensor,
    k_KMD: torch.Tensor,
    v_KMD: torch.Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks_N: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention of the last Q rows of a run of K rows of one document."""
    queries, heads, width = q_QND.shape
    keys, kv_heads = k_KMD.shape[:2]
    q_MGQD = q_QND.reshape(queries, kv_heads, heads // kv_heads, width).permute(1, 2, 0, 3)
    k_M1KD, v_M1KD = (tensor.permute(1, 0, 2).unsqueeze(1) for tensor in (k_KMD, v_KMD))
    s_MGQK = q_MGQD @ k_M1KD.transpose(-1, -2) * scale
    if softcap is not None:
        s_MGQK = softcap * torch.tanh(s_MGQK / softcap)
    ages_QK = torch.arange(keys - queries, keys, device=q_QND.device)[:, None] - torch.arange(keys, device=q_QND.device)
    hidden_QK = (ages_QK < 0) if window is None else (ages_QK < 0) | (ages_QK >= window)
    s_MGQK = s_MGQK.masked_fill(hidden_QK, float("-inf"))
    lse_MGQ = torch.logsumexp(s_MGQK, dim=-1)
    if sinks_N is not None:
        lse_MGQ = torch.logaddexp(lse_MGQ, sinks_N.to(lse_MGQ.dtype).view(kv_heads, -1, 1))
    o_MGQD = torch.exp(s_MGQK - lse_MGQ.unsqueeze(-1)) @ v_M1KD
    return o_MGQD.permute(2, 0, 1, 3).reshape(queries, heads, width), lse_MGQ.reshape(heads, queries)
