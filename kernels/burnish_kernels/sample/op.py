"""Choose tokens and note them: validate, allocate, choose. Triton on CUDA (or in its interpreter), else the reference.

A draw depends on the row's seed, on its number of tokens and on its logits alone, never on its neighbors. There is no
gradient. Shapes: B rows, V vocabulary, S slots that rows may lie in, R recent tokens, K stops.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.sample import reference
from burnish_kernels.sample.rows import ReplyRows, SamplingRows

__all__ = ["ReplyRows", "SamplingRows", "choose", "record"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_NUMBERS = {"seed": torch.int64, "top_k": torch.int32}


def choose(
    logits_BV: torch.Tensor,
    choice: SamplingRows,
    count_S: torch.Tensor,
    *,
    slots_B: torch.Tensor | None = None,
    softcap: float | None = None,
    draws: bool = True,
    bounds: bool = True,
) -> torch.Tensor:
    """Choose the next token of every row.

    Args:
        logits_BV: logits `[B, V]`, fp32, fp16 or bf16; rows may be strided.
        choice: how tokens are chosen, for each slot.
        count_S: int32 number of tokens before the chosen one, for each slot.
        slots_B: int32 slot of each row; None: row i is in slot i.
        softcap: bound of the logits, which become `softcap * tanh(logit / softcap)` before; None: none.
        draws: whether any row has a temperature above 0; False leaves out what only draws need.
        bounds: whether any row has a top-k, or a top-p below 1; likewise.

    Returns:
        Tokens `[B]` int64.

    Raises:
        ValueError: Shapes, dtypes or layouts do not fit.
    """
    if logits_BV.ndim != 2 or not logits_BV.shape[1] or logits_BV.stride(1) != 1 or logits_BV.dtype not in DTYPES:
        raise ValueError(f"logits must be [B, V] of floats side by side, not {tuple(logits_BV.shape)}")
    rows, slots = len(logits_BV), len(count_S)
    _validate_slots(slots_B, rows, slots)
    for name, values in vars(choice).items():
        if values.shape != (slots,) or values.dtype != _NUMBERS.get(name, torch.float32):
            raise ValueError(f"{name} must be [{slots}], not {tuple(values.shape)} {values.dtype}")
    if count_S.dtype != torch.int32 or (softcap is not None and softcap <= 0):
        raise ValueError(f"counts are int32 and a soft cap is above zero, not {count_S.dtype}, {softcap}")
    if not use_kernels(logits_BV):
        own = torch.arange(rows) if slots_B is None else slots_B.long()
        picked = SamplingRows(**{name: values[own] for name, values in vars(choice).items()})
        return reference.choose(logits_BV, picked, count_S[own], softcap)
    from burnish_kernels.sample.kernel import launch_choose

    chosen_B = torch.empty(rows, dtype=torch.int64, device=logits_BV.device)
    if rows:
        launch_choose(logits_BV, choice, count_S, slots_B, chosen_B, softcap, draws=draws, bounds=bounds)
    return chosen_B


def record(
    tokens_B: torch.Tensor, rows: ReplyRows, stops_K: torch.Tensor, *, slots_B: torch.Tensor | None = None
) -> None:
    """Note the chosen tokens of replies that live; a token of `stops_K`, or the last allowed one, ends its reply.

    Args:
        tokens_B: tokens `[B]` int64.
        rows: state of all slots; changed.
        stops_K: int32 tokens that end a reply.
        slots_B: int32 slot of each token; None: token i is of slot i.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    _validate_slots(slots_B, len(tokens_B), len(rows.ids))
    if tokens_B.dtype != torch.int64 or stops_K.dtype != torch.int32:
        raise ValueError(f"tokens are int64 and stops int32, not {tokens_B.dtype}, {stops_K.dtype}")
    if not use_kernels(tokens_B):
        reference.record(tokens_B, rows, stops_K, torch.arange(len(tokens_B)) if slots_B is None else slots_B)
        return
    from burnish_kernels.sample.kernel import launch_record

    if len(tokens_B):
        launch_record(tokens_B, rows, stops_K, slots_B)


def _validate_slots(slots_B: torch.Tensor | None, rows: int, slots: int) -> None:
    if slots_B is None and rows > slots:
        raise ValueError(f"{rows} rows do not fit {slots} slots")
    if slots_B is not None and (slots_B.shape != (rows,) or slots_B.dtype != torch.int32):
        raise ValueError(f"slots must be [{rows}] int32, not {tuple(slots_B.shape)} {slots_B.dtype}")
