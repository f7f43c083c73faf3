"""Prove that a GGUF holds and does what the trained model holds and does.

Settings, vocabulary and template must be equal, and every tensor up to its type's rounding (`checks`). Token ids and
end-of-turn tokens must be equal too. Probabilities of 16-bit files must be equal up to rounding; a quantized file
passes, with its figures, if it is plainly the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.chat.prompt import gguf_chat_ids, gguf_template, render, tokenizer_template
from burnish_engine.chat.score_models import file_replies
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts.facts import QuantFidelity
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.losses import MeanLoss, gain_kept, token_kl
from burnish_engine.export.base.staging import Canceled, never, stop_if
from burnish_engine.export.checks.contents import check_contents
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.gguf.pre_tokenizer import compare_tokens, expected_tokens
from burnish_engine.export.gguf.vocabulary import before_texts, turn_end
from burnish_engine.export.quantize.quantize import Quantized
from burnish_engine.export.verify.contexts import plan_contexts
from burnish_engine.export.verify.limits import KlStatistics, judge, least_limit
from burnish_engine.export.verify.probe_strings import PROBE_STRINGS
from burnish_engine.export.verify.provenance import hash_file
from burnish_engine.export.verify.reference import REPLY_TOKENS, Probe, Reference
from burnish_engine.export.weights.folders import Progress, no_progress
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling
from burnish_engine.models.gguf.gguf_runtime import GgufModel
from burnish_engine.scoring.score import TaskRows

_ROWS = 32  # positions compared at a time, so that memory stays near 3 x 4 x 32 x V bytes


@dataclass(frozen=True)
class TokenCheck:
    """Result of comparing the file's tokenizer."""

    strings: int  # number of compared texts
    mismatches: list[str]  # descriptions of the texts with other token ids
    problems: list[str]  # faults in template, end tokens or vocabulary size


def probe_texts(tokenizer: Any) -> list[tuple[str, list[int]]]:
    """Tokenize the probe texts: `PROBE_STRINGS` and every added token inside a text."""
    added = [f"Hello{name}world" for name in tokenizer.get_added_vocab()][:100]
    before = before_texts(tokenizer)
    return expected_tokens(tokenizer, [before + text for text in (*PROBE_STRINGS, *added)])


def check_tokens(
    model: GgufModel, tokenizer: Any, expected: Sequence[tuple[str, list[int]]], reference: Reference
) -> TokenCheck:
    """Compare tokenizer, template and end tokens with the trained model's."""
    mismatches = [str(mismatch) for mismatch in compare_tokens(expected, model)]
    problems = []
    for probe in reference.probes:
        try:
            text = render(gguf_template(model), probe.messages)
        except BurnishError as error:
            problems.append(f"The file's chat template fails: {error.what}")
            break
        got = gguf_chat_ids(model, text)
        if got != probe.ids:
            mismatches.append(f"a rendered chat {probe.text[:60]!r}: {probe.ids[:12]} became {got[:12]}")
    problems += _end_problems(model, tokenizer, reference.stops)
    if len(reference.log_probs[0][0]) != model.vocab_size:
        problems.append(
            f"The file has {model.vocab_size} tokens and the trained model {len(reference.log_probs[0][0])}."
        )
    return TokenCheck(len(expected) + len(reference.probes), mismatches, problems)


def _end_problems(model: GgufModel, tokenizer: Any, stops: Sequence[int]) -> list[str]:
    problems = []
    missing = [tokenizer.convert_ids_to_tokens(stop) for stop in stops if not model.is_end(stop)]
    if missing:
        problems.append(f"The file does not stop at {', '.join(map(repr, missing))}, where the trained model stops.")
    end = turn_end(tokenizer, tokenizer_template(tokenizer))
    wanted = end if end is not None else tokenizer.eos_token_id
    if wanted is not None and model.eos != wanted:
        problems.append(
            f"The file's end-of-turn token is {model.token_text(model.eos)!r} ({model.eos}); the template ends turns "
            f"with {tokenizer.convert_ids_to_tokens(wanted)!r} ({wanted})."
        )
    return problems


class ReferenceComparison:
    """Compare a file's probabilities with the trained model's, after every token of the held-out rows.

    Args:
        reference: answers of the trained model.
        canceled: callback polled between blocks of tokens; True stops the work.

    Attributes:
        problems: sentences on rows that could not be compared.
    """

    def __init__(self, reference: Reference, canceled: Canceled = never) -> None:
        self._reference, self._canceled = reference, canceled
        self._flags = reference.supervised or [np.ones(len(row), dtype=bool) for row in reference.documents]
        self._kl: list[npt.NDArray[np.float64]] = []
        self._same, self._loss = 0, MeanLoss()
        self.problems: list[str] = []

    def add(self, model: GgufModel, rows: Sequence[int]) -> None:
        """Compare rows, and record a problem for those that do not fit the file's context.

        Args:
            model: open file.
            rows: indices of the rows among the reference's documents.

        Raises:
            StoppedError: Canceled.
        """
        fitting = [row for row in rows if len(self._reference.documents[row]) <= model.context]
        if len(fitting) < len(rows):
            longest = max(len(self._reference.documents[row]) for row in rows)
            self.problems.append(
                f"{len(rows) - len(fitting)} rows of up to {longest} tokens do not fit its context of {model.context}."
            )
        for row in fitting:
            self._add_row(model, row)

    def _add_row(self, model: GgufModel, row: int) -> None:
        document, truth, supervised = self._reference.documents[row], self._reference.log_probs[row], self._flags[row]
        start = 0
        for block in model.logit_blocks(document):
            stop_if(self._canceled, "The verification")
            for first in range(0, len(block), _ROWS):
                found = log_softmax(block[first : first + _ROWS])
                wanted = truth[start : start + len(found)]
                self._kl.append(token_kl(wanted, found))
                self._same += int((wanted.argmax(-1) == found.argmax(-1)).sum())
                self._loss.add(found, document, supervised, start)
                start += len(found)

    def result(self) -> KlStatistics:
        """Summarize all rows that were compared."""
        if not self._kl:
            return KlStatistics(0, float("nan"), float("nan"), 0.0)
        all_kl = np.concatenate(self._kl)
        mean, p99 = max(float(all_kl.mean()), 0.0), float(np.quantile(all_kl, 0.99))
        return KlStatistics(len(all_kl), mean, p99, self._same / len(all_kl), self._loss.mean)


def log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Compute log-probabilities of each row, fp64.

    Args:
        logits: unnormalized log-probabilities [T, V].
    """
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def reply_of(model: GgufModel, probes: Sequence[Probe]) -> tuple[GeneratedReply, list[str]]:
    """Return the file's reply to a conversation that the trained model ends by itself, and what is wrong with it.

    A quantized model may word its reply differently, so it gets twice the tokens. If its reply still does not end, as
    that of a barely trained model may not, it must end where the trained model did: after that model's reply.
    """
    fitting = [probe for probe in probes if len(probe.ids) < model.context]
    ended = [probe for probe in fitting if probe.reply is not None and probe.reply.stopped]
    reply = GeneratedReply("", False, 0)
    for probe in ended or fitting[:1]:
        room = min(2 * REPLY_TOKENS, model.context - len(probe.ids))
        reply = model.generate(probe.ids, Sampling(max_tokens=max(room, 1))).finish()
        if reply.stopped:
            return reply, []
    if not ended or any(_ends_after(model, probe) for probe in ended):
        return reply, []
    return reply, [
        f"Its reply did not end within {2 * REPLY_TOKENS} tokens, nor would it end after the trained model's reply, "
        "which did."
    ]


def _ends_after(model: GgufModel, probe: Probe) -> bool:
    """Whether the file's most likely token after the trained model's whole reply ends the turn."""
    # The exact tokens: control tokens are not in the text, and a text may be tokenized differently than it was
    # generated.
    said = probe.reply.ids if probe.reply is not None else ()
    ids = [*probe.ids, *said]
    return len(ids) <= model.context and model.is_end(int(model.logits(ids)[-1].argmax()))


def add_score(
    found: QuantFidelity,
    gguf: Path,
    rows: TaskRows | None,
    *,
    progress: Progress = no_progress,
    threads: int = 0,
    canceled: Canceled = never,
) -> QuantFidelity:
    """Add to a file's figures the score of its replies to held-out rows; not to those of a refused file.

    Args:
        found: figures of the file.
        gguf: path of the file.
        rows: rows and how they are scored; None: none are.
        progress: callback given the share of rows that are answered.
        threads: number of CPU threads.
        canceled: callback polled often; True stops the work.

    Raises:
        SetupError: llama.cpp cannot load the file.
        StoppedError: Canceled.
    """
    if rows is None or not found.passed:
        return found

    def answered(done: int) -> None:
        stop_if(canceled, "The verification")
        progress(EXPORT_STAGES["score"].format(quant=found.quant), done / len(rows.rows))

    replies = file_replies(gguf, rows, answered, threads=threads)
    return found.model_copy(update={"task": rows.score(replies)})


def check_file(
    made: Quantized,
    tokenizer: Any,
    expected: Sequence[tuple[str, list[int]]],
    reference: Reference,
    *,
    origin: Origin,
    threads: int = 0,
    name: str | None = None,
    canceled: Canceled = never,
) -> tuple[QuantFidelity, TokenCheck]:
    """Run all checks on one file.

    Args:
        made: file and its content.
        tokenizer: tokenizer of the trained model.
        expected: texts with token ids from `probe_texts`.
        reference: answers of the trained model.
        origin: base and adapter that the file claims to be made from.
        threads: number of CPU threads.
        name: file name for the report; by default the path's.
        canceled: callback polled often; True stops the work.

    Raises:
        SetupError: llama.cpp cannot load the file.
        StoppedError: Canceled.
    """
    problems: list[str] = []
    contexts = plan_contexts(origin.source.spec, reference)
    comparison, reply = ReferenceComparison(reference, canceled), GeneratedReply("", False, 0)
    with GgufModel(made.path, context=contexts.usual, threads=threads, exact=True) as model:
        tokens = check_tokens(model, tokenizer, expected, reference)
        problems += tokens.problems
        if tokens.mismatches:
            problems.append(
                f"It splits {len(tokens.mismatches)} of {tokens.strings} texts differently, first "
                f"{tokens.mismatches[0]}."
            )
        same_size = model.vocab_size == len(reference.log_probs[0][0])
        if same_size:
            comparison.add(model, contexts.usual_rows)
            stop_if(canceled, "The verification")
            reply, unended = reply_of(model, [reference.probes[place] for place in contexts.asked])
            problems += unended
    if same_size and contexts.long_rows:
        with GgufModel(made.path, context=contexts.long, threads=threads, exact=True) as model:
            comparison.add(model, contexts.long_rows)
    found = comparison.result()
    misread = expected if tokens.mismatches else ()
    problems = [*check_contents(made.path, origin, tokenizer, misread, canceled), *problems, *comparison.problems]
    gain = gain_kept(reference.base_loss, reference.tuned_loss, found.loss)
    if same_size and found.positions:
        problems += judge(made.quant, found, reference.base, gain, least_limit(origin.source.spec))
    hashes = hash_file(made.path, read_header(made.path), canceled)
    result = QuantFidelity(
        file=name or made.path.name,
        quant=made.quant,
        bytes=made.bytes,
        sha256=hashes.file,
        tensor_sha256=hashes.tensors,
        tensor_types=made.tensor_types,
        fallbacks=made.fallbacks,
        positions=found.positions,
        mean_kl=found.mean_kl,
        p99_kl=found.p99_kl,
        top1_agreement=found.top1,
        held_out_loss=found.loss,
        gain_kept=gain,
        importance=made.importance,
        reply=reply.text,
        reply_stopped=reply.stopped,
        passed=not problems,
        problems=problems,
    )
    return result, tokens
