"""Held-out loss on the plain engine; the training state stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from burnish_engine.data.tokens.pack import MicroBatch, held_out_batches
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.plain.plain_step import PlainLayout, documents_apart, evaluating, passes_of, summed_loss


def evaluation_passes(request: EvaluationRequest, layout: PlainLayout) -> Iterator[MicroBatch]:
    """Yield the passes of an evaluation."""
    for batch in held_out_batches(request.documents, request.budget):
        yield from passes_of(batch, layout, request.budget)


@torch.no_grad()
def held_out_loss(
    model: Any, request: EvaluationRequest, device: torch.device, layout: PlainLayout
) -> tuple[float, int]:
    """Compute the mean cross entropy per supervised token (nats), and count those tokens.

    Args:
        model: model in any mode, which is restored afterwards.
        request: held-out documents.
        device: device of the model.
        layout: layout of the passes, the same as in training.
    """
    total, count, read = 0.0, 0, 0
    with evaluating(model):
        for batch in evaluation_passes(request, layout):
            if batch.supervised_tokens:
                with documents_apart(batch, layout):
                    total += float(summed_loss(model, batch, device, layout))
                count += batch.supervised_tokens
            read += len(batch.rows)
            request.progress(read)
    return (total / count if count else float("nan")), count
