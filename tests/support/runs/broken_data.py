"""Ways in which training goes wrong in the data: labels, padding, documents."""

from dataclasses import replace

import numpy as np
import torch

from burnish_engine.data.tokens.pack import IGNORED
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.transformers_path import packed_attention
from burnish_engine.train.fast import packed_batch, prefetch
from burnish_engine.train.plain import plain_engine, plain_step

from support.runs.interventions import batches, counted, documents, laid_out

# Labels


def no_labels(patch, engine):
    batches(patch, lambda batch: replace(batch, labels=np.full_like(batch.labels, IGNORED)))


def no_labels_later(patch, engine):
    """Labels go missing after some passes."""
    count = iter(range(10_000))

    def change(batch):
        return replace(batch, labels=np.full_like(batch.labels, IGNORED)) if next(count) >= 16 else batch

    batches(patch, change)


def _moved(batch, by):
    """Labels `by` places from the next token: -1 is the token itself, 1 the one after the next."""
    places = np.flatnonzero(batch.labels != IGNORED)
    places = places[places + 1 + by < batch.tokens]
    labels = np.full_like(batch.labels, IGNORED)
    labels[places] = batch.input_ids[places + 1 + by]
    return replace(batch, labels=labels)


def unshifted_labels(patch, engine):
    batches(patch, lambda batch: _moved(batch, -1))


def twice_shifted_labels(patch, engine):
    batches(patch, lambda batch: _moved(batch, 1))


def labels_shifted_by_the_engine(patch, engine):
    """Right in the pass, shifted once more where the loss is computed."""

    def change(batch, layout, buffer, counts):
        fields, count = layout.arrays(buffer), counts.supervised
        fields.head_position_R[:count] = np.maximum(fields.head_position_R[:count] - 1, 0)
        return counts

    laid_out(patch, change)
    real = plain_step.packed_inputs

    def packed_inputs(batch, device):
        inputs, labels = real(batch, device)
        return inputs, torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], dim=1)

    patch.setattr(plain_step, "packed_inputs", packed_inputs)


def labels_unshifted_by_the_engine(patch, engine):
    """The token that stands there is the target."""

    def change(batch, layout, buffer, counts):
        fields, count = layout.arrays(buffer), counts.supervised
        fields.head_target_R[:count] = fields.ids_T[fields.head_position_R[:count]]
        return counts

    laid_out(patch, change)
    real = plain_step.packed_inputs

    def packed_inputs(batch, device):
        inputs, labels = real(batch, device)
        return inputs, torch.where(labels == IGNORED, labels, inputs["input_ids"])

    patch.setattr(plain_step, "packed_inputs", packed_inputs)


def end_stripped_from_labels(patch, engine, ends=(2,)):
    """The tiny tokenizer's <|im_end|> is 2."""

    def change(batch):
        return replace(batch, labels=np.where(np.isin(batch.labels, ends), IGNORED, batch.labels))

    batches(patch, change)


def end_never_learned(patch, engine):
    def change(document, ends):
        learned = document.supervised & ~np.isin(document.input_ids, ends)
        return Document(document.input_ids, learned, document.row, document.file, document.truncated)

    documents(patch, change)


# Padding


def padded_rows(patch, engine):
    """Rows filled up with the pad token, which is learned."""

    def change(document, ends):
        fill = max(0, 96 - len(document))
        ids = np.concatenate([document.input_ids, np.full(fill, ends[0], np.int32)])
        learned = np.concatenate([document.supervised, np.ones(fill, bool)])
        return Document(ids, learned, document.row, document.file, document.truncated)

    documents(patch, change)


def padding_learned_by_the_engine(patch, engine):
    def change(batch, layout, buffer, counts):
        fields = layout.arrays(buffer)
        free = fields.head_target_R == IGNORED
        fields.head_target_R[free] = 0
        return replace(
            counts, supervised=layout.head_capacity, head_chunks=layout.head_capacity // layout.head_chunk_tokens
        )

    laid_out(patch, change)
    real = plain_step.padded_inputs

    def padded_inputs(batch, device):
        inputs, labels = real(batch, device)
        return inputs, torch.where(inputs["attention_mask"] == 0, 0, labels)

    patch.setattr(plain_step, "padded_inputs", padded_inputs)
    patch.setattr(plain_engine, "choose_layout", lambda *_args: ("padded", ""))


def padding_counted(patch, engine):
    counted(patch, tokens=lambda step: -(-step.tokens // 64) * 64 + 64)


def padding_counted_as_learned(patch, engine):
    counted(patch, supervised=lambda step: step.tokens)


# Documents


def _merged(batch):
    bounds = np.array([0, batch.tokens], dtype=np.int32)
    return replace(batch, boundaries=bounds, positions=np.arange(batch.tokens, dtype=np.int64))


def merged_documents(patch, engine):
    batches(patch, _merged)


def documents_merged_by_the_engine(patch, engine):
    real = packed_batch.fill_buffer
    patch.setattr(prefetch, "fill_buffer", lambda batch, layout, buffer: real(_merged(batch), layout, buffer))
    packed = plain_step.packed_inputs
    patch.setattr(plain_step, "packed_inputs", lambda batch, device: packed(_merged(batch), device))
    within = packed_attention.within
    patch.setattr(packed_attention, "within", lambda ends: within(None if ends is None else ends[[0, -1]]))
