"""Measure whether the documents of one pass see each other; layout choice and guard both use it.

Each document's logits in the pass are compared with its logits alone, and with those in a pass in which another
document was exchanged. `find_shift` does so in a pass as long as the run's. Where gradients exist, `gradient_crosses`
decides exactly, however small the leak is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from burnish_engine.data.tokens import pack
from burnish_engine.data.tokens.documents import lengths_of
from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.data.tokens.tokenize import Document

ROWS, TOKENS = 4, 48
"""Most rows that are measured, and most tokens of each."""
_LOOKED_AT = 200  # first rows among which those are chosen
TOLERANCE = {"fp32": 1e-3, "bf16": 3e-2, "fp16": 3e-2}
"""Share of the largest logit by which two computations of one logit may differ, by precision."""
_EXCHANGED = 0.1  # share of the tolerance by which an exchange may move the others: same kernels, same shapes

Ids = NDArray[np.integer]
Logits = Callable[[MicroBatch, torch.Tensor], torch.Tensor]
"""Function that computes the logits `[places, V]` in fp32 at some places of a pass, without dropout."""


def choose_rows(documents: Sequence[Document]) -> list[Document]:
    """Cut short pieces from the first rows, each around its first supervised token."""
    found: list[Document] = []
    for number in range(min(len(documents), _LOOKED_AT)):
        document = documents[number]
        places = np.flatnonzero(document.supervised)
        if len(document) < 4 or not len(places):
            continue
        start = max(0, min(int(places[0]) - TOKENS // 3, len(document) - TOKENS))
        ids, learned = document.input_ids[start : start + TOKENS], document.supervised[start : start + TOKENS].copy()
        learned[0] = False
        if learned.any() and not any(np.array_equal(ids, other.input_ids) for other in found):
            found.append(Document(ids, learned, document.row, document.file, document.truncated))
        if len(found) == ROWS:
            break
    return found


def pass_of(rows: Sequence[Document]) -> MicroBatch:
    """Build one micro-batch of these rows, in the way that training does."""
    return pack.micro_batch(rows, range(len(rows)))


def unlabeled_pass(documents: Sequence[Ids]) -> MicroBatch:
    """Build a micro-batch of token ids without any supervised token."""
    ids = np.concatenate(documents).astype(np.int64)
    bounds = np.cumsum([0, *map(len, documents)]).astype(np.int32)
    positions = np.concatenate([np.arange(len(one), dtype=np.int64) for one in documents])
    return MicroBatch(ids, positions, np.full(len(ids), IGNORED, np.int64), bounds, tuple(range(len(documents))))


def compared_places(length: int) -> list[int]:
    """List the places of a document at which `find_leak` compares logits.

    They are the first two, which a short convolution reaches, and the last.
    """
    return sorted({0, min(1, length - 1), length - 1})


def find_leak(logits: Logits, documents: Sequence[Ids], tolerance: float, alone_PV: torch.Tensor | None = None) -> str:
    """Return the evidence that documents see each other in a pass; empty where there is none.

    Args:
        logits: function that computes a pass.
        documents: token ids of each document.
        tolerance: share of the largest logit, see `TOLERANCE`.
        alone_PV: logits of each document alone at its `compared_places`, one document after the other; None: they are
            computed here.
    """
    if len(documents) < 2:
        return ""
    batch = unlabeled_pass(documents)
    looked_at = [compared_places(len(one)) for one in documents]
    places = [start + place for start, inner in zip(batch.boundaries, looked_at, strict=False) for place in inner]
    together = logits(batch, torch.tensor(places))
    if alone_PV is None:
        pairs = zip(documents, looked_at, strict=True)
        alone_PV = torch.cat([logits(unlabeled_pass([one]), torch.tensor(inner)) for one, inner in pairs])
    scale = float(alone_PV.abs().max())
    far = float((together - alone_PV).abs().max())
    if not far <= tolerance * scale:
        return f"logits in a pass are {far / scale:.1%} off those of each row alone"
    others = len(looked_at[0])
    exchanged = unlabeled_pass([documents[0][::-1], *documents[1:]])
    moved = float((logits(exchanged, torch.tensor(places[others:])) - together[others:]).abs().max())
    if not moved <= _EXCHANGED * tolerance * scale:
        return f"exchanging one row moves the logits of the others by {moved / scale:.2%}"
    return ""


def full_pass(documents: Sequence[Document], budget: int) -> list[Ids]:
    """Lay out a pass as the run may have: its longest row that has company, repeated, and one of half its length last.

    Args:
        documents: rows of the run.
        budget: largest number of tokens of a pass.

    Returns:
        Token ids of each document; none where no two rows fit into a pass.
    """
    lengths = lengths_of(documents)
    budget = min(budget, int(lengths.sum()))  # no pass has more than all rows
    fitting = np.flatnonzero(lengths + lengths.min(initial=budget) <= budget)
    if not len(fitting):
        return []
    longest = int(fitting[lengths[fitting].argmax()])
    beside = np.flatnonzero(lengths + lengths[longest] <= budget)
    beside = beside[beside != longest]
    if not len(beside):
        return []
    last = int(beside[np.abs(lengths[beside] - lengths[longest] // 2).argmin()])
    copies = int((budget - lengths[last]) // lengths[longest])
    first, second = (documents[row].first_sequence().input_ids for row in (longest, last))
    return [*[first] * copies, second]


def find_shift(logits: Logits, documents: Sequence[Ids], tolerance: float, *, same_shape: bool = True) -> str:
    """Return the evidence that a full pass changes the logits of its last document; empty where it does not.

    A model may go by the longest document of a pass (dynamic rope) or by places within it (ALiBi in 16 bits). Since
    transformers' dynamic rope keeps the longest length that it saw, shorter documents come first.

    Args:
        logits: function that computes a pass.
        documents: token ids of each document, from `full_pass`.
        tolerance: share of the largest logit, see `TOLERANCE`.
        same_shape: whether passes of as many tokens have the same shape, so that rounding is the same too.
    """
    *others, last = documents
    inner = compared_places(len(last))
    places = torch.tensor([sum(map(len, others)) + place for place in inner])
    halves = [half for one in others for half in np.array_split(one, 2) if len(half)]
    alone = logits(unlabeled_pass([last]), torch.tensor(inner))
    beside_halves = logits(unlabeled_pass([*halves, last]), places)
    together = logits(unlabeled_pass(documents), places)
    scale = float(alone.abs().max())
    far = float((together - alone).abs().max())
    if not far <= tolerance * scale:
        return f"logits in a full pass are {far / scale:.1%} off those of each row alone"
    moved = float((together - beside_halves).abs().max())
    if same_shape and not moved <= _EXCHANGED * tolerance * scale:
        return f"the length of a row moves the logits of the others by {moved / scale:.2%}"
    return ""


@contextmanager
def embedded_tokens(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collect the embedded tokens of passes inside, cut off from the embedding, so that gradients end at them.

    They come from the model's own pass: a model that is shared out has its embedding whole nowhere else.

    Args:
        model: transformers model.

    Yields:
        List that each pass adds its embedded tokens to.
    """
    embedded: list[torch.Tensor] = []

    def watch(_module: Any, _given: Any, found: torch.Tensor) -> torch.Tensor:
        embedded.append(found.detach().requires_grad_())
        return embedded[-1]

    handle = model.get_input_embeddings().register_forward_hook(watch)
    try:
        yield embedded
    finally:
        handle.remove()


def gradient_crosses(model: Any, inputs: dict[str, Any], boundaries: Ids) -> bool:
    """Check whether any gradient flows from the last document's logits to an earlier document's embedded tokens.

    A mask makes that gradient exactly 0; a leak does not, however small its weights still are.

    Args:
        model: transformers model.
        inputs: arguments of the model for one pass.
        boundaries: first token of each document, then the number of tokens.
    """
    last = int(boundaries[-2])
    with embedded_tokens(model) as embedded, torch.enable_grad():
        logits = model(**inputs, use_cache=False).logits[0, last:].float()
        weights = torch.rand(logits.shape[-1], generator=torch.Generator().manual_seed(0)).to(logits.device)
        gradients = torch.autograd.grad((logits @ weights).sum(), embedded, allow_unused=True)
    return any(gradient is not None and bool(gradient[0, :last].any()) for gradient in gradients)
