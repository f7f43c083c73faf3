"""Recognize what the columns of a file mean: every reading that fits, how sure it is, and when to ask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.data.conversation import ROLE_KEYS, turns_in
from burnish_engine.data.formats import CONVERSATION_COLUMNS
from burnish_engine.data.problems import shorten
from burnish_engine.data.shapes import MEANINGS, OPTIONAL_MEANINGS, SHAPES, Layout, is_label

SURE = 0.7
"""Confidence from which a reading is taken without asking."""
_APART = 0.05  # two readings that are this close in confidence are ambiguous

_PROMPTS = ("prompt", "question", "query", "input")
_COMPLETIONS = ("completion", "response", "answer", "output")
_PAIRS = (
    ("problem", "solution"), ("source", "target"), ("src", "tgt"), ("human", "assistant"), ("user", "assistant"),
    ("human", "bot"), ("user", "bot"), ("instruction", "completion"), ("instruction", "answer"),
    ("document", "summary"), ("article", "highlights"), ("article", "summary"), ("dialogue", "summary"),
    ("post", "reply"), ("request", "reply"), ("title", "abstract"), ("q", "a"), ("context", "response"),
    ("problem", "answer"), ("task", "solution"), ("nl", "code"), ("input", "target"), ("inputs", "targets"),
)  # fmt: skip
"""Column pairs of public datasets, the asked part first."""
_TEXTS = ("text", "content", "document", "body", "article", "raw_content", "code")
_CHOSEN = (
    ("chosen", "rejected"),
    ("preferred_output", "non_preferred_output"),
    ("chosen_response", "rejected_response"),
)
_MORE_CHATS = ("dialog", "dialogue", "turns", "history", "thread")
_SYSTEMS = ("system", "system_prompt")
_TOOLS = ("tools", "functions")
_REASONINGS = ("reasoning", "reasoning_content", "thinking", "complex_cot")


@dataclass(frozen=True)
class Reading:
    """One way to read the columns.

    Attributes:
        layout: What they mean.
        confidence: 0 to 1.
        why: What speaks for it, as a phrase.
    """

    layout: Layout
    confidence: float
    why: str

    @property
    def as_setting(self) -> str:
        """The recipe's lines that fix it."""
        columns = ", ".join(f'"{meaning}={name}"' for meaning, name in self.layout.columns.items())
        return f'data.shape = "{self.layout.shape}", data.columns = [{columns}]'


def columns_of(samples: Sequence[dict[str, Any]]) -> list[str]:
    """Every column of the rows, in order of appearance."""
    return list(dict.fromkeys(name for values in samples for name in values))


def readings(samples: Sequence[dict[str, Any]]) -> list[Reading]:
    """Every way to read some rows, the surest first.

    Args:
        samples: Rows, as column to value.
    """
    by_name = {name.strip().lower(): name for name in reversed(columns_of(samples))}
    found = [_with_optional(reading, by_name, samples) for reading in _all_readings(by_name, samples)]
    return sorted(found, key=lambda reading: -reading.confidence)


def recognize(
    samples: Sequence[dict[str, Any]], source: str, forced: str = "auto", columns: Sequence[str] = ()
) -> Layout:
    """What the columns of a file mean.

    Args:
        samples: Some of its rows, as column to value.
        source: What to call the file in messages.
        forced: The only shape to consider, or "auto".
        columns: The recipe's "meaning=column" pairs; they are taken as they are.

    Raises:
        UsageError: `columns` is not understood.
        DataError: The columns fit no shape, not the forced one, or several about equally well.
    """
    names = columns_of(samples)
    if columns:
        return _told(names, source, forced, columns, samples)
    found = readings(samples)
    if forced != "auto":
        fitting = [reading for reading in found if reading.layout.shape == forced]
        if fitting:
            return fitting[0].layout
        raise DataError(
            f"The columns of {source} ({_shown(names)}) do not fit the shape {forced}, which needs {SHAPES[forced]}.",
            'Rename the columns, set data.columns, or set data.shape = "auto".',
        )
    known = "; ".join(f"{shape}: {needs}" for shape, needs in SHAPES.items())
    if not found:
        raise DataError(
            f"The columns of {source} ({_shown(names)}) fit no known shape.",
            f'Say which is which, such as data.columns = ["prompt=...", "completion=..."]. The shapes: {known}.',
        )
    rivals = [reading for reading in found if found[0].confidence - reading.confidence < _APART]
    if len(rivals) > 1 or found[0].confidence < SURE:
        raise DataError(
            f"The columns of {source} ({_shown(names)}) can be read in {len(rivals)} "
            f"{'ways' if len(rivals) > 1 else 'way only by guessing'}: "
            f"{'; or '.join(reading.why for reading in rivals[:4])}.",
            f"Say which in the recipe: {'; or '.join(reading.as_setting for reading in rivals[:4])}.",
        )
    return found[0].layout


def _told(
    names: Sequence[str], source: str, forced: str, columns: Sequence[str], samples: Sequence[dict[str, Any]]
) -> Layout:
    pairs = {}
    known = sorted({*OPTIONAL_MEANINGS, *(meaning for group in MEANINGS.values() for meaning in group)})
    for pair in columns:
        meaning, _, name = (part.strip() for part in pair.partition("="))
        if meaning not in known or not name:
            raise UsageError(
                f"data.columns holds {pair!r}, which is no pair meaning=column.", f"Meanings are: {', '.join(known)}."
            )
        if name not in names:
            raise DataError(f"{source} has no column {name!r}; it has: {_shown(names)}.", "Correct data.columns.")
        pairs[meaning] = name
    fitting = [shape for shape, needs in MEANINGS.items() if all(meaning in pairs for meaning in needs)]
    if forced != "auto":
        fitting = [shape for shape in fitting if shape == forced]
    if not fitting:
        needs = "; ".join(f"{shape}: {', '.join(needed)}" for shape, needed in MEANINGS.items())
        raise UsageError(
            f"data.columns names {', '.join(pairs)}, which makes no shape"
            + (f" {forced}." if forced != "auto" else "."),
            f"The shapes need: {needs}.",
        )
    shape = fitting[0]
    if shape == "messages" and forced == "auto" and _role_key(pairs["conversation"], samples) == "from":
        shape = "sharegpt"
    return Layout(shape, pairs)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(shorten(name, 40) for name in names[:20]) or "none"


def _all_readings(by_name: dict[str, str], samples: Sequence[dict[str, Any]]) -> Iterator[Reading]:
    preferences = list(_preferences(by_name))
    yield from preferences
    for find in (_chats, _labeled, _pairs, _texts):
        for reading in find(by_name, samples):
            # Beside pairs of a chosen and a rejected reply, other columns say the same once more.
            yield replace(reading, confidence=0.9 * reading.confidence) if preferences else reading


def _preferences(by_name: dict[str, str]) -> Iterator[Reading]:
    for chosen, rejected in _CHOSEN:
        if chosen in by_name and rejected in by_name:
            columns = {"chosen": by_name[chosen], "rejected": by_name[rejected]}
            prompt = next((by_name[name] for name in _PROMPTS if name in by_name), None)
            yield Reading(
                Layout("preference", columns | ({"prompt": prompt} if prompt else {})),
                0.99,
                f"preference pairs in {columns['chosen']} and {columns['rejected']}",
            )


def _role_key(column: str, samples: Sequence[dict[str, Any]]) -> str:
    """The key that names the speaker in a column's turns; "pairs" for lists of two texts; empty for no turns."""
    chats = (turns_in(values.get(column)) for values in samples)
    first = next((chat[0] for chat in chats if chat), None)
    if isinstance(first, dict):
        return next((key for key in ROLE_KEYS if key in first), "")
    return "pairs" if isinstance(first, list) and len(first) == 2 and all(isinstance(x, str) for x in first) else ""


def _chats(by_name: dict[str, str], samples: Sequence[dict[str, Any]]) -> Iterator[Reading]:
    known = [*CONVERSATION_COLUMNS, *_MORE_CHATS]
    for name in [*known, *(other for other in by_name if other not in known)]:
        if name not in by_name or name in {part for pair in _CHOSEN for part in pair}:
            continue
        key = _role_key(by_name[name], samples)
        if not key or (name not in known and key == "pairs") or name in _PROMPTS or name in _COMPLETIONS:
            continue
        shape = "messages" if key in ("role", "pairs") else "sharegpt"
        confidence = 0.98 if name in CONVERSATION_COLUMNS else 0.9 if name in _MORE_CHATS else 0.8
        yield Reading(Layout(shape, {"conversation": by_name[name]}), confidence, f"chats in {name}")


def _labeled(by_name: dict[str, str], samples: Sequence[dict[str, Any]]) -> Iterator[Reading]:
    if not {"prompt", "completion", "label"} <= by_name.keys():
        return
    labels = [values.get(by_name["label"]) for values in samples]
    if labels and all(is_label(label) for label in labels if label is not None):
        columns = {name: by_name[name] for name in ("prompt", "completion", "label")}
        sure = all(isinstance(label, bool) for label in labels if label is not None)
        yield Reading(Layout("kto", columns), 0.98 if sure else 0.94, "replies labeled good or bad")


def _pairs(by_name: dict[str, str], samples: Sequence[dict[str, Any]]) -> Iterator[Reading]:
    output = next((name for name in ("output", "response") if name in by_name), None)
    if "instruction" in by_name and output:
        columns = {"instruction": by_name["instruction"], "output": by_name[output]}
        if "input" in by_name:
            columns["input"] = by_name["input"]
        if "history" in by_name and _role_key(by_name["history"], samples):
            columns["history"] = by_name["history"]
        yield Reading(Layout("alpaca", columns), 0.96, f"instruction and {output}")
        return
    asked, replied = [[name for name in names if name in by_name] for names in (_PROMPTS, _COMPLETIONS)]
    several = len(asked) > 1 or len(replied) > 1
    for prompt in asked:
        for completion in replied:
            # Two names for the same part: which is meant is the person's to say, unless one holds nothing.
            filled = all(_is_filled(by_name[name], samples) for name in (prompt, completion))
            if not several or filled:
                yield _pair(by_name, prompt, completion, 0.92)
    if not (asked and replied):
        for prompt, completion in _PAIRS:
            if prompt in by_name and completion in by_name:
                yield _pair(by_name, prompt, completion, 0.8)
        yield from _unknown_pair(by_name, samples)


def _pair(by_name: dict[str, str], prompt: str, completion: str, confidence: float) -> Reading:
    columns = {"prompt": by_name[prompt], "completion": by_name[completion]}
    why = f"{columns['prompt']} asked, {columns['completion']} replied"
    return Reading(Layout("prompt_completion", columns), confidence, why)


def _unknown_pair(by_name: dict[str, str], samples: Sequence[dict[str, Any]]) -> Iterator[Reading]:
    """Exactly two columns of sentences, under names that say nothing: a guess either way."""
    written = [name for name in by_name if _is_prose(by_name[name], samples)]
    if len(written) == 2 and not any({*pair} == {*written} for pair in _PAIRS):
        yield _pair(by_name, written[0], written[1], 0.4)
        yield _pair(by_name, written[1], written[0], 0.39)


def _texts(by_name: dict[str, str], samples: Sequence[dict[str, Any]]) -> Iterator[Reading]:
    for rank, name in enumerate(_TEXTS):
        if name in by_name and any(isinstance(values.get(by_name[name]), str) for values in samples):
            confidence = 0.85 if name == "text" else 0.75 - 0.001 * rank
            yield Reading(Layout("text", {"text": by_name[name]}), confidence, f"plain text in {by_name[name]}")
    if "text" in by_name and not any(isinstance(values.get(by_name["text"]), str) for values in samples):
        yield Reading(Layout("text", {"text": by_name["text"]}), SURE, "a column text")
    prose = [name for name in by_name if _is_prose(by_name[name], samples)]
    if len(prose) == 1 and prose[0] not in _TEXTS:
        yield Reading(Layout("text", {"text": by_name[prose[0]]}), 0.4, f"plain text in {by_name[prose[0]]}")


def _with_optional(reading: Reading, by_name: dict[str, str], samples: Sequence[dict[str, Any]]) -> Reading:
    shape = reading.layout.shape
    if shape == "text":
        return reading
    columns = dict(reading.layout.columns)
    chats = shape in ("messages", "sharegpt", "preference")
    for meaning, names in (
        ("system", _SYSTEMS),
        ("tools", _TOOLS),
        *((("reasoning", _REASONINGS),) if not chats else ()),
    ):
        name = next((by_name[name] for name in names if name in by_name), None)
        if name and name not in columns.values() and any(values.get(name) for values in samples):
            columns[meaning] = name
    return Reading(Layout(shape, columns), reading.confidence, reading.why)


def _is_filled(column: str, samples: Sequence[dict[str, Any]]) -> bool:
    return any(values.get(column) not in (None, "", []) for values in samples)


def _is_prose(column: str, samples: Sequence[dict[str, Any]]) -> bool:
    """Whether most of a column's values are texts of several words."""
    values = [row.get(column) for row in samples]
    worded = sum(isinstance(value, str) and " " in value.strip() for value in values)
    return worded * 2 > len(values)
