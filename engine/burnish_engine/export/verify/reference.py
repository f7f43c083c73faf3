"""Compute the trained model's own answers, with which files are compared.

transformers and PEFT compute them in fp32 from base and adapter, not from merged weights, so that a fault in merging
shows too. They are computed once, and the model is freed before any file is opened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from burnish_engine.chat.prompt import Messages, render, tokenizer_template
from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.contract.facts.task_score import TaskChange
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.losses import Flags, MeanLoss, ModelDistance, model_distance
from burnish_engine.export.base.staging import Canceled, never, require_memory, stop_if
from burnish_engine.export.quantize.importance_file import Importance
from burnish_engine.export.verify.stage_bar import BeginStage
from burnish_engine.export.weights.folders import Progress, no_progress
from burnish_engine.models.checkpoint.checkpoint_tensors import checkpoint_tensors
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.families import family
from burnish_engine.models.generation.generate import generate_replies, model_stop_ids
from burnish_engine.models.generation.sampling import GeneratedReply
from burnish_engine.scoring.score import TaskRows

if TYPE_CHECKING:
    import torch

MOST_POSITIONS = 2000
"""Number of compared positions: enough for a p99, few enough for a laptop."""
MOST_BYTES = 1024**3
"""Largest memory for the log-probabilities, bytes; fewer positions are compared where the vocabulary is large."""
LONGEST_DOCUMENT = 1024
IMPORTANCE_TOKENS = 16_384
"""Number of training tokens that the importance matrix is computed on."""
_PACKED = {"U8": 2}  # weights in a byte of MXFP4
REPLY_TOKENS = 96
MOST_REPLIES = 3


@dataclass(frozen=True)
class Probe:
    """A conversation and the trained model's greedy reply."""

    messages: Messages  # turns of the conversation
    text: str  # conversation as the tokenizer's template renders it
    ids: list[int]  # token ids of the text
    reply: GeneratedReply | None = None  # reply of the trained model; None where it was not asked


@dataclass(frozen=True)
class ReferenceOptions:
    """Options for what is computed besides the trained model's probabilities."""

    supervised: Sequence[Sequence[bool]] = ()
    """Whether, for each held-out row, each token counts for the loss; empty: all count."""
    base: ModelSource | None = None
    """Model before training, where all its weights were trained; with an adapter the base is known."""
    training: Sequence[Sequence[int]] = ()
    """Token ids of training rows for the importance matrix; empty: none is wanted."""
    name_map: Callable[[str], str | None] = lambda _name: None
    """Function from base tensor name to GGUF name, for the importance matrix."""
    tokens: int = IMPORTANCE_TOKENS  # number of training tokens to run
    hessians: Path | None = None
    """Folder for the Hessians of the layers' inputs (`hessian.py`); None: they are not gathered."""
    in_4_bits: frozenset[str] = frozenset()  # names of base tensors that the run kept in NF4; empty: none
    onto_rounded: bool = False  # whether the adapter is added to those rounded weights, not to the 16-bit base
    reported: tuple[float, int] | None = None
    """Held-out loss that training reported for the exported model, nats, and its number of supervised tokens."""
    forgetting: Forgetting | None = None  # loss on general text before and after training; None: not measured
    task: TaskChange | None = None  # score of the task as training measured it; None: not measured
    task_rows: TaskRows | None = None  # held-out rows on which files are scored; None: they are not

    @property
    def rounded(self) -> frozenset[str]:
        """Names of base tensors that are rounded before the adapter is added."""
        return self.in_4_bits if self.onto_rounded else frozenset()


@dataclass(frozen=True)
class ExportedModel:
    """A trained model of which files are made or proven, and what they are compared with it on."""

    source: ModelSource  # base model, or the trained one
    adapter: Path | None  # folder of the PEFT adapter; None: there is none
    held_out: Sequence[Sequence[int]] = ()
    """Token ids of rendered held-out rows to compare on; without them, rendered chats are compared."""
    probe_chats: Sequence[Messages] = ()  # conversations to compare and answer, before some of our own
    options: ReferenceOptions = field(default_factory=ReferenceOptions)  # further things to compute
    device: torch.device | None = None  # device that runs the trained model; None: the CPU
    threads: int = 0  # number of CPU threads for llama.cpp; 0: one per core


@dataclass(frozen=True)
class Reference:
    """Answers of the trained model."""

    documents: list[list[int]]  # token ids of held-out rows
    log_probs: list[npt.NDArray[np.float32]]  # log-probabilities after every token of each document [T, V], fp32
    stops: list[int]  # ids of the tokens that end a reply
    probes: list[Probe]  # conversations, the first ones with replies
    supervised: list[Flags] = field(default_factory=list)
    """Whether, for each document, each token counts for the loss [T]."""
    base: ModelDistance | None = None
    """The model before training: its loss and its distance from the trained one; None: unknown."""
    tuned_loss: float | None = None  # mean loss of the trained model, nats; None: no token counts
    importance: Importance | None = None  # importance matrix from training rows; None: not requested
    other_merge: ModelDistance | None = None
    """Results with the adapter added to the other weights of a 4-bit run; None where there are none."""
    reported: tuple[float, int] | None = None  # held-out loss that training reported; see `ReferenceOptions`
    forgetting: Forgetting | None = None  # loss on general text before and after training; None: not measured
    task: TaskChange | None = None  # score of the task as training measured it; None: not measured
    task_rows: TaskRows | None = None  # held-out rows on which files are scored; None: they are not
    flags_known: bool = True  # whether it is known which tokens of the rows are supervised; otherwise all count

    @property
    def base_loss(self) -> float | None:
        """Mean loss before training, nats; None: unknown."""
        return self.base.loss if self.base else None

    @property
    def loss_tokens(self) -> int:
        """Number of supervised tokens that the losses count."""
        return sum(int(flags[1:].sum()) for flags in self.supervised)

    @property
    def positions(self) -> int:
        """Number of compared positions."""
        return sum(len(document) for document in self.documents)


def render_probes(tokenizer: Any, chats: Sequence[Messages]) -> list[Probe]:
    """Render conversations, omitting those that the template refuses (with a system turn, for example)."""
    template, probes = tokenizer_template(tokenizer), []
    for messages in chats:
        try:
            text = render(template, messages)
        except BurnishError:
            continue
        probes.append(Probe(messages, text, list(tokenizer(text, add_special_tokens=False)["input_ids"])))
    return probes


def choose_documents(
    held_out: Sequence[Sequence[int]],
    supervised: Sequence[Sequence[bool]],
    probes: Sequence[Probe],
    vocabulary: int,
    context: int = LONGEST_DOCUMENT,
) -> list[tuple[list[int], Flags]]:
    """Choose rows to compare on, held-out ones or else rendered chats, each with its flags of supervised tokens [T].

    Args:
        held_out: token ids of rendered rows.
        supervised: flags of the rows' supervised tokens; all tokens of rows beyond these are supervised.
        probes: rendered conversations.
        vocabulary: number of tokens of the model; with `MOST_BYTES` it bounds the positions.
        context: length of the longest document, tokens.

    Raises:
        UsageError: There is nothing to compare on.
    """
    room = max(min(MOST_POSITIONS, MOST_BYTES // (4 * vocabulary)), 64)
    rows = list(held_out) or [probe.ids for probe in probes]
    chosen: list[tuple[list[int], Flags]] = []
    for place, row in enumerate(rows):
        ids = [int(token) for token in row[: min(context, LONGEST_DOCUMENT, room)]]
        if len(ids) > 1:
            flags = np.ones(len(ids), dtype=bool)
            if held_out and place < len(supervised):
                flags = np.asarray(supervised[place][: len(ids)], dtype=bool)
            chosen.append((ids, flags))
            room -= len(ids)
        if room < 2:
            break
    if not chosen:
        raise UsageError("There are no held-out rows to verify the files on.", "Give a validation share or file.")
    return chosen


def compute_reference(
    model: ExportedModel,
    tokenizer: Any,
    probes: Sequence[Probe],
    *,
    begin: BeginStage = lambda _name: no_progress,
    canceled: Canceled = never,
) -> Reference:
    """Run the trained model on held-out rows and probes, and on training rows for the importance matrix.

    Args:
        model: trained model and rows.
        tokenizer: tokenizer of the model.
        probes: rendered conversations; the first few are answered.
        begin: function that begins a stage and returns the callback of its share: "run" on the documents, "weigh" with
            training rows, and "answer" for all that is asked of the model then.
        canceled: callback polled between documents; True stops the work.

    Raises:
        SetupError: Base or adapter cannot be loaded.
        DoesNotFitError: Too little memory is free to load it.
        UsageError: There are no rows to compare on.
        StoppedError: Canceled.
    """
    import torch

    from burnish_engine.export.quantize.importance import compute_importance
    from burnish_engine.export.weights.nf4_merge import round_model
    from burnish_engine.models.checkpoint.gguf_file.value_heads import column_order
    from burnish_engine.models.transformers_path.plain import load_adapter, load_base

    source, adapter, options = model.source, model.adapter, model.options
    device = model.device or torch.device("cpu")
    require_model(source, device)
    loaded = load_base(source, "fp32", device)
    round_model(loaded, options.rounded)
    if adapter is not None:
        loaded = load_adapter(loaded, adapter)
    width = loaded.get_output_embeddings().weight.shape[0]
    chosen = choose_documents(model.held_out, options.supervised, probes, width, _context(source))
    documents, supervised = [ids for ids, _ in chosen], [flags for _, flags in chosen]
    log_probs = document_log_probs(loaded, documents, begin("run"), canceled)
    tuned = MeanLoss()
    for one, (document, flags) in zip(log_probs, chosen, strict=True):
        tuned.add(one, document, flags)
    importance = compute_importance(
        loaded,
        options.training,
        options.name_map,
        tokens=options.tokens,
        columns=partial(column_order, source.spec),
        hessians=options.hessians,
        progress=begin("weigh") if options.training else no_progress,
        canceled=canceled,
    )
    asked, what = begin("answer"), EXPORT_STAGES["weigh" if options.training else "run"]
    base = None
    if adapter is not None:
        with loaded.disable_adapter():
            base = model_distance(loaded, documents, log_probs, supervised, canceled)
    asked(what, 0.3)
    answered = _answer(loaded, tokenizer, probes, canceled)
    asked(what, 0.7)
    stops = model_stop_ids(loaded, tokenizer)
    other = None
    if options.in_4_bits and adapter is not None:
        stop_if(canceled, "The verification")
        if options.onto_rounded:
            del loaded
            loaded = load_adapter(load_base(source, "fp32", device), adapter)
        else:
            round_model(loaded, options.in_4_bits)
        other = model_distance(loaded, documents, log_probs, supervised, canceled)
    del loaded
    if options.base is not None:
        stop_if(canceled, "The verification")
        before = load_base(options.base, "fp32", device)
        base = model_distance(before, documents, log_probs, supervised, canceled)
    return Reference(
        documents=documents,
        log_probs=log_probs,
        stops=stops,
        probes=answered,
        supervised=supervised,
        base=base,
        tuned_loss=tuned.mean,
        importance=importance,
        other_merge=other,
        reported=options.reported,
        forgetting=options.forgetting,
        task=options.task,
        task_rows=options.task_rows,
        flags_known=bool(options.supervised),
    )


def document_log_probs(
    model: Any, documents: Sequence[Sequence[int]], progress: Progress, canceled: Canceled
) -> list[npt.NDArray[np.float32]]:
    """Compute a loaded model's log-probabilities after every token of each document [T, V], fp32.

    Raises:
        StoppedError: Canceled.
    """
    import torch

    from burnish_engine.models.generation.transformers_generate import evaluating

    log_probs = []
    for done, document in enumerate(documents):
        stop_if(canceled, "The verification")
        with evaluating(model):
            logits = model(input_ids=torch.tensor([list(document)], device=model.device)).logits[0].float()
            log_probs.append(torch.log_softmax(logits, dim=-1).cpu().numpy())
        progress(EXPORT_STAGES["run"], (done + 1) / len(documents))
    return log_probs


def require_model(source: ModelSource, device: torch.device) -> None:
    """Check that the weights in fp32 fit into free memory; on the CPU, next to the stored probabilities."""
    if device.type == "cpu":
        numbers = sum(
            math.prod(one.shape) * _PACKED.get(one.dtype, 1) for one in checkpoint_tensors(source.folder).values()
        )
        require_memory(4 * numbers + MOST_BYTES // 4, "Running the trained model")


def _context(source: ModelSource) -> int:
    """Longest text on which model and file must agree: llama.cpp computes the sliding window of few families."""
    spec = source.spec
    known = None if spec is None else family(spec.family)
    if spec is None or (known is not None and known.gguf is not None and known.gguf.computes_window):
        return LONGEST_DOCUMENT
    return min(spec.max_context, spec.sliding_window or spec.max_context)


def _answer(model: Any, tokenizer: Any, probes: Sequence[Probe], canceled: Canceled) -> list[Probe]:
    chosen = list(probes[:MOST_REPLIES])
    stop_if(canceled, "The verification")
    replies = generate_replies(model, tokenizer, [probe.ids for probe in chosen], REPLY_TOKENS)
    answered = [replace(probe, reply=reply) for probe, reply in zip(chosen, replies, strict=True)]
    return [*answered, *probes[MOST_REPLIES:]]
