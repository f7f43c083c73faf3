"""What a 4-bit run (QLoRA) trained on: the linear weights rounded to NF4 and back, as its engine computed with them.

An adapter of such a run can be added to the 16-bit base or to these rounded weights. Dettmers et al. 2023; the two
differ by the rounding error of NF4.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.export.aside import Cancelled, never, stop_if
from burnish_engine.export.losses import Flags, MeanLoss
from burnish_engine.models.families import family
from burnish_engine.models.plain_speaker import evaluating
from burnish_engine.models.source import ModelSource
from burnish_kernels.nf4 import op as nf4


@dataclass(frozen=True)
class OtherMerge:
    """The trained model with its adapter added to the other weights: rounded ones, or the 16-bit base.

    Attributes:
        loss: Its mean held-out loss, nats; None where no token counts.
        mean_kl: Mean KL(the one exported || this one), nats.
    """

    loss: float | None
    mean_kl: float


def rounded_names(source: ModelSource) -> frozenset[str]:
    """Base tensors that a 4-bit run keeps in NF4: every linear layer but the head."""
    known = family(str(source.config.get("model_type"))) if source.spec is not None else None
    if known is None or source.spec is None:
        return frozenset()
    return frozenset(f"{module.path}.weight" for module in known.modules(source.spec))


def round_trip(weight: torch.Tensor) -> torch.Tensor:
    """A weight [out, in] rounded to NF4 (blocks of 64, double quantization) and back, fp32."""
    return nf4.dequantize(nf4.quantize(weight.float()), dtype=torch.float32)


def round_model(model: Any, names: Collection[str]) -> None:
    """Round a loaded model's weights in place.

    Args:
        model: transformers' model, perhaps with PEFT's adapter around its linear layers.
        names: Base tensors.
    """
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.removeprefix("base_model.model.").replace(".base_layer.", ".") in names:
                value.copy_(round_trip(value))


def compare_merge(
    model: Any,
    documents: Sequence[Sequence[int]],
    log_probs: Sequence[npt.NDArray[np.float32]],
    learned: Sequence[Flags],
    cancelled: Cancelled = never,
) -> OtherMerge:
    """How a model does on held-out rows beside another, of which the log-probabilities are known.

    Args:
        model: The model.
        documents: Token ids of the rows.
        log_probs: The other's, [T, V] for each row.
        learned: For each row, which tokens count for the loss.
        cancelled: Polled between rows.

    Raises:
        StoppedError: Cancelled.
    """
    from burnish_engine.export.fidelity import divergence

    loss, kl = MeanLoss(), []
    for document, truth, flags in zip(documents, log_probs, learned, strict=True):
        stop_if(cancelled, "The verification")
        with evaluating(model):
            logits = model(input_ids=torch.tensor([list(document)], device=model.device)).logits[0]
        found = torch.log_softmax(logits.double(), dim=-1).cpu().numpy()
        kl.append(divergence(truth, found))
        loss.add(found, document, flags)
    return OtherMerge(loss.mean, float(np.concatenate(kl).mean()))
