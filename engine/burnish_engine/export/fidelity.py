"""The proof: does a GGUF hold what the trained model holds, and do what it does?

Settings, vocabulary and template must be equal, and every tensor up to its type's rounding (`checks`). Token ids and
end-of-turn tokens must be equal too. Probabilities must be equal up to rounding for 16-bit files; a quantized file
passes with its figures as long as it is plainly the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.chat.prompt import gguf_chat_ids, gguf_template, render, tokenizer_template
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts import QuantFidelity
from burnish_engine.export.aside import Cancelled, never, stop_if
from burnish_engine.export.checks.contents import check_contents
from burnish_engine.export.checks.contexts import plan_contexts
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.gguf.pre_tokenizer import compare_tokens, expected_tokens
from burnish_engine.export.gguf.vocabulary import before_texts, turn_end
from burnish_engine.export.losses import MeanLoss, gain_kept
from burnish_engine.export.probe_strings import PROBE_STRINGS
from burnish_engine.export.quantize import Quantized
from burnish_engine.export.reference import REPLY_TOKENS, Probe, Reference
from burnish_engine.models.gguf_runtime import GgufModel
from burnish_engine.models.sampling import Reply, Sampling
from burnish_engine.runs.file_hashes import sha256_file

KL_LIMITS = {
    "F16": 1e-4, "BF16": 0.02, "Q8_0": 0.1, "Q6_K": 0.2, "Q5_K_M": 0.5, "Q5_K_S": 0.5, "Q5_0": 0.5,
}  # fmt: skip
"""Most mean KL(trained || file), nats. Several times what the worst model measured so far needs (the embedded 135M
model, which loses far more than larger ones: Q8_0 0.004, Q6_K 0.01, Q5_K_M 0.08, Q4_0 0.3), and far below what a
structural fault costs (a missing Q/K permutation: 2.4)."""
OTHER_KL_LIMIT = 1.0
"""For 4-bit types and unknown ones."""
TOP1_LIMIT = 0.5
"""Least share of equal first choices..."""
FLAT_KL = 0.05
"""...except below this KL: where the model itself hardly prefers any token, the first choice says nothing."""
_ROWS = 32  # positions compared at a time, so that memory stays near 3 x 4 x 32 x V bytes


@dataclass(frozen=True)
class TokenCheck:
    """How the file's tokenizer compares.

    Attributes:
        strings: Texts compared.
        mismatches: Those with other token ids, in words.
        problems: Faults in template, end tokens or vocabulary size.
    """

    strings: int
    mismatches: list[str]
    problems: list[str]


@dataclass(frozen=True)
class Divergence:
    """How the file's probabilities compare, over all positions.

    Attributes:
        positions: Positions compared.
        mean_kl: Mean KL(trained || file), nats.
        p99_kl: 99th percentile of it.
        top1: Share of equal first choices, 0 to 1.
        loss: The file's mean loss on the rows' learned tokens, nats; None where none counts.
    """

    positions: int
    mean_kl: float
    p99_kl: float
    top1: float
    loss: float | None = None


def probe_texts(tokenizer: Any) -> list[tuple[str, list[int]]]:
    """The texts with their right token ids: `PROBE_STRINGS` and every added token inside a text."""
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


class Comparison:
    """Probabilities of a file beside the trained model's, after every token of the held-out rows.

    Args:
        reference: The trained model's answers.
        cancelled: Polled between blocks of tokens.

    Attributes:
        problems: Rows that could not be compared, in sentences.
    """

    def __init__(self, reference: Reference, cancelled: Cancelled = never) -> None:
        self._reference, self._cancelled = reference, cancelled
        self._flags = reference.learned or [np.ones(len(row), dtype=bool) for row in reference.documents]
        self._kl: list[npt.NDArray[np.float64]] = []
        self._same, self._loss = 0, MeanLoss()
        self.problems: list[str] = []

    def add(self, model: GgufModel, rows: Sequence[int]) -> None:
        """Compare rows; those that do not fit the file's context are a problem.

        Args:
            model: The open file.
            rows: places of the rows among the reference's documents.

        Raises:
            StoppedError: Cancelled.
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
        document, truth, learned = self._reference.documents[row], self._reference.log_probs[row], self._flags[row]
        start = 0
        for block in model.logit_blocks(document):
            stop_if(self._cancelled, "The verification")
            for first in range(0, len(block), _ROWS):
                found = log_softmax(block[first : first + _ROWS])
                wanted = truth[start : start + len(found)]
                self._kl.append(divergence(wanted, found))
                self._same += int((wanted.argmax(-1) == found.argmax(-1)).sum())
                self._loss.add(found, document, learned, start)
                start += len(found)

    def result(self) -> Divergence:
        """The figures over all rows that were compared."""
        if not self._kl:
            return Divergence(0, float("nan"), float("nan"), 0.0)
        all_kl = np.concatenate(self._kl)
        mean, p99 = max(float(all_kl.mean()), 0.0), float(np.quantile(all_kl, 0.99))
        return Divergence(len(all_kl), mean, p99, self._same / len(all_kl), self._loss.mean)


def kl_divergence(log_probs: npt.NDArray[np.float32], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """KL(p || q) of each row, nats.

    Args:
        log_probs: log p, [T, V].
        logits: Unnormalized log q, [T, V].
    """
    return divergence(log_probs, log_softmax(logits))


def log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Log-probabilities of each row, fp64.

    Args:
        logits: [T, V].
    """
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def divergence(log_probs: npt.NDArray[np.float32], others: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """KL(p || q) of each row, nats, from log p and log q [T, V]."""
    wanted = log_probs.astype(np.float64)
    kl: npt.NDArray[np.float64] = (np.exp(wanted) * (wanted - others)).sum(axis=-1)
    return kl


def judge(quant: str, found: Divergence) -> list[str]:
    """Why a file with these figures is refused; empty when it is not."""
    limit = KL_LIMITS.get(quant, OTHER_KL_LIMIT)
    if not np.isfinite(found.mean_kl):
        return ["Its probabilities are not finite numbers."]
    if found.mean_kl >= limit:
        return [
            f"Its mean KL divergence from the trained model is {found.mean_kl:.3g} nats, above {limit:g} ({quant})."
        ]
    if found.top1 <= TOP1_LIMIT and found.mean_kl >= FLAT_KL:
        return [f"It agrees with the trained model's first choice at only {found.top1:.0%} of the positions."]
    return []


def reply_of(model: GgufModel, probes: Sequence[Probe]) -> tuple[Reply, list[str]]:
    """The file's reply to a conversation that the trained model ends by itself, and what is wrong with it.

    A quantized model may word it differently, so it gets twice the tokens. Where its own words still go on, as those of
    a hardly trained model may, it has to end where the trained model did: after that model's reply.
    """
    fitting = [probe for probe in probes if len(probe.ids) < model.context]
    ended = [probe for probe in fitting if probe.reply is not None and probe.reply.stopped]
    reply = Reply("", False, 0)
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
    # The very tokens: control tokens are not in the text, and a text may be split otherwise than it was said.
    said = probe.reply.ids if probe.reply is not None else ()
    ids = [*probe.ids, *said]
    return len(ids) <= model.context and model.is_end(int(model.logits(ids)[-1].argmax()))


def check_file(
    made: Quantized,
    tokenizer: Any,
    expected: Sequence[tuple[str, list[int]]],
    reference: Reference,
    *,
    origin: Origin,
    threads: int = 0,
    name: str | None = None,
    cancelled: Cancelled = never,
) -> tuple[QuantFidelity, TokenCheck]:
    """Check one file completely.

    Args:
        made: The file and what it holds.
        tokenizer: The trained model's tokenizer.
        expected: From `probe_texts`.
        reference: The trained model's answers.
        origin: base and adapter that the file is said to be made of.
        threads: CPU threads.
        name: File name for the report; the path's where not given.
        cancelled: Polled often.

    Raises:
        SetupError: llama.cpp cannot load the file.
        StoppedError: Cancelled.
    """
    problems: list[str] = []
    contexts = plan_contexts(origin.source.spec, reference)
    comparison, reply = Comparison(reference, cancelled), Reply("", False, 0)
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
            stop_if(cancelled, "The verification")
            reply, unended = reply_of(model, [reference.probes[place] for place in contexts.asked])
            problems += unended
    if same_size and contexts.long_rows:
        with GgufModel(made.path, context=contexts.long, threads=threads, exact=True) as model:
            comparison.add(model, contexts.long_rows)
    found = comparison.result()
    misread = expected if tokens.mismatches else ()
    problems = [*check_contents(made.path, origin, tokenizer, misread, cancelled), *problems, *comparison.problems]
    if same_size and found.positions:
        problems += judge(made.quant, found)
    result = QuantFidelity(
        file=name or made.path.name,
        quant=made.quant,
        bytes=made.bytes,
        sha256=sha256_file(made.path),
        tensor_types=made.tensor_types,
        fallbacks=made.fallbacks,
        positions=found.positions,
        mean_kl=found.mean_kl,
        p99_kl=found.p99_kl,
        top1_agreement=found.top1,
        held_out_loss=found.loss,
        gain_kept=gain_kept(reference.base_loss, reference.tuned_loss, found.loss),
        importance=made.importance,
        reply=reply.text,
        reply_stopped=reply.stopped,
        passed=not problems,
        problems=problems,
    )
    return result, tokens
