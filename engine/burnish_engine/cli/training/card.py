"""Summarize a run's card in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from burnish_engine.contract.run.card import HashedFile, RunCard, RunEnvironment
from burnish_engine.contract.units import memory_size
from burnish_engine.runs.compare.card_text import changes_text, fact_label

_DIGITS = 12  # first digits of a hash: enough to distinguish files
_MOST_FILES = 3
_ENDED = {"finished": "at the end", "stopped": "when it was stopped", "suspended": "when it was suspended"}


def card_lines(card: RunCard) -> Iterator[str]:
    """Yield the facts that a person needs to repeat a run, in sentences."""
    facts = card.circumstances
    yield "Made with " + ", ".join(f"{fact_label(name)} {version}" for name, version in facts.versions.items())
    yield f"On {_device(facts)}, {facts.os}, {facts.architecture}: {facts.engine} engine, {_precision(facts)}"
    yield f"Seed {card.seed}, recipe {card.recipe_sha256[:_DIGITS]}, tokenized data {card.data.tokens_sha256[:_DIGITS]}"
    if facts.memory_plan:
        yield f"Memory plan: {facts.memory_plan}"
    yield f"Base model {card.base.name}: {_files([file for file in card.base.files if file.is_weights])}"
    yield f"Data: {_files(card.data.files)}"
    if card.coverage and card.coverage.kinds:
        yield f"Trained: {card.coverage.text}"
    if card.begun_step:
        yield f"The card was begun at step {card.begun_step}; what the steps before were made with is not known"
    for resume in card.resumes:
        yield f"Continued at step {resume.step} with {changes_text(resume) or 'everything the same'}"
    if back := card.rollback:
        where = f"step {back.to_step}" if back.to_step else "the beginning"
        yield f"Went back from step {back.step} to {where}, and on at {back.factor:g} times the learning rate"
    if guard := card.guard:
        yield " ".join(part for part in ("Is it training?", guard.sentence, guard.cause, guard.remedy) if part)
    if card.exports:
        works = [one.kind for one in card.exports if one.works]
        yield f"Can be exported as {', '.join(works)}"
    if result := card.result:
        saved = _files([file for file in result.files if file.is_weights])
        yield f"Saved {_ENDED[result.ended]} (step {result.step}, {result.tokens:,} tokens): {saved}"
        if result.best_step is not None:
            yield f"What is saved is of step {result.best_step}, the best held-out loss ({result.best_loss:.4f} nats)"
        if result.forgetting:
            yield f"Forgetting: {result.forgetting.text}, {result.forgetting.tokens:,} tokens"
        if result.task:
            yield f"Task: {result.task.text}"


def _device(facts: RunEnvironment) -> str:
    memory = memory_size(facts.memory_bytes)
    if facts.compute_capability:
        return f"{facts.device} ({memory}, compute capability {facts.compute_capability})"
    return f"{facts.device} ({memory}, threads: {facts.threads})"


def _precision(facts: RunEnvironment) -> str:
    weights = "" if facts.weights == facts.precision else f"frozen weights in {facts.weights}"
    products = "" if facts.products == "16" else f"products with them in {facts.products}"
    return ", ".join(part for part in (facts.precision, weights, products) if part)


def _files(files: Sequence[HashedFile]) -> str:
    shown = [f"{file.name} {file.sha256[:_DIGITS] if file.sha256 else '(not read)'}" for file in files[:_MOST_FILES]]
    more = len(files) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])
