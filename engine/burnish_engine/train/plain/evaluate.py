"""Held-out loss on the plain engine; the training state stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from burnish_engine.data.tokens.pack import held_out_batches
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.engine import CountListener, ignore_count
from burnish_engine.train.plain.plain_step import PlainLayout, documents_apart, passes_of, summed_loss


@torch.no_grad()
def held_out_loss(
    model: Any,
    documents: Sequence[Document],
    *,
    budget: int,
    device: torch.device,
    layout: PlainLayout,
    progress: CountListener = ignore_count,
) -> tuple[float, int]:
    """Compute the mean cross entropy per supervised token (nats), and count those tokens.

    Args:
        model: model in any mode, which is restored afterwards.
        documents: held-out documents.
        budget: tokens per forward pass.
        device: device of the model.
        layout: layout of the passes, the same as in training.
        progress: function that is told the number of documents read so far.
    """
    was_training = model.training
    model.eval()
    total, count, read = 0.0, 0, 0
    try:
        whole = held_out_batches(documents, budget)
        for batch in (part for one in whole for part in passes_of(one, layout, budget)):
            if batch.supervised_tokens:
                with documents_apart(batch, layout):
                    total += float(summed_loss(model, batch, device, layout))
                count += batch.supervised_tokens
            read += len(batch.rows)
            progress(read)
    finally:
        model.train(was_training)
    return (total / count if count else float("nan")), count
