"""Routing in plain PyTorch: the definition of the kernels' result, and the path without a GPU.

The routers are those of transformers' models, rounding points included: `Qwen3MoeTopKRouter`, `OlmoeTopKRouter`,
`MixtralTopKRouter`, `GptOssTopKRouter`, `Lfm2MoeTopKRouter`. Equal scores go to the expert of the lower index, which
`torch.topk` does not promise. `weigh` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T tokens, E experts, k slots.
"""

from __future__ import annotations

import torch

from burnish_kernels.moe_route.router import SIGMOID_EPSILON, Router


def choose(logits_TE: torch.Tensor, router: Router, bias_E: torch.Tensor | None) -> torch.Tensor:
    """Return the chosen experts `[T, k]` int32, best first."""
    if router.kind == "softmax_topk":
        score_TE = torch.softmax(_wide(logits_TE), dim=-1)
    elif router.kind == "topk_softmax":
        score_TE = logits_TE
    else:
        score_TE = (logits_TE if router.rounded else _wide(logits_TE)).sigmoid()
        score_TE = score_TE if bias_E is None else score_TE + bias_E
    return torch.sort(score_TE, dim=-1, descending=True, stable=True).indices[:, : router.slots].int()


def weigh(logits_TE: torch.Tensor, ids_Tk: torch.Tensor, router: Router) -> torch.Tensor:
    """Return the weights `[T, k]` of chosen experts in fp32, or fp64 for fp64 logits."""
    chosen = ids_Tk.long()
    kept = logits_TE.dtype if router.rounded else _wide(logits_TE).dtype
    if router.kind == "topk_softmax":
        weights_Tk = torch.softmax(_wide(logits_TE.gather(1, chosen)), dim=-1).to(kept)
    elif router.kind == "softmax_topk":
        weights_Tk = torch.softmax(_wide(logits_TE), dim=-1).gather(1, chosen)
        if router.normalize:
            weights_Tk = weights_Tk / weights_Tk.sum(dim=-1, keepdim=True)
        weights_Tk = weights_Tk.to(kept)
    else:
        weights_Tk = logits_TE.to(kept).sigmoid().gather(1, chosen)
        if router.normalize:
            weights_Tk = weights_Tk / (weights_Tk.sum(dim=-1, keepdim=True) + SIGMOID_EPSILON)
    return _wide(weights_Tk * router.scale)


def backward(dweights_Tk: torch.Tensor, logits_TE: torch.Tensor, ids_Tk: torch.Tensor, router: Router) -> torch.Tensor:
    """Compute the gradient of the logits; see `op.backward`. Rounding counts as if it were the identity."""
    chosen = ids_Tk.long()
    logits_TE, dweights_Tk = _wide(logits_TE), _wide(dweights_Tk) * router.scale
    dlogits_TE = torch.zeros_like(logits_TE)
    if router.kind == "softmax_topk" and not router.normalize:
        share_TE = torch.softmax(logits_TE, dim=-1)
        dlogits_TE.scatter_(1, chosen, dweights_Tk)
        inner_T1 = (share_TE * dlogits_TE).sum(dim=-1, keepdim=True)
        return share_TE * (dlogits_TE - inner_T1)
    if router.kind == "sigmoid":
        sigmoid_Tk = logits_TE.gather(1, chosen).sigmoid()
        if router.normalize:
            total_T1 = sigmoid_Tk.sum(dim=-1, keepdim=True) + SIGMOID_EPSILON
            inner_T1 = (dweights_Tk * sigmoid_Tk).sum(dim=-1, keepdim=True) / total_T1
            dweights_Tk = (dweights_Tk - inner_T1) / total_T1
        return dlogits_TE.scatter_(1, chosen, dweights_Tk * sigmoid_Tk * (1.0 - sigmoid_Tk))
    # Shares of chosen softmaxes in their sum are a softmax over the chosen logits.
    share_Tk = torch.softmax(logits_TE.gather(1, chosen), dim=-1)
    inner_T1 = (share_Tk * dweights_Tk).sum(dim=-1, keepdim=True)
    return dlogits_TE.scatter_(1, chosen, share_Tk * (dweights_Tk - inner_T1))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
