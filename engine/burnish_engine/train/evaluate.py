"""Held-out loss and fixed-prompt samples, leaving the training state as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from burnish_engine.data.pack import held_out_batches
from burnish_engine.data.tokenize import Document
from burnish_engine.train.plain_step import Layout, apart, parts_of, summed_loss


@torch.no_grad()
def held_out_loss(
    model: Any, documents: Sequence[Document], *, budget: int, device: torch.device, layout: Layout
) -> tuple[float, int]:
    """Mean cross entropy per supervised token (nats) and the number of those tokens.

    Args:
        model: In any mode; put back into it afterwards.
        documents: Held-out documents.
        budget: Tokens per forward pass.
        device: Where the model is.
        layout: As in training.
    """
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    try:
        whole = held_out_batches(documents, budget)
        for batch in (part for one in whole for part in parts_of(one, layout, budget)):
            if batch.supervised_tokens:
                with apart(batch, layout):
                    total += float(summed_loss(model, batch, device, layout))
                count += batch.supervised_tokens
    finally:
        model.train(was_training)
    return (total / count if count else float("nan")), count
