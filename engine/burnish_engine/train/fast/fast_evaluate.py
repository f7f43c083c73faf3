"""Held-out loss of our decoder: packed passes that save no activations, the head in chunks, one number read back."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish_engine.data.tokens.pack import held_out_batches
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.train.base.engine import CountListener, ignore_count
from burnish_engine.train.fast.packed_batch import BatchFields, BucketLayout, fill_buffer
from burnish_kernels.attention.documents import Documents
from burnish_kernels.cross_entropy import op as cross_entropy


@torch.no_grad()
def held_out_loss(
    decoder: Decoder,
    documents: Sequence[Document],
    budget: int,
    layout: BucketLayout,
    progress: CountListener = ignore_count,
) -> tuple[float, int]:
    """Compute the mean cross entropy per supervised token (nats), and count those tokens.

    Args:
        decoder: decoder with the adapter that its compute copies hold; dropout is switched off meanwhile.
        documents: held-out documents.
        budget: tokens per forward pass, at most the layout's capacity.
        layout: bucket layout of the passes; training's own, whose kernels are loaded already.
        progress: function that is told the number of documents read so far.
    """
    total = torch.zeros(1, dtype=torch.float64, device=decoder.device)
    count = read = 0
    drops = [(stack, stack.drop) for layer in decoder.layers for stack in layer.stacks]
    for stack, _ in drops:
        stack.drop = None
    try:
        for batch in held_out_batches(documents, budget):
            buffer = torch.zeros(layout.size, dtype=torch.int32)
            counts = fill_buffer(batch, layout, buffer.numpy())
            count += counts.supervised
            if counts.head_chunks:
                total += _summed(decoder, layout, layout.views(buffer.to(decoder.device)), counts.head_chunks)
            read += len(batch.rows)
            progress(read)
    finally:
        for stack, drop in drops:
            stack.drop = drop
    return (float(total) / count if count else float("nan")), count


def _summed(decoder: Decoder, layout: BucketLayout, fields: BatchFields, chunks: int) -> torch.Tensor:
    documents = Documents(fields.start_T, fields.end_T, fields.tiles_G4, layout.tile_rows)
    done = decoder.forward(fields.ids_T, SequenceMetadata(fields.rope_row_T, documents))
    rows = fields.head_position_R.view(-1, layout.head_chunk_tokens)[:chunks]
    targets = fields.head_target_R.view(-1, layout.head_chunk_tokens)[:chunks]
    total = torch.zeros(1, dtype=torch.float64, device=decoder.device)
    for row_C, target_C in zip(rows, targets, strict=True):
        loss = torch.empty(len(row_C), dtype=torch.float32, device=decoder.device)
        logits = decoder.raw_logits(done.hidden_TH.index_select(0, row_C))
        cross_entropy.loss_only(logits, target_C, loss, softcap=decoder.spec.logit_softcap)
        total += loss.double().sum()
    return total
