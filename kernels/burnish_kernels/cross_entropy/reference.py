"""Cross entropy in plain PyTorch: the definition that the kernel is compared with.

With logits z (after softcap·tanh(z / softcap) as in Gemma 2, arXiv 2408.00118, section 2), lse = logsumexp(z) and
target t:

    loss = (1 - e)·(lse - z_t) + e·(lse - mean(z)) + z_loss·lse²

Label smoothing e as in torch.nn.functional.cross_entropy (Szegedy et al. 2015, arXiv 1512.00567), z-loss as in PaLM
(Chowdhery et al. 2022, arXiv 2204.02311, section 5). Rows whose target is `IGNORED` have loss 0 and gradient 0,
whatever their logits are.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch

IGNORED = -100
"""Target of a row that is not supervised; torch's and transformers' ignore_index."""


def losses(
    logits_RV: torch.Tensor,
    targets_R: torch.Tensor,
    *,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> torch.Tensor:
    """Return the loss of each row in nats, `[R]`, at least in single precision; differentiable."""
    ignored_R = targets_R == IGNORED
    z_RV = _capped(_wide(logits_RV.masked_fill(ignored_R[:, None], 0.0)), softcap)
    lse_R = torch.logsumexp(z_RV, dim=-1)
    target_R = z_RV.gather(1, targets_R.masked_fill(ignored_R, 0).long()[:, None])[:, 0]
    loss_R = (1.0 - label_smoothing) * (lse_R - target_R) + z_loss * lse_R * lse_R
    if label_smoothing:
        loss_R = loss_R + label_smoothing * (lse_R - z_RV.mean(dim=-1))
    return loss_R.masked_fill(ignored_R, 0.0)


def correct(logits_RV: torch.Tensor, targets_R: torch.Tensor) -> torch.Tensor:
    """Return whether the target is the first of the largest logits, `[R]` bool; False where ignored."""
    return logits_RV.argmax(dim=-1) == targets_R


def gradient(
    logits_RV: torch.Tensor,
    targets_R: torch.Tensor,
    scale: torch.Tensor,
    *,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> torch.Tensor:
    """Return the gradient of scale · loss by the logits, `[R, V]`, at least in single precision.

    Written out, because autograd would keep several copies of `[R, V]`:
    scale · (softmax(z)·(1 + 2·z_loss·lse) - e / V - (1 - e)·[column = t]) · (1 - (z / softcap)²).
    """
    ignored_R = targets_R == IGNORED
    z_RV = _capped(_wide(logits_RV.masked_fill(ignored_R[:, None], 0.0)), softcap)
    dz_RV = torch.softmax(z_RV, dim=-1)
    if z_loss:
        dz_RV.mul_(1.0 + 2.0 * z_loss * torch.logsumexp(z_RV, dim=-1, keepdim=True))
    if label_smoothing:
        dz_RV.sub_(label_smoothing / z_RV.shape[1])
    target_R1 = targets_R.masked_fill(ignored_R, 0).long()[:, None]
    dz_RV.scatter_add_(1, target_R1, dz_RV.new_full((1, 1), label_smoothing - 1.0).expand_as(target_R1))
    if softcap is not None:
        dz_RV.mul_(1.0 - (z_RV / softcap).square())
    return dz_RV.mul_(scale.to(dz_RV.dtype)).masked_fill_(ignored_R[:, None], 0.0)


def _wide(logits_RV: torch.Tensor) -> torch.Tensor:
    return logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))


def _capped(logits_RV: torch.Tensor, softcap: float | None) -> torch.Tensor:
    return logits_RV if softcap is None else softcap * torch.tanh(logits_RV / softcap)
