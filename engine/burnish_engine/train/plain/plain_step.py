"""Forward pass of the plain engine: the sum of cross entropy over the supervised tokens of one micro-batch.

Rows of a micro-batch must not see each other. Five layouts ensure that:

- documents: one row of T tokens whose positions restart at each document, and attention by our kernels, which see one
  document at a time. On GPUs.
- packed: the same row; transformers then masks across documents.
- masked: the same row, with masks of ours, for models of transformers that make none from positions.
- padded: one row a document, padded at the end. It is right for every causal model, whatever state its layers carry.
- alone: a pass for each row, for models whose rows change with the longest of their pass (dynamic rope).

Packed wastes nothing, but an architecture may ignore the positions (short convolutions, recurrent state) and leak from
one document into the next. `train.plain.layout_choice` therefore measures on the loaded model which one is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

from burnish_engine.data.tokens.pack import IGNORED, MicroBatch, ReplyTerms
from burnish_engine.models.transformers_path import delta_kernels, packed_attention
from burnish_engine.models.transformers_path.packed_masks import document_masks

PlainLayout = Literal["documents", "packed", "masked", "padded", "alone"]
BY_ROW: tuple[PlainLayout, ...] = ("padded", "alone")
"""Layouts in which each document has a row of its own."""
_LONGEST = "max_seq_len_cached"  # transformers' modeling_rope_utils.py (dynamic_rope_update)


def summed_loss(model: Any, batch: MicroBatch, device: torch.device, layout: PlainLayout) -> torch.Tensor:
    """Compute the sum of cross entropy (nats, fp32) over the micro-batch's supervised tokens; a scalar with gradient.

    The caller must call and differentiate it inside `documents_apart`.

    Args:
        model: transformers model, with or without PEFT adapter.
        batch: packed documents with shifted labels.
        device: device of the model.
        layout: one of the module's layouts.
    """
    logits, targets = supervised_logits(model, batch, device, layout)
    return functional.cross_entropy(logits, targets, reduction="sum")


def sequence_log_probs(model: Any, batch: MicroBatch, device: torch.device, layout: PlainLayout) -> torch.Tensor:
    """Compute [sequences] the summed log-probability (nats, fp32) of each sequence's supervised tokens, with gradient.

    The arguments, and what the caller must do, are those of `summed_loss`.
    """
    log_prob_R = supervised_log_probs(model, batch, device, layout)
    return log_prob_R.new_zeros(len(batch.sequence_tokens)).index_add(0, sequence_numbers(batch, device), log_prob_R)


def supervised_log_probs(model: Any, batch: MicroBatch, device: torch.device, layout: PlainLayout) -> torch.Tensor:
    """Compute [R] the log-probability (nats, fp32) of each supervised token, one sequence after another, with gradient.

    The arguments, and what the caller must do, are those of `summed_loss`.
    """
    logits, targets = supervised_logits(model, batch, device, layout)
    return -functional.cross_entropy(logits, targets, reduction="none")


def sequence_numbers(batch: MicroBatch, device: torch.device) -> torch.Tensor:
    """Return [R] the number of the sequence of each supervised token."""
    counts = torch.from_numpy(batch.sequence_tokens).to(device)
    return torch.repeat_interleave(torch.arange(len(counts), device=device), counts)


def supervised_logits(
    model: Any, batch: MicroBatch, device: torch.device, layout: PlainLayout
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the logits (fp32) of the supervised tokens, one sequence after another, and the targets."""
    inputs, labels = model_inputs(model, batch, device, layout)
    supervised = labels != IGNORED
    if layout not in BY_ROW and takes_logits_to_keep(model):
        # The head's product with the vocabulary is the largest of all: only rows that the loss counts need it.
        rows = supervised[0].nonzero().squeeze(1)
        logits = model(**inputs, logits_to_keep=rows, use_cache=False).logits[0]
    else:
        logits = model(**inputs, use_cache=False).logits[supervised]
    return logits.float(), labels[supervised]


def passes_of(batch: MicroBatch, layout: PlainLayout, most_tokens: int) -> list[MicroBatch]:
    """Split a micro-batch into passes: several where padding would exceed the budget.

    Args:
        batch: micro-batch to split.
        layout: one of the module's layouts; only rows of their own are split, by length.
        most_tokens: largest number of tokens of a pass, padding included; a longer row gets a pass of its own.
    """
    if layout not in BY_ROW:
        return [batch]
    each = (len(batch.boundaries) - 1) // len(batch.rows)  # sequences of a row: 2 of a preference pair
    if layout == "alone":
        return [_rows_of(batch, [row], each) for row in range(len(batch.rows))]
    lengths = np.diff(batch.boundaries).reshape(-1, each).max(axis=1)
    groups: list[list[int]] = []
    for row in np.argsort(-lengths, kind="stable").tolist():
        if groups and (len(groups[-1]) + 1) * each * lengths[groups[-1][0]] <= most_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [batch] if len(groups) == 1 else [_rows_of(batch, sorted(group), each) for group in groups]


def _rows_of(batch: MicroBatch, rows: list[int], each: int) -> MicroBatch:
    """Build a micro-batch of some rows of another, each of `each` sequences."""
    sequences = [each * row + number for row in rows for number in range(each)]
    places = np.concatenate([np.arange(batch.boundaries[one], batch.boundaries[one + 1]) for one in sequences])
    ends = np.cumsum([0, *(batch.boundaries[one + 1] - batch.boundaries[one] for one in sequences)])
    return MicroBatch(
        input_ids=batch.input_ids[places],
        positions=batch.positions[places],
        labels=batch.labels[places],
        boundaries=ends.astype(batch.boundaries.dtype),
        rows=tuple(batch.rows[row] for row in rows),
        reference=None if batch.reference is None else batch.reference[sequences],
        desirable=None if batch.desirable is None else batch.desirable[rows],
        replies=None if batch.replies is None else _terms_of(batch, batch.replies, sequences),
    )


def _terms_of(batch: MicroBatch, terms: ReplyTerms, sequences: list[int]) -> ReplyTerms:
    """Return what some of a micro-batch's replies are learned by."""
    ends = np.cumsum([0, *batch.sequence_tokens])
    tokens = np.concatenate([np.arange(ends[one], ends[one + 1]) for one in sequences])
    return ReplyTerms(
        advantage=terms.advantage[sequences],
        share=terms.share[sequences],
        old=None if terms.old is None else terms.old[tokens],
        reference=None if terms.reference is None else terms.reference[tokens],
    )


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode inside, in which dropout is off."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def documents_apart(batch: MicroBatch, layout: PlainLayout) -> Iterator[packed_attention.PackedDocuments | None]:
    """Pass the boundaries of a micro-batch's documents to our attention, where the layout uses it, and to delta nets.

    Yields:
        What `packed_attention.within` yields.
    """
    apart = batch.boundaries if layout not in BY_ROW else None
    with (
        delta_kernels.within(apart),
        packed_attention.within(batch.boundaries if layout == "documents" else None) as seen,
    ):
        yield seen


def model_inputs(
    model: Any, batch: MicroBatch, device: torch.device, layout: PlainLayout
) -> tuple[dict[str, Any], torch.Tensor]:
    """Build model inputs and labels in a layout."""
    if layout == "alone":
        _forget_lengths(model)
    if layout in BY_ROW:
        return padded_inputs(batch, device)
    inputs, labels = packed_inputs(batch, device)
    if layout == "masked":
        return {**inputs, "attention_mask": document_masks(model, inputs["position_ids"])}, labels
    return {**inputs}, labels


def _forget_lengths(model: Any) -> None:
    """Put dynamic rope back to the trained length: transformers keeps the longest row that a model saw."""
    for module in model.modules():
        for name in [name for name in vars(module) if name.endswith(_LONGEST)]:
            prefix, trained = name.removesuffix(_LONGEST), module.original_max_seq_len
            if getattr(module, name) > trained:
                before = getattr(module, f"{prefix}original_inv_freq").to(getattr(module, f"{prefix}inv_freq").device)
                module.register_buffer(f"{prefix}inv_freq", before, persistent=False)
                setattr(module, name, trained)


def packed_inputs(batch: MicroBatch, device: torch.device) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Build model inputs and labels `[1, T]` in the packed layout."""
    tensors = [torch.from_numpy(array)[None].to(device) for array in (batch.input_ids, batch.positions, batch.labels)]
    return {"input_ids": tensors[0], "position_ids": tensors[1]}, tensors[2]


def padded_inputs(batch: MicroBatch, device: torch.device) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Build model inputs and labels `[documents, longest]` in the padded layout; the padding is masked."""
    starts, ends = batch.boundaries[:-1], batch.boundaries[1:]
    longest = int((ends - starts).max())
    shape = (len(starts), longest)
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    labels = np.full(shape, IGNORED, np.int64)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        ids[row, : end - start] = batch.input_ids[start:end]
        labels[row, : end - start] = batch.labels[start:end]
        mask[row, : end - start] = 1
    inputs = {"input_ids": torch.from_numpy(ids).to(device), "attention_mask": torch.from_numpy(mask).to(device)}
    return inputs, torch.from_numpy(labels).to(device)


def takes_logits_to_keep(model: Any) -> bool:
    """Return whether the model can compute logits for chosen positions only."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in inspect.signature(base.forward).parameters
