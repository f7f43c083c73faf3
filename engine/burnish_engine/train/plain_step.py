"""Forward and backward of the plain path: the sum of cross entropy over the supervised tokens of one micro-batch.

Rows of a micro-batch must not see each other. Three layouts give that:

- documents: one row of T tokens whose positions restart at each document, and attention by our kernels, which see one
  document at a time. On GPUs.
- packed: the same row; transformers then masks across documents.
- padded: one row a document, padded at the end. Right for every causal model, whatever its layers carry along.

Packed wastes nothing, but an architecture may ignore the positions (short convolutions, recurrent state) and leak from
one document into the next. Which one is used is therefore measured on the loaded model, not read from a list.
"""

from __future__ import annotations

import inspect
import itertools
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from burnish_engine.data.pack import IGNORED, MicroBatch
from burnish_engine.models import packed_attention
from burnish_engine.models.device import is_out_of_memory
from burnish_engine.train.random_state import hold_random

Layout = Literal["documents", "packed", "padded"]
_PROBE_LENGTHS = (5, 9, 7)
_DOCUMENTS_LENGTHS = (5, 150, 9, 70)  # also longer than a tile of our kernels
_LEAK_TOLERANCE = 1e-3  # of the logits' own scale; a leak changes logits by the order of that scale


def summed_loss(model: Any, batch: MicroBatch, device: torch.device, layout: Layout) -> torch.Tensor:
    """Sum of cross entropy (nats, fp32) over the micro-batch's supervised tokens; a scalar with gradient.

    To be called, and differentiated, inside `apart`.

    Args:
        model: transformers model, with or without PEFT adapter.
        batch: Packed documents with shifted labels.
        device: Where the model is.
        layout: See the module's text.
    """
    inputs, labels = model_inputs(batch, device, layout)
    supervised = labels != IGNORED
    if layout != "padded" and takes_logits_to_keep(model):
        # The head's product with the vocabulary is the largest of all: only rows that the loss counts need it.
        rows = supervised[0].nonzero().squeeze(1)
        logits = model(**inputs, logits_to_keep=rows, use_cache=False).logits[0]
    else:
        logits = model(**inputs, use_cache=False).logits[supervised]
    return functional.cross_entropy(logits.float(), labels[supervised], reduction="sum")


def apart(batch: MicroBatch, layout: Layout) -> AbstractContextManager[object]:
    """Inside, a micro-batch's documents are known to our attention, where the layout asks for it."""
    return packed_attention.within(batch.boundaries if layout == "documents" else None)


def model_inputs(
    batch: MicroBatch, device: torch.device, layout: Layout
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Model inputs and labels in a layout."""
    return (padded_inputs if layout == "padded" else packed_inputs)(batch, device)


def packed_inputs(batch: MicroBatch, device: torch.device) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Model inputs and labels `[1, T]` in the packed layout."""
    tensors = [torch.from_numpy(array)[None].to(device) for array in (batch.input_ids, batch.positions, batch.labels)]
    return {"input_ids": tensors[0], "position_ids": tensors[1]}, tensors[2]


def padded_inputs(batch: MicroBatch, device: torch.device) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Model inputs and labels `[documents, longest]` in the padded layout; the padding is masked."""
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
    """Whether the model can compute logits for chosen positions only."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in inspect.signature(base.forward).parameters


def choose_layout(
    model: Any, vocab_size: int, device: torch.device, pack: bool, before: str | None = None
) -> tuple[Layout, str]:
    """The fastest layout in which the model provably keeps documents apart; it attends as the layout asks from then on.

    Runs a few random documents packed and one by one and compares the logits.

    Args:
        model: transformers model without adapter.
        vocab_size: Ids below this are valid.
        device: Where it is.
        pack: Whether rows may be packed.
        before: The layout of the run so far, which is kept where it can be.

    Returns:
        The layout, and a sentence for the user where our attention was tried and is not used; else empty.
    """
    if not pack or before == "padded":
        return "padded", ""
    if before == "packed":
        return "packed", ""
    reason = ""
    if packed_attention.can_attend(model, device):
        reason = _why_not_documents(model, vocab_size, device)
        if not reason:
            return "documents", ""
        reason = f"Attention stays transformers' own: {reason}."
    elif before == "documents":
        reason = "The run began on a GPU with Burnish's attention; it goes on with transformers' own."
    return ("packed" if keeps_apart(model, vocab_size, device, "packed") else "padded"), reason


def _why_not_documents(model: Any, vocab_size: int, device: torch.device) -> str:
    """Have the model attend by our kernels and try it; where it does not do, put everything back and say why."""
    put_back, was_training = hold_random(device), model.training
    try:
        packed_attention.switch_over(model)
        _try_backward(model, vocab_size, device)
        if keeps_apart(model, vocab_size, device, "documents"):
            return ""
        reason = "with Burnish's, documents are not kept apart"
    except Exception as error:
        if is_out_of_memory(error):
            raise
        kind = "" if isinstance(error, packed_attention.CannotAttendError) else f"{type(error).__name__}: "
        reason = f"{kind}{error}".splitlines()[0][:200]
    finally:
        model.train(was_training)
        put_back()
    packed_attention.switch_back(model)
    return reason


def _try_backward(model: Any, vocab_size: int, device: torch.device) -> None:
    """A pass in training mode, where dropout inside attention shows, and back to the embedded tokens."""
    ids, positions, boundaries = _probe(vocab_size, device, "documents")
    with packed_attention.within(boundaries) as seen:
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        logits = model.train()(inputs_embeds=embedded, position_ids=positions, use_cache=False).logits
        torch.autograd.grad(logits[..., :1].float().sum(), embedded)
        if not seen or not seen.calls:
            raise packed_attention.CannotAttendError(f"{type(model).__name__} attends in a way of its own")


def _probe(
    vocab_size: int, device: torch.device, layout: Layout
) -> tuple[torch.Tensor, torch.Tensor, NDArray[np.integer]]:
    """Random ids `[1, T]`, their positions, and the documents' boundaries."""
    lengths = _DOCUMENTS_LENGTHS if layout == "documents" else _PROBE_LENGTHS
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocab_size, (1, sum(lengths)), generator=generator)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    return ids.to(device), positions.to(device), np.cumsum([0, *lengths])


@torch.no_grad()
def keeps_apart(model: Any, vocab_size: int, device: torch.device, layout: Layout) -> bool:
    """Whether a few random documents give the same logits in one row as one by one."""
    was_training = model.training
    ids, positions, boundaries = _probe(vocab_size, device, layout)
    model.eval()
    alone = torch.cat(
        [
            model(input_ids=ids[:, start:end], use_cache=False).logits[0].float()
            for start, end in itertools.pairwise(boundaries)
        ]
    )
    with packed_attention.within(boundaries if layout == "documents" else None):
        together = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0].float()
    model.train(was_training)
    tolerance = _LEAK_TOLERANCE if next(model.parameters()).dtype == torch.float32 else 30 * _LEAK_TOLERANCE
    return bool((together - alone).abs().max() <= tolerance * alone.abs().max())
