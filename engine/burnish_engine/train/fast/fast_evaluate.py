"""Held-out loss and log-probabilities of our decoder: packed passes that save no activations, the head in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.data.tokens.pack import EpochPlan, MicroBatch
from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.train.base.engine import CountListener, ignore_count
from burnish_engine.train.fast.packed_batch import (
    BatchCounts,
    BatchFields,
    BucketLayout,
    fill_buffer,
    sequence_metadata,
)
from burnish_kernels.cross_entropy import op as cross_entropy

_DIVERGENCE_ROWS = 256  # tokens whose logits exist at once in fp32, of both models


@dataclass(frozen=True)
class EvaluationPasses:
    """Forward passes of an evaluation.

    Attributes:
        batches: micro-batches, each of at most the layout's capacity.
        layout: bucket layout of the passes; training's own where it is large enough, whose kernels are loaded already.
    """

    batches: EpochPlan
    layout: BucketLayout


def mean_loss(found_2B: torch.Tensor) -> tuple[float, int]:
    """Add up what `pass_losses` found, in the order of passes: mean loss (nats) and number of supervised tokens."""
    count = int(found_2B[1].sum())
    return (sum(found_2B[0].tolist()) / count if count else float("nan")), count


@torch.no_grad()
def pass_losses(decoder: Decoder, passes: EvaluationPasses, progress: CountListener = ignore_count) -> torch.Tensor:
    """Compute the cross entropy of each pass.

    Args:
        decoder: decoder with the adapter that its compute copies hold; dropout is switched off meanwhile.
        passes: passes to make.
        progress: function that is told the number of documents read so far.

    Returns:
        [2, passes] fp64 on the CPU: sum of the losses (nats), and number of the supervised tokens.
    """
    found_2B = torch.zeros(2, len(passes.batches), dtype=torch.float64, device=decoder.device)
    read = 0
    with without_dropout(decoder):
        for index, batch in enumerate(passes.batches):
            fields, counts = _upload(decoder, passes.layout, batch)
            found_2B[1, index] = counts.supervised
            for loss_C in _losses(decoder, passes.layout, fields, counts.head_chunks):
                found_2B[0, index] += loss_C.double().sum()
            read += len(batch.rows)
            progress(read)
    return found_2B.cpu()


@torch.no_grad()
def sequence_log_probs(
    decoder: Decoder, passes: EvaluationPasses, each: int, progress: CountListener = ignore_count
) -> npt.NDArray[np.float32]:
    """Compute the summed log-probability (nats) of the supervised tokens of documents of as many sequences each.

    Args:
        decoder: decoder with the adapter that its compute copies hold; dropout is switched off meanwhile.
        passes: passes that hold each document once.
        each: number of sequences of a document.
        progress: function that is told the number of documents read so far.

    Returns:
        [documents, sequences]: of preference pairs, those of the chosen and of the rejected reply.
    """
    total = sum(len(group) for group in passes.batches.groups)
    found_NS, read = np.zeros((total, each), dtype=np.float32), 0
    for batch, loss_R in _token_losses(decoder, passes):
        sequences = np.repeat(np.arange(len(batch.boundaries) - 1), batch.sequence_tokens)
        sums = np.bincount(sequences, loss_R, minlength=len(batch.boundaries) - 1)
        found_NS[list(batch.rows)] = -sums.reshape(-1, each)
        read += len(batch.rows)
        progress(read)
    return found_NS


@torch.no_grad()
def token_log_probs(decoder: Decoder, passes: EvaluationPasses) -> list[npt.NDArray[np.float32]]:
    """Compute the log-probability (nats) of each supervised token of documents of one sequence each.

    Args:
        decoder: decoder with the adapter that its compute copies hold; dropout is switched off meanwhile.
        passes: passes that hold each document once.
    """
    total = sum(len(group) for group in passes.batches.groups)
    found = [np.zeros(0, dtype=np.float32)] * total
    for batch, loss_R in _token_losses(decoder, passes):
        parts = np.split(-loss_R.astype(np.float32), np.cumsum(batch.sequence_tokens)[:-1])
        for row, part in zip(batch.rows, parts, strict=True):
            found[row] = part
    return found


@torch.no_grad()
def mean_divergence(
    decoder: Decoder, passes: EvaluationPasses, without_adapter: Callable[[], AbstractContextManager[None]]
) -> float | None:
    """Compute the mean divergence (nats a token) from the decoder without its adapter; see `Engine.kl_to_base`.

    Args:
        decoder: decoder with the adapter that its compute copies hold; dropout is switched off meanwhile.
        passes: passes over documents of one sequence each.
        without_adapter: function that switches the adapter off inside a context.
    """
    total, count = torch.zeros((), dtype=torch.float64, device=decoder.device), 0
    with without_dropout(decoder):
        for batch in passes.batches:
            fields, counts = _upload(decoder, passes.layout, batch)
            sequences = sequence_metadata(passes.layout, fields)
            rows = fields.head_position_R[: counts.supervised]
            tuned_RH = decoder.forward(fields.ids_T, sequences).hidden_TH.index_select(0, rows)
            with without_adapter():
                base_RH = decoder.forward(fields.ids_T, sequences).hidden_TH.index_select(0, rows)
            for tuned, base in zip(tuned_RH.split(_DIVERGENCE_ROWS), base_RH.split(_DIVERGENCE_ROWS), strict=True):
                ours, theirs = (decoder.logits(hidden).log_softmax(dim=1) for hidden in (tuned, base))
                total += (ours.exp() * (ours - theirs)).sum(dtype=torch.float64)
            count += counts.supervised
    return float(total) / count if count else None


@contextmanager
def without_dropout(decoder: Decoder) -> Iterator[None]:
    """Switch dropout off inside."""
    drops = [(stack, stack.drop) for layer in decoder.layers for stack in layer.stacks]
    for stack, _ in drops:
        stack.drop = None
    try:
        yield
    finally:
        for stack, drop in drops:
            stack.drop = drop


def _upload(decoder: Decoder, layout: BucketLayout, batch: MicroBatch) -> tuple[BatchFields, BatchCounts]:
    buffer = torch.zeros(layout.size, dtype=torch.int32)
    counts = fill_buffer(batch, layout, buffer.numpy())
    return layout.views(buffer.to(decoder.device)), counts


def _token_losses(decoder: Decoder, passes: EvaluationPasses) -> Iterator[tuple[MicroBatch, npt.NDArray[np.float64]]]:
    """Yield each pass that has supervised tokens, with their cross entropy, one sequence after another."""
    with without_dropout(decoder):
        for batch in passes.batches:
            fields, counts = _upload(decoder, passes.layout, batch)
            if counts.head_chunks:
                losses = list(_losses(decoder, passes.layout, fields, counts.head_chunks))
                yield batch, torch.cat(losses).double().cpu().numpy()[: counts.supervised]


def _losses(decoder: Decoder, layout: BucketLayout, fields: BatchFields, chunks: int) -> Iterator[torch.Tensor]:
    """Yield the cross entropy of each supervised token, a chunk of the head at a time."""
    if not chunks:
        return
    done = decoder.forward(fields.ids_T, sequence_metadata(layout, fields))
    rows = fields.head_position_R.view(-1, layout.head_chunk_tokens)[:chunks]
    targets = fields.head_target_R.view(-1, layout.head_chunk_tokens)[:chunks]
    for row_C, target_C in zip(rows, targets, strict=True):
        loss = torch.empty(len(row_C), dtype=torch.float32, device=decoder.device)
        logits = decoder.raw_logits(done.hidden_TH.index_select(0, row_C))
        cross_entropy.loss_only(logits, target_C, loss, softcap=decoder.spec.logit_softcap)
        yield loss
