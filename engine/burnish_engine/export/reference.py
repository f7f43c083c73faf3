"""What the trained model itself says: the truth that files are compared with.

It is computed by transformers and PEFT in fp32 from base and adapter, not from merged weights, so that a fault in
merging shows too. It is computed once and the model is freed before any file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from burnish_engine.chat.prompt import Messages, render, tokenizer_template
from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.export.aside import Cancelled, never, require_memory, stop_if
from burnish_engine.export.folders import Progress, no_progress
from burnish_engine.export.importance_file import Importance
from burnish_engine.export.losses import Flags, MeanLoss, model_loss
from burnish_engine.models.generate import generate_replies, model_stop_ids
from burnish_engine.models.sampling import Reply
from burnish_engine.models.source import ModelSource

if TYPE_CHECKING:
    import torch

    from burnish_engine.export.rounding import OtherMerge

MOST_POSITIONS = 2000
"""Positions compared: enough for a p99, few enough for a laptop."""
MOST_BYTES = 1024**3
"""Most memory for the log-probabilities, bytes; fewer positions are compared where the vocabulary is large."""
LONGEST_DOCUMENT = 1024
IMPORTANCE_TOKENS = 16_384
"""Training tokens that the importance matrix is computed on."""
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
class Asked:
    """What the trained model shall be asked beside its probabilities.

    Attributes:
        learned: For each held-out row, which of its tokens count for the loss; empty: all.
        base: The model before training, where all its weights were trained; with an adapter the base is known.
        training: Token ids of training rows, for the importance matrix; empty: none is wanted.
        name_map: Base tensor name to GGUF name, for the importance matrix.
        tokens: How many training tokens to look at.
        moments: Folder for the second moments of their inputs (`moments.py`); None: they are not gathered.
        in_4_bits: Base tensors that the run kept in NF4; empty: none.
        onto_rounded: The adapter is added to those rounded weights, not to the 16-bit base.
        reported: Held-out loss that training reported for what is exported, nats, and the learned tokens it counts.
    """

    learned: Sequence[Sequence[bool]] = ()
    base: ModelSource | None = None
    training: Sequence[Sequence[int]] = ()
    name_map: Callable[[str], str | None] = lambda _name: None
    tokens: int = IMPORTANCE_TOKENS
    moments: Path | None = None
    in_4_bits: frozenset[str] = frozenset()
    onto_rounded: bool = False
    reported: tuple[float, int] | None = None

    @property
    def rounded(self) -> frozenset[str]:
        """Base tensors that are rounded before the adapter is added."""
        return self.in_4_bits if self.onto_rounded else frozenset()


@dataclass(frozen=True)
class Reference:
    """The trained model's answers.

    Attributes:
        documents: Token ids of held-out rows.
        log_probs: For each document the log-probabilities after every token [T, V], fp32.
        stops: Tokens that end a reply.
        probes: Conversations, the first ones with replies.
        learned: For each document, which of its tokens count for the loss [T].
        base_loss: Mean loss before training, nats; None: not known.
        tuned_loss: Mean loss of the trained model, nats; None: no token counts.
        importance: What its training rows excite; None: not asked for.
        other_merge: Of a 4-bit run: the adapter added to the other weights; else None.
        reported: held-out loss that training reported; see `Asked`.
    """

    documents: list[list[int]]
    log_probs: list[npt.NDArray[np.float32]]
    stops: list[int]
    probes: list[Probe]
    learned: list[Flags] = field(default_factory=list)
    base_loss: float | None = None
    tuned_loss: float | None = None
    importance: Importance | None = None
    other_merge: OtherMerge | None = None
    reported: tuple[float, int] | None = None

    @property
    def loss_tokens(self) -> int:
        """Learned tokens that the losses count."""
        return sum(int(flags[1:].sum()) for flags in self.learned)

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
    return [ids for ids, _ in _choose(held_out, (), probes, vocabulary, context)]


def _choose(
    held_out: Sequence[Sequence[int]],
    learned: Sequence[Sequence[bool]],
    probes: Sequence[Probe],
    vocabulary: int,
    context: int,
) -> list[tuple[list[int], Flags]]:
    """The same with which tokens of each row count for the loss."""
    room = max(min(MOST_POSITIONS, MOST_BYTES // (4 * vocabulary)), 64)
    rows = list(held_out) or [probe.ids for probe in probes]
    chosen: list[tuple[list[int], Flags]] = []
    for place, row in enumerate(rows):
        ids = [int(token) for token in row[: min(context, LONGEST_DOCUMENT, room)]]
        if len(ids) > 1:
            flags = np.ones(len(ids), dtype=bool)
            if held_out and place < len(learned):
                flags = np.asarray(learned[place][: len(ids)], dtype=bool)
            chosen.append((ids, flags))
            room -= len(ids)
        if room < 2:
            break
    if not chosen:
        raise UsageError("There are no held-out rows to verify the files on.", "Give a validation share or file.")
    return chosen


def compute_reference(
    source: ModelSource,
    adapter: Path | None,
    tokenizer: Any,
    held_out: Sequence[Sequence[int]],
    probes: Sequence[Probe],
    *,
    asked: Asked | None = None,
    device: torch.device | None = None,
    progress: Progress = no_progress,
    cancelled: Cancelled = never,
) -> Reference:
    """Run the trained model on held-out rows, and on training rows for the importance matrix, and let it answer.

    Args:
        source: The base model.
        adapter: The PEFT adapter's folder, or None.
        tokenizer: The model's tokenizer.
        held_out: Token ids of rendered held-out rows.
        probes: Rendered conversations; the first few are answered.
        asked: What else is asked.
        device: Where to compute; the CPU where not given.
        progress: Told the share of documents done.
        cancelled: Polled between documents.

    Raises:
        SetupError: Base or adapter cannot be loaded.
        DoesNotFitError: Too little memory is free to load it.
        UsageError: There are no rows to compare on.
        StoppedError: Cancelled.
    """
    import torch

    from burnish_engine.export.importance import compute_importance
    from burnish_engine.export.rounding import compare_merge, round_model
    from burnish_engine.models.plain import load_adapter, load_base
    from burnish_engine.models.plain_speaker import evaluating

    asked = asked or Asked()
    device = device or torch.device("cpu")
    _require_memory(source, device)
    model = load_base(source, "fp32", device)
    round_model(model, asked.rounded)
    if adapter is not None:
        model = load_adapter(model, adapter)
    width = model.get_output_embeddings().weight.shape[0]
    chosen = _choose(held_out, asked.learned, probes, width, _context(source))
    documents, learned = [ids for ids, _ in chosen], [flags for _, flags in chosen]
    log_probs, tuned = [], MeanLoss()
    for done, (document, flags) in enumerate(chosen):
        stop_if(cancelled, "The verification")
        with evaluating(model):
            logits = model(input_ids=torch.tensor([document], device=model.device)).logits[0].float()
            log_probs.append(torch.log_softmax(logits, dim=-1).cpu().numpy())
        tuned.add(log_probs[-1], document, flags)
        progress("Running the trained model", (done + 1) / len(documents) / 2)
    importance = compute_importance(
        model,
        asked.training,
        asked.name_map,
        tokens=asked.tokens,
        moments=asked.moments,
        progress=lambda what, share: progress(what, 0.5 + share / 2),
        cancelled=cancelled,
    )
    base_loss = None
    if adapter is not None:
        with model.disable_adapter():
            base_loss = model_loss(model, documents, learned, cancelled)
    answered = _answer(model, tokenizer, probes, cancelled)
    stops = model_stop_ids(model, tokenizer)
    other = None
    if asked.in_4_bits and adapter is not None:
        stop_if(cancelled, "The verification")
        if asked.onto_rounded:
            del model
            model = load_adapter(load_base(source, "fp32", device), adapter)
        else:
            round_model(model, asked.in_4_bits)
        other = compare_merge(model, documents, log_probs, learned, cancelled)
    del model
    if asked.base is not None:
        stop_if(cancelled, "The verification")
        base_loss = model_loss(load_base(asked.base, "fp32", device), documents, learned, cancelled)
    return Reference(
        documents, log_probs, stops, answered, learned, base_loss, tuned.mean, importance, other, asked.reported
    )


def _require_memory(source: ModelSource, device: torch.device) -> None:
    """Loading takes the weights in fp32; on the CPU, beside the probabilities that are kept."""
    if device.type == "cpu":
        stored = sum(path.stat().st_size for path in source.folder.glob("*.safetensors"))
        halves = 1 if str(source.config.get("dtype", source.config.get("torch_dtype"))).endswith("float32") else 2
        require_memory(halves * stored + MOST_BYTES // 4, "Running the trained model")


def _context(source: ModelSource) -> int:
    """Longest text on which model and file must agree: llama.cpp computes no sliding window for our families."""
    spec = source.spec
    return LONGEST_DOCUMENT if spec is None else min(spec.max_context, spec.sliding_window or spec.max_context)


def _answer(model: Any, tokenizer: Any, probes: Sequence[Probe], cancelled: Cancelled) -> list[Probe]:
    chosen = list(probes[:MOST_REPLIES])
    stop_if(cancelled, "The verification")
    replies = generate_replies(model, tokenizer, [probe.ids for probe in chosen], REPLY_TOKENS)
    answered = [replace(probe, reply=reply) for probe, reply in zip(chosen, replies, strict=True)]
    return [*answered, *probes[MOST_REPLIES:]]
