"""The proof: does a GGUF do what the trained model does?

Token ids, template and end-of-turn tokens must be equal. Probabilities must be equal up to rounding for 16-bit files; a
quantized file passes with its figures as long as it is plainly the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.chat.prompt import gguf_chat_ids, gguf_template, render, tokenizer_template
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts import QuantFidelity
from burnish_engine.export.aside import Cancelled, never, stop_if
from burnish_engine.export.diagnose import Origin, wrong_pre_tokenizer, wrong_settings, wrong_tensors
from burnish_engine.export.gguf.families import family_of
from burnish_engine.export.gguf.header import read_header
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


def measure(model: GgufModel, reference: Reference, cancelled: Cancelled = never) -> Divergence:
    """Compare probabilities after every token of the held-out rows.

    Args:
        model: The open file.
        reference: The trained model's answers.
        cancelled: Polled between blocks of tokens.

    Raises:
        StoppedError: Cancelled.
    """
    divergences: list[npt.NDArray[np.float64]] = []
    same, loss = 0, MeanLoss()
    flags = reference.learned or [np.ones(len(document), dtype=bool) for document in reference.documents]
    for document, truth, learned in zip(reference.documents, reference.log_probs, flags, strict=True):
        start = 0
        for block in model.logit_blocks(document):
            stop_if(cancelled, "The verification")
            for row in range(0, len(block), _ROWS):
                found = log_softmax(block[row : row + _ROWS])
                wanted = truth[start : start + len(found)]
                divergences.append(divergence(wanted, found))
                same += int((wanted.argmax(-1) == found.argmax(-1)).sum())
                loss.add(found, document, learned, start)
                start += len(found)
    all_kl = np.concatenate(divergences)
    mean, p99 = max(float(all_kl.mean()), 0.0), float(np.quantile(all_kl, 0.99))
    return Divergence(len(all_kl), mean, p99, same / len(all_kl), loss.mean)


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
    ended = [probe for probe in probes if probe.reply is not None and probe.reply.stopped]
    reply = Reply("", False, 0)
    for probe in ended or list(probes)[:1]:
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
    said = model.tokenize(probe.reply.text, special=False) if probe.reply is not None else []
    ids = [*probe.ids, *said]
    return len(ids) <= model.context and model.is_end(int(model.logits(ids)[-1].argmax()))


def _named_faults(
    path: Path, origin: Origin | None, expected: Sequence[tuple[str, list[int]]], *, split: bool, off: bool
) -> list[str]:
    """Which settings, and for a file that is refused anyway which tensors, are not the model's."""
    if origin is None or origin.source.spec is None:
        return []
    faults = wrong_settings(read_header(path), origin.source.spec)
    if split:
        faults += wrong_pre_tokenizer(path, expected)
    if off:
        family = family_of(origin.source.spec.family)
        faults += wrong_tensors(path, origin, family.name_map(origin.source.spec.num_layers))
    return faults


def check_file(
    made: Quantized,
    tokenizer: Any,
    expected: Sequence[tuple[str, list[int]]],
    reference: Reference,
    *,
    origin: Origin | None = None,
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
        origin: What the file is said to be; with it, what is wrong with a refused file is named.
        threads: CPU threads.
        name: File name for the report; the path's where not given.
        cancelled: Polled often.

    Raises:
        SetupError: llama.cpp cannot load the file.
        StoppedError: Cancelled.
    """
    longest = max(len(document) for document in reference.documents)
    room = max([longest, *(len(probe.ids) for probe in reference.probes)]) + 2 * REPLY_TOKENS
    with GgufModel(made.path, context=room, threads=threads, exact=True) as model:
        tokens = check_tokens(model, tokenizer, expected, reference)
        problems = list(tokens.problems)
        if tokens.mismatches:
            problems.append(
                f"It splits {len(tokens.mismatches)} of {tokens.strings} texts differently, first "
                f"{tokens.mismatches[0]}."
            )
        found, reply = Divergence(0, float("nan"), float("nan"), 0.0), Reply("", False, 0)
        if model.vocab_size == len(reference.log_probs[0][0]):
            found = measure(model, reference, cancelled)
            stop_if(cancelled, "The verification")
            problems += judge(made.quant, found)
            reply, more = reply_of(model, reference.probes)
            problems += more
    problems += _named_faults(made.path, origin, expected, split=bool(tokens.mismatches), off=bool(problems))
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
