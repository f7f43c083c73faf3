"""The PyTorch reference of attention over pages: row by row, with all of a row's keys gathered."""

from __future__ import annotations

import torch


def store(new_BMD: torch.Tensor, pool_PMLD: torch.Tensor, table_BP: torch.Tensor, lengths_B: torch.Tensor) -> None:
    """Write the newest token of every row that has one into its page."""
    page_tokens = pool_PMLD.shape[2]
    for row, length in enumerate(lengths_B.tolist()):
        if length:
            page, place = divmod(length - 1, page_tokens)
            pool_PMLD[table_BP[row, page].long(), :, place] = new_BMD[row]


def paged_attention(
    q_BND: torch.Tensor,
    keys_PMLD: torch.Tensor,
    values_PMLD: torch.Tensor,
    table_BP: torch.Tensor,
    lengths_B: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks_N: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend to the stored tokens of every row; arguments as for `op.forward`. Rows of no tokens give zeros."""
    page_tokens, group = keys_PMLD.shape[2], q_BND.shape[1] // keys_PMLD.shape[1]
    wide = torch.promote_types(q_BND.dtype, torch.float32)
    out_BND = torch.zeros_like(q_BND)
    for row, length in enumerate(lengths_B.tolist()):
        if not length:
            continue
        pages = table_BP[row, : -(-length // page_tokens)].long()
        first = 0 if window is None else max(0, length - window)
        k_NLD, v_NLD = (
            pool[pages].transpose(0, 1).flatten(1, 2)[:, first:length].to(wide).repeat_interleave(group, dim=0)
            for pool in (keys_PMLD, values_PMLD)
        )
        scores_NL = torch.einsum("nd,nld->nl", q_BND[row].to(wide), k_NLD) * scale
        if softcap is not None:
            scores_NL = softcap * torch.tanh(scores_NL / softcap)
        if sinks_N is not None:  # one more score, of a key that has no value
            scores_NL = torch.cat((scores_NL, sinks_N.to(wide)[:, None]), dim=1)
        weights_NL = torch.softmax(scores_NL, dim=1)[:, : length - first]
        out_BND[row] = torch.einsum("nl,nld->nd", weights_NL, v_NLD).to(q_BND.dtype)
    return out_BND
