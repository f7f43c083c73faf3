"""Compare the cards of two runs: only differences, and whether base model, data and result are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.card import HashedFile, RunCard
from burnish_engine.runs.card import read_card
from burnish_engine.runs.compare.card_text import changes_text, fact_label


class CardLine(BaseModel):
    """Comparison of two cards in one topic.

    Attributes:
        topic: subject: card, base model, data, tokenized data, trained weights, resume, or a fact's name.
        verdict: result; unknown where a card, or a hash in it, is missing.
        words: sentence for people.
        values: values of the first and of the second run, where they are single values; None: missing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: str
    verdict: Literal["same", "differs", "unknown"]
    words: str
    values: tuple[str | None, str | None] | None = None


def compare_cards(first: RunPaths, second: RunPaths) -> list[CardLine]:
    """Compare the cards of two runs; a missing or damaged card is reported in a line, not raised."""
    cards, problems = [], []
    for paths in (first, second):
        try:
            card = read_card(paths)
        except UsageError as error:
            problems.append(str(error))
            continue
        if card:
            cards.append(card)
        else:
            problems.append(f"{paths.root.name} has no card (card.json): it has not begun to train.")
    if problems:
        words = f"{' '.join(problems)} So versions, device and the contents of files are not compared."
        return [CardLine(topic="card", verdict="unknown", words=words)]
    ours, theirs = cards
    return [
        _base(ours, theirs),
        *_data(ours, theirs),
        *_facts(ours, theirs),
        *_resumes(first.root.name, ours),
        *_resumes(second.root.name, theirs),
        *_result(ours, theirs),
    ]


def _base(ours: RunCard, theirs: RunCard) -> CardLine:
    topic, names = "base model", (ours.base.name, theirs.base.name)
    weights = [[file for file in card.base.files if file.is_weights] for card in (ours, theirs)]
    beside = [[file for file in card.base.files if not file.is_weights] for card in (ours, theirs)]
    if not (all(weights) and _known(ours.base.files) and _known(theirs.base.files)):
        words = f"{topic}: not known to be the same, since its files were not read to their end"
        return CardLine(topic=topic, verdict="unknown", words=words, values=names)
    if _contents(weights[0]) != _contents(weights[1]):
        words = f"{topic}: other weights ({_unlike(*weights)})"
        return CardLine(topic=topic, verdict="differs", words=words, values=names)
    if unlike := _unlike(*beside):
        words = f"{topic}: the same weights, but {unlike}"
        return CardLine(topic=topic, verdict="differs", words=words, values=names)
    return CardLine(topic=topic, verdict="same", words=f"{topic}: the same weights")


def _data(ours: RunCard, theirs: RunCard) -> Iterator[CardLine]:
    same_tokens = ours.data.tokens_sha256 == theirs.data.tokens_sha256
    differences = []
    for role in ("train", "held out"):
        files = [[file for file in card.data.files if file.role == role] for card in (ours, theirs)]
        if not (_known(files[0]) and _known(files[1])):
            learned = "is the same" if same_tokens else "differs"
            words = "data: not known to be the same, since its files were not read to their end; "
            yield CardLine(topic="data", verdict="unknown", words=f"{words}what is learned from them {learned}")
            return
        if _contents(files[0]) != _contents(files[1]):
            differences.append(_unlike(*files) or f"the {role} files come in another order")
    if differences:
        less = "; what is learned from them is the same" if same_tokens else ""
        yield CardLine(topic="data", verdict="differs", words=f"data: {', '.join(differences)}{less}")
        return
    yield CardLine(topic="data", verdict="same", words="data: the same files")
    if not same_tokens:
        words = "tokenized data: differs although the files are the same (see the recipe's [data] and the tokenizer)"
        yield CardLine(topic="tokenized data", verdict="differs", words=words)


def _facts(ours: RunCard, theirs: RunCard) -> Iterator[CardLine]:
    first, second = _flat(ours), _flat(theirs)
    for name in dict.fromkeys([*first, *second]):
        values = first.get(name), second.get(name)
        if values[0] == values[1]:
            continue
        shown = values
        if name == "memory_plan":  # long, and mostly equal
            shown = _unlike_parts(*(value or "" for value in values))
        words = f"{fact_label(name)} {' / '.join(value or 'none' for value in shown)}"
        yield CardLine(topic=name, verdict="differs", words=words, values=values)


def _flat(card: RunCard) -> dict[str, str | None]:
    counts = {
        "training rows": card.data.train_rows,
        "held-out rows": card.data.held_out_rows,
        "training tokens": card.data.tokens,
        "learned tokens": card.data.learned_tokens,
    }
    return card.circumstances.flat() | {name: f"{count:,}" for name, count in counts.items()}


def _resumes(run: str, card: RunCard) -> Iterator[CardLine]:
    for resume in card.resumes:
        if resume.changed:
            words = f"{run} continued at step {resume.step} with {changes_text(resume)}"
            yield CardLine(topic="resume", verdict="differs", words=words)


def _result(ours: RunCard, theirs: RunCard) -> Iterator[CardLine]:
    if not (ours.result and theirs.result):
        return
    topic = "trained weights"
    files = [[file for file in result.files if file.is_weights] for result in (ours.result, theirs.result)]
    if not all(found and _known(found) for found in files):
        words = f"{topic}: not known to be the same, since a card lacks their hashes"
        yield CardLine(topic=topic, verdict="unknown", words=words)
        return
    same = _contents(files[0]) == _contents(files[1])
    words = f"{topic}: {'the same, bit for bit' if same else 'differ'}"
    yield CardLine(topic=topic, verdict="same" if same else "differs", words=words)


def _known(files: Sequence[HashedFile]) -> bool:
    return all(file.sha256 for file in files)


def _contents(files: Sequence[HashedFile]) -> list[str | None]:
    """List the hashes of the files' contents in order, without names."""
    return [file.sha256 for file in files]


def _unlike(first: Sequence[HashedFile], second: Sequence[HashedFile]) -> str:
    """Name the files that differ; empty where both have the same ones."""
    contents = [_by_name(files) for files in (first, second)]
    words = []
    for name in dict.fromkeys([*contents[0], *contents[1]]):
        ours, theirs = (content.get(name) for content in contents)
        if ours is None or theirs is None:
            words.append(f"only the {'second' if ours is None else 'first'} run has {name}")
        elif ours != theirs:
            words.append(f"{name} differs")
    return ", ".join(words)


def _by_name(files: Sequence[HashedFile]) -> dict[str, list[str | None]]:
    """Group contents by file name: files from several folders may share a name."""
    found: dict[str, list[str | None]] = {}
    for file in files:
        found.setdefault(file.name, []).append(file.sha256)
    return found


def _unlike_parts(first: str, second: str) -> tuple[str, str]:
    """Extract the settings of two memory plans that the other one lacks."""
    ours, theirs = first.split(", "), second.split(", ")
    return (
        ", ".join(part for part in ours if part not in theirs),
        ", ".join(part for part in theirs if part not in ours),
    )
