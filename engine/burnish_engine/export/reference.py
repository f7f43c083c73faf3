"""What the trained model itself says: the truth that files are compared with.

It is computed by transformers and PEFT in fp32 from base and adapter, not from merged weights, so that a fault in
merging shows too. It is computed once and the model is freed before any file is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from burnish_engine.chat.prompt import Messages, render, tokenizer_template
from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.export.aside import Cancelled, never, stop_if
from burnish_engine.export.folders import Progress, no_progress
from burnish_engine.models.generate import generate_replies, model_stop_ids
from burnish_engine.models.sampling import Reply
from burnish_engine.models.source import ModelSource

if TYPE_CHECKING:
    import torch

MOST_POSITIONS = 2000
"""Positions compared: enough for a p99, few enough for a laptop."""
MOST_BYTES = 1024**3
"""Most memory for the log-probabilities, bytes; fewer positions are compared where the vocabulary is large."""
LONGEST_DOCUMENT = 1024
REPLY_TOKENS = 96
MOST_REPLIES = 3


@dataclass(frozen=True)
class Probe:
    """A conversation and the trained model's greedy reply.

    Attributes:
        messages: The conversation.
        text: How the tokenizer's template renders it.
        ids: Its token ids.
        reply: What the trained model answers; None where it was not asked.
    """

    messages: Messages
    text: str
    ids: list[int]
    reply: Reply | None = None


@dataclass(frozen=True)
class Reference:
    """The trained model's answers.

    Attributes:
        documents: Token ids of held-out rows.
        log_probs: For each document the log-probabilities after every token [T, V], fp32.
        stops: Tokens that end a reply.
        probes: Conversations, the first ones with replies.
    """

    documents: list[list[int]]
    log_probs: list[npt.NDArray[np.float32]]
    stops: list[int]
    probes: list[Probe]

    @property
    def positions(self) -> int:
        """Positions that are compared."""
        return sum(len(document) for document in self.documents)


def render_probes(tokenizer: Any, chats: Sequence[Messages]) -> list[Probe]:
    """Render conversations; those the template does not take (a system turn, say) are left out."""
    template, probes = tokenizer_template(tokenizer), []
    for messages in chats:
        try:
            text = render(template, messages)
        except BurnishError:
            continue
        probes.append(Probe(messages, text, list(tokenizer(text, add_special_tokens=False)["input_ids"])))
    return probes


def choose_documents(
    held_out: Sequence[Sequence[int]], probes: Sequence[Probe], vocabulary: int, context: int = LONGEST_DOCUMENT
) -> list[list[int]]:
    """Rows to compare on: held-out ones, or rendered chats where none are given.

    Args:
        held_out: Token ids of rendered rows.
        probes: Rendered conversations.
        vocabulary: Tokens of the model; with `MOST_BYTES` it bounds the positions.
        context: Longest document, tokens.

    Raises:
        UsageError: There is nothing to compare on.
    """
    room = max(min(MOST_POSITIONS, MOST_BYTES // (4 * vocabulary)), 64)
    documents: list[list[int]] = []
    for row in list(held_out) or [probe.ids for probe in probes]:
        document = [int(token) for token in row[: min(context, LONGEST_DOCUMENT, room)]]
        if len(document) > 1:
            documents.append(document)
            room -= len(document)
        if room < 2:
            break
    if not documents:
        raise UsageError("There are no held-out rows to verify the files on.", "Give a validation share or file.")
    return documents


def compute_reference(
    source: ModelSource,
    adapter: Path | None,
    tokenizer: Any,
    held_out: Sequence[Sequence[int]],
    probes: Sequence[Probe],
    *,
    device: torch.device | None = None,
    progress: Progress = no_progress,
    cancelled: Cancelled = never,
) -> Reference:
    """Run the trained model on held-out rows and let it answer.

    Args:
        source: The base model.
        adapter: The PEFT adapter's folder, or None.
        tokenizer: The model's tokenizer.
        held_out: Token ids of rendered held-out rows.
        probes: Rendered conversations; the first few are answered.
        device: Where to compute; the CPU where not given.
        progress: Told the share of documents done.
        cancelled: Polled between documents.

    Raises:
        SetupError: Base or adapter cannot be loaded.
        UsageError: There are no rows to compare on.
        StoppedError: Cancelled.
    """
    import torch

    from burnish_engine.models.plain import load_adapter, load_base
    from burnish_engine.models.plain_speaker import evaluating

    model = load_base(source, "fp32", device or torch.device("cpu"))
    if adapter is not None:
        model = load_adapter(model, adapter)
    width = model.get_output_embeddings().weight.shape[0]
    documents = choose_documents(held_out, probes, width, _context(source))
    log_probs = []
    for done, document in enumerate(documents):
        stop_if(cancelled, "The verification")
        with evaluating(model):
            logits = model(input_ids=torch.tensor([document], device=model.device)).logits[0].float()
            log_probs.append(torch.log_softmax(logits, dim=-1).cpu().numpy())
        progress("Running the trained model", (done + 1) / len(documents))
    answered = _answer(model, tokenizer, probes, cancelled)
    return Reference(documents, log_probs, model_stop_ids(model, tokenizer), answered)


def _context(source: ModelSource) -> int:
    """Longest text on which model and file must agree: llama.cpp computes no sliding window for our families."""
    spec = source.spec
    return LONGEST_DOCUMENT if spec is None else min(spec.max_context, spec.sliding_window or spec.max_context)


def _answer(model: Any, tokenizer: Any, probes: Sequence[Probe], cancelled: Cancelled) -> list[Probe]:
    asked = list(probes[:MOST_REPLIES])
    stop_if(cancelled, "The verification")
    replies = generate_replies(model, tokenizer, [probe.ids for probe in asked], REPLY_TOKENS)
    answered = [replace(probe, reply=reply) for probe, reply in zip(asked, replies, strict=True)]
    return [*answered, *probes[MOST_REPLIES:]]
