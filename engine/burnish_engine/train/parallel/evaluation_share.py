"""One rank's share of an evaluation: its passes as tensors to send, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from burnish_engine.data.tokens.pack import EpochPlan
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.engine import CountListener, ignore_count
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_evaluate import EvaluationPasses
from burnish_engine.train.parallel.link import Message

ROUND_PASSES = 64
"""Passes of each rank that are sent and computed at once: as many as fit easily into a message."""


def evaluation_order(passes: EvaluationPasses, each: int, adapter: Path | bool) -> Message:
    """Make the order to compute log-probabilities, or losses where `each` is 0.

    Args:
        passes: all passes of the round.
        each: number of sequences of a document.
        adapter: as in `Engine.log_probs`.
    """
    total = sum(len(group) for group in passes.batches.groups) if each else len(passes.batches)
    return {
        "do": "evaluate",
        "capacity": passes.layout.capacity,
        "budget": passes.batches.budget,
        "each": each,
        "total": total,
        "adapter": str(adapter) if isinstance(adapter, Path) else adapter,
    }


def share_tensors(
    documents: Sequence[Document], groups: Sequence[Sequence[int]], own: Sequence[int], *, by_document: bool
) -> dict[str, torch.Tensor]:
    """Gather a rank's documents, and the places of its results among those of all.

    Args:
        documents: all documents.
        groups: indices of the documents of each pass of the round.
        own: indices of the rank's passes.
        by_document: whether there is a result for each document, in the order of the round's passes, or for each pass.
    """
    chosen = [documents[row] for index in own for row in groups[index]]
    starts = np.cumsum([0, *(len(group) for group in groups)])
    places = [place for index in own for place in range(starts[index], starts[index + 1])] if by_document else own
    joined = [np.concatenate([getattr(one, name) for one in chosen] or [[]]) for name in ("input_ids", "supervised")]
    return {
        "ids": torch.from_numpy(joined[0].astype(np.int32)),
        "supervised": torch.from_numpy(joined[1].astype(np.bool_)),
        "lengths": torch.tensor([len(one) for one in chosen], dtype=torch.int64),
        "rejected_from": torch.tensor([one.rejected_from for one in chosen], dtype=torch.int64),
        "desirable": torch.tensor([one.desirable for one in chosen], dtype=torch.bool),
        "groups": torch.tensor([len(groups[index]) for index in own], dtype=torch.int64),
        "places": torch.tensor(list(places), dtype=torch.int64),
    }


def evaluate_share(
    engine: FastEngine, order: Message, tensors: Mapping[str, torch.Tensor], progress: CountListener = ignore_count
) -> torch.Tensor:
    """Compute a rank's share.

    Args:
        engine: engine of this rank.
        order: what `evaluation_order` made.
        tensors: what `share_tensors` gathered.
        progress: function that is told the number of documents done so far.

    Returns:
        The results of the whole round, 0 where they are another rank's, so that the sum over ranks completes them: [2,
        passes] fp64 as of `pass_losses`, or [documents, sequences] fp32. On the engine's device.
    """
    passes = EvaluationPasses(_batches(order, tensors), replace(engine.largest_layout, capacity=order["capacity"]))
    places, each = tensors["places"], order["each"]
    if each:
        adapter = Path(order["adapter"]) if isinstance(order["adapter"], str) else order["adapter"]
        found = torch.zeros(order["total"], each, dtype=torch.float32)
        own = engine.pass_log_probs(passes, each, adapter=adapter, progress=progress)
        found[places] = torch.from_numpy(own)
    else:
        found = torch.zeros(2, order["total"], dtype=torch.float64)
        found[:, places] = engine.pass_losses(passes, progress)
    return found.to(engine.model.device)


def _batches(order: Message, tensors: Mapping[str, torch.Tensor]) -> EpochPlan:
    lengths = tensors["lengths"].tolist()
    ids = [part.numpy() for part in tensors["ids"].split(lengths)]
    supervised = [part.numpy() for part in tensors["supervised"].split(lengths)]
    others = zip(tensors["rejected_from"].tolist(), tensors["desirable"].tolist(), strict=True)
    documents = [
        Document(ids[index], supervised[index], index + 1, "", rejected_from=rejected, desirable=desirable)
        for index, (rejected, desirable) in enumerate(others)
    ]
    ends = np.cumsum(tensors["groups"].tolist()).tolist()
    groups = [tuple(range(first, end)) for first, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []
    return EpochPlan(documents, groups, order["budget"])
