"""Lists the ways to read the columns of a file, each with a confidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from burnish_engine.data.files.formats import CONVERSATION_COLUMNS
from burnish_engine.data.rows.conversation import ROLE_KEYS, is_reply, speakers_in, turns_in
from burnish_engine.data.rows.labels import is_label, is_sure_label
from burnish_engine.data.rows.shapes import ColumnLayout

SURE = 0.7
"""Least confidence at which a reading is used without asking."""

_PROMPTS = ("prompt", "question", "query", "input")
_COMPLETIONS = ("completion", "response", "answer", "output")
_WEAK_COMPLETIONS = ("solution", "generation", "target", "targets", "answer_key", "reply", "result")
"""Names of reply columns that count only where no usual name is there."""
_REVISIONS = ("corrected", "revision", "revised", "critique", "critiques")
"""Columns that correct the reply of another column; beside one, the recipe must say which of the two is supervised."""
_PAIRS = (
    ("problem", "solution"), ("source", "target"), ("src", "tgt"), ("human", "assistant"), ("user", "assistant"),
    ("human", "bot"), ("user", "bot"), ("document", "summary"), ("article", "highlights"), ("article", "summary"),
    ("dialogue", "summary"), ("post", "reply"), ("request", "reply"), ("title", "abstract"), ("q", "a"),
    ("context", "response"), ("problem", "answer"), ("task", "solution"), ("nl", "code"), ("input", "target"),
    ("inputs", "targets"), ("message_1", "message_2"), ("text", "summary"), ("text", "code"), ("text", "response"),
    ("text", "answer"), ("text", "output"), ("text", "completion"), ("text", "translation"),
)  # fmt: skip
"""Column pairs of public datasets, the question first."""
_TEXTS = ("text", "content", "document", "body", "article", "raw_content", "code")
_ABOUT = {
    *("title", "url", "source", "author", "name", "category", "topic", "date", "license", "path", "subject", "tags"),
    *("description", "language", "lang", "id", "file", "filename", "domain", "timestamp"),
}
"""Columns that describe a text and are not training text themselves."""
_CHOSEN = (
    ("chosen", "rejected"),
    ("preferred_output", "non_preferred_output"),
    ("chosen_response", "rejected_response"),
    ("chosen_messages", "rejected_messages"),
    ("accepted", "rejected"),
    ("preferred", "dispreferred"),
    ("response_j", "response_k"),
)
_REJECTED = ("rejected_response", "rejected_messages", "rejected")  # beside a column that holds the chosen reply
_LABELS = ("label", "kto_tag")
_MORE_CHATS = ("dialog", "dialogue", "turns", "history", "thread", "texts")
_NO_CHATS = {*(name for pair in _CHOSEN for name in pair), "positive_messages", "negative_messages", "segments"}
_SYSTEMS = ("system", "system_prompt")
_TOOLS = ("tools", "functions")
_REASONINGS = ("reasoning", "reasoning_content", "thinking", "complex_cot")
_LONGEST_SWITCH = 8  # letters
_CONTEXTS = ("context", "article", "passage", "document")

ByName = dict[str, str]
"""A column's name in lower case to its name in the file."""


@dataclass(frozen=True)
class CandidateReading:
    """One way to read the columns of a file.

    Attributes:
        layout: meaning of the columns in this reading.
        confidence: confidence in the reading, 0 to 1.
        why: reason for the reading, as a phrase.
    """

    layout: ColumnLayout
    confidence: float
    why: str

    @property
    def as_setting(self) -> str:
        """The recipe settings that choose this reading."""
        columns = ", ".join(f'"{meaning}={name}"' for meaning, name in self.layout.columns.items())
        return f'data.shape = "{self.layout.shape}", data.columns = [{columns}]'


def columns_of(samples: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of all columns of the rows, in order of appearance."""
    return list(dict.fromkeys(name for values in samples for name in values))


def by_name(samples: Sequence[dict[str, Any]]) -> ByName:
    """Map the columns' lower-case names to their names in the file; of equal names the first counts."""
    return {name.strip().lower(): name for name in reversed(columns_of(samples))}


def find_readings(samples: Sequence[dict[str, Any]]) -> list[CandidateReading]:
    """List all ways to read some rows, the surest first.

    Args:
        samples: rows as column to value.
    """
    names = by_name(samples)
    found = [_with_optional(reading, names, samples) for reading in _all_readings(names, samples)]
    return sorted(found, key=lambda reading: -reading.confidence)


def _all_readings(names: ByName, samples: Sequence[dict[str, Any]]) -> Iterator[CandidateReading]:
    preferences = list(_preferences(names, samples))
    yield from preferences
    labels, sure = _labels(names, samples)
    for find in (_segments, _chats, _pairs, _texts):
        for reading in find(names, samples):
            labeled = bool(labels) and reading.confidence >= SURE and reading.layout.shape != "text"
            if labeled:
                columns = {**reading.layout.columns, "label": labels}
                why = f"replies labeled good or bad in {labels} ({reading.why})"
                yield CandidateReading(ColumnLayout("kto", columns), reading.confidence, why)
            # Beside pairs of a chosen and a rejected reply, other columns say the same once more.
            less = 0.9 if preferences or (labeled and sure) else 0.97 if labeled else 1.0
            yield replace(reading, confidence=less * reading.confidence)


def _labels(names: ByName, samples: Sequence[dict[str, Any]]) -> tuple[str, bool]:
    """Find the column that labels replies as good or bad (empty: none), and whether it surely does.

    True and false are surely such labels, and some other values may then stand among them; 0 and 1 may be classes.
    """
    for name in _LABELS:
        values = [values.get(names[name]) for values in samples] if name in names else []
        given = [value for value in values if value not in (None, "")]
        sure = bool(given) and (name == "kto_tag" or 2 * sum(map(is_sure_label, given)) >= len(given))
        if sure or (given and all(map(is_label, given))):
            return names[name], sure
    return "", False


def _preferences(names: ByName, samples: Sequence[dict[str, Any]]) -> Iterator[CandidateReading]:
    chat = next((found.layout.columns for found in _chats(names, samples) if found.confidence > SURE), {})
    for chosen, rejected in _CHOSEN:
        if chosen in names and rejected in names:
            columns = {"chosen": names[chosen], "rejected": names[rejected]}
            why = f"preference pairs in {columns['chosen']} and {columns['rejected']}"
            yield CandidateReading(ColumnLayout("preference", columns | _question_columns(names, chat)), 0.99, why)
            return
    rejected = next((names[name] for name in _REJECTED if name in names and _holds_replies(names[name], samples)), "")
    if rejected and not chat:
        chat = next(
            (_as_chosen(found.layout.columns) for found in _pairs(names, samples) if found.confidence > SURE), {}
        )
    if chat and rejected:
        chosen = chat.get("chosen") or chat["conversation"]
        why = f"preference pairs: {chosen} with the chosen reply, {rejected} with the rejected one"
        yield CandidateReading(ColumnLayout("preference", {**chat, "rejected": rejected}), 0.99, why)


def _as_chosen(columns: dict[str, str]) -> dict[str, str]:
    """Return the columns of a question and its reply as those of a preference pair."""
    return {"chosen" if meaning in ("output", "completion") else meaning: name for meaning, name in columns.items()}


def _holds_replies(column: str, samples: Sequence[dict[str, Any]]) -> bool:
    values = [values.get(column) for values in samples]
    return any(value not in ("", [], {}) and isinstance(value, (str, list, dict)) for value in values)


def _question_columns(names: ByName, chat: dict[str, str]) -> dict[str, str]:
    """Find the columns that hold the question of a preference pair."""
    if "instruction" in names:
        further = {"input": names["input"]} if "input" in names else {}
        return {"instruction": names["instruction"], **further}
    prompt = next((names[name] for name in _PROMPTS if name in names), None)
    return {"prompt": prompt} if prompt else dict(chat)


def role_key(column: str, samples: Sequence[dict[str, Any]]) -> str:
    """Find the key that names the speaker in a column's turns.

    Returns:
        The key; "pairs" for lists of two texts, "speakers" for objects whose keys are the speakers; empty for no turns.
    """
    chats = (turns_in(values.get(column)) for values in samples)
    first = next((chat[0] for chat in chats if chat), None)
    if isinstance(first, dict):
        return next((key for key in ROLE_KEYS if key in first), "speakers" if speakers_in(first) else "")
    pair = isinstance(first, list) and len(first) == 2 and all(isinstance(x, (str, int, float)) for x in first)
    return "pairs" if pair else ""


def _chats(names: ByName, samples: Sequence[dict[str, Any]]) -> Iterator[CandidateReading]:
    known = [*CONVERSATION_COLUMNS, *_MORE_CHATS]
    asked = any(name in names for name in (*_PROMPTS, "instruction"))
    for name in [*known, *(other for other in names if other not in known)]:
        if name not in names or name in _NO_CHATS or (name == "history" and asked):
            continue
        key = role_key(names[name], samples)
        halves = name in (*_PROMPTS, "instruction") or (name in _COMPLETIONS and asked)
        if not key or (name not in known and key in ("pairs", "speakers")) or halves:
            continue
        if _without_questions(names[name], samples):
            if name in _COMPLETIONS:
                continue
            yield CandidateReading(
                ColumnLayout("text", {"text": names[name]}), 0.95, f"replies without questions in {names[name]}"
            )
            continue
        shape = "messages" if key in ("role", "pairs") else "sharegpt"
        confidence = 0.98 if name in CONVERSATION_COLUMNS else 0.9 if name in _MORE_CHATS else 0.8
        yield CandidateReading(
            ColumnLayout(shape, {"conversation": names[name]}), confidence, f"chats in {names[name]}"
        )


def _without_questions(column: str, samples: Sequence[dict[str, Any]]) -> bool:
    """Whether every chat consists of replies alone, as ms-swift writes texts for pre-training."""
    chats = [chat for values in samples if (chat := turns_in(values.get(column)))]
    return bool(chats) and all(
        isinstance(turn, dict) and is_reply(turn) and not speakers_in(turn) for chat in chats for turn in chat
    )


def _segments(names: ByName, samples: Sequence[dict[str, Any]]) -> Iterator[CandidateReading]:
    column = names.get("segments", "")
    first = next((found[0] for values in samples if (found := turns_in(values.get(column)))), None)
    if isinstance(first, dict) and {"text", "label"} <= first.keys():
        yield CandidateReading(
            ColumnLayout("segments", {"segments": column}), 0.98, f"text in {column}, learned where it says so"
        )


def _pairs(names: ByName, samples: Sequence[dict[str, Any]]) -> Iterator[CandidateReading]:
    replied = [name for name in _COMPLETIONS if name in names]
    if "instruction" in names:
        usual = [name for name in ("output", "response", *_COMPLETIONS) if name in names][:1]
        columns = {"instruction": names["instruction"]}
        further = next((name for name in ("input", *_CONTEXTS) if name in names), None)
        if further:
            columns["input"] = names[further]
        replies = usual or [name for name in _WEAK_COMPLETIONS if name in names][:1]
        for name in [*replies, *(_revisions(names, samples) if replies else ())]:
            layout = ColumnLayout("alpaca", {**columns, "output": names[name]})
            yield CandidateReading(layout, 0.96 if usual else 0.8, f"instruction and {names[name]}")
        if replies:
            return
    asked = [name for name in _PROMPTS if name in names]
    several = len(asked) > 1 or len(replied) > 1
    for prompt in asked:
        for completion in [*replied, *(_revisions(names, samples) if replied else ())]:
            # With two names for the same role, the recipe must choose, unless one of the columns is empty.
            filled = all(_is_filled(names[name], samples) for name in (prompt, completion))
            if not several or filled:
                yield _pair(names, prompt, completion, 0.92)
    if not (asked and replied):
        yield from _weak_pairs(names, asked, samples)


def _weak_pairs(names: ByName, asked: Sequence[str], samples: Sequence[dict[str, Any]]) -> Iterator[CandidateReading]:
    weak = [(prompt, name) for prompt in (*_PROMPTS, "problem") for name in _WEAK_COMPLETIONS]
    for prompt, completion in dict.fromkeys([*_PAIRS, *weak]):
        if prompt in names and completion in names:
            yield _pair(names, prompt, completion, 0.8)
    # These may hold the reply or a text of its own, so that the recipe must choose.
    for name, confidence in (("text", 0.84), ("content", 0.6)):
        if asked and isinstance(_first(names.get(name, ""), samples), str):
            yield _pair(names, asked[0], name, confidence)
    yield from _unknown_pair(names, samples)


def _revisions(names: ByName, samples: Sequence[dict[str, Any]]) -> list[str]:
    return [name for name in _REVISIONS if name in names and _is_filled(names[name], samples)]


def _pair(names: ByName, prompt: str, completion: str, confidence: float) -> CandidateReading:
    columns = {"prompt": names[prompt], "completion": names[completion]}
    why = f"{columns['prompt']} asked, {columns['completion']} replied"
    return CandidateReading(ColumnLayout("prompt_completion", columns), confidence, why)


def _unknown_pair(names: ByName, samples: Sequence[dict[str, Any]]) -> Iterator[CandidateReading]:
    """Guess both ways to read exactly two columns of sentences whose names say nothing."""
    written = [name for name in names if _is_prose(names[name], samples)]
    if len(written) == 2 and not any({*pair} == {*written} for pair in _PAIRS):
        yield _pair(names, written[0], written[1], 0.4)
        yield _pair(names, written[1], written[0], 0.39)


def _texts(names: ByName, samples: Sequence[dict[str, Any]]) -> Iterator[CandidateReading]:
    prose = [name for name in names if _is_prose(names[name], samples)]
    for rank, name in enumerate(_TEXTS):
        if name in names and isinstance(_first(names[name], samples), str):
            # Beside other columns of sentences, a column with a weak name may belong to something else.
            beside = any(other != name and other not in _ABOUT for other in prose)
            confidence = 0.85 if name == "text" else (0.6 if beside else 0.75) - 0.001 * rank
            yield CandidateReading(
                ColumnLayout("text", {"text": names[name]}), confidence, f"plain text in {names[name]}"
            )
    if "text" in names and not isinstance(_first(names["text"], samples), str):
        yield CandidateReading(ColumnLayout("text", {"text": names["text"]}), SURE, "a column text")
    if len(prose) == 1 and prose[0] not in _TEXTS:
        yield CandidateReading(ColumnLayout("text", {"text": names[prose[0]]}), 0.4, f"plain text in {names[prose[0]]}")


def _with_optional(reading: CandidateReading, names: ByName, samples: Sequence[dict[str, Any]]) -> CandidateReading:
    """Add the optional columns to a reading: system message, tools, reasoning, earlier turns, context."""
    layout = reading.layout
    if layout.is_text:
        return reading
    wanted: list[tuple[str, tuple[str, ...]]] = [("system", _SYSTEMS), ("tools", _TOOLS)]
    if "conversation" not in layout.columns:
        if layout.shape != "preference":
            wanted.append(("reasoning", _REASONINGS))
        if any(turns_in(values.get(names.get("history", ""))) for values in samples):
            wanted.append(("history", ("history",)))
        if "prompt" in layout.columns:
            wanted.append(("context", _CONTEXTS))
    columns = dict(layout.columns)
    for meaning, known in wanted:
        name = next((names[name] for name in known if name in names and names[name] not in columns.values()), None)
        if name and _OPTIONAL_CHECKS.get(meaning, _is_filled)(name, samples):
            columns[meaning] = name
    return replace(reading, layout=replace(layout, columns=columns))


def unread_columns(layout: ColumnLayout, samples: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Find the columns of usual names that a layout from the recipe leaves out.

    Returns:
        Meaning to column name.
    """
    names = by_name(samples)
    found = dict(_with_optional(CandidateReading(layout, 1.0, ""), names, samples).layout.columns)
    labels, sure = _labels(names, samples)
    if sure and not layout.is_text and layout.shape != "preference":
        found.setdefault("label", labels)
    return {meaning: name for meaning, name in found.items() if name not in layout.columns.values()}


def _first(column: str, samples: Sequence[dict[str, Any]]) -> Any:
    """Return a column's first value that is text, else its first value that is not None."""
    given = [values[column] for values in samples if values.get(column) is not None]
    return next((value for value in given if isinstance(value, str)), given[0] if given else None)


def _is_filled(column: str, samples: Sequence[dict[str, Any]]) -> bool:
    return any(values.get(column) not in (None, "", []) for values in samples)


def _is_prose(column: str, samples: Sequence[dict[str, Any]]) -> bool:
    """Whether most of a column's values are texts of several words."""
    values = [row.get(column) for row in samples]
    worded = sum(isinstance(value, str) and " " in value.strip() for value in values)
    return worded * 2 > len(values)


def _holds_thoughts(column: str, samples: Sequence[dict[str, Any]]) -> bool:
    """Whether some value is longer than a switch such as "on" or "medium", which says how much was thought."""
    return any(isinstance(row.get(column), str) and len(row[column].strip()) > _LONGEST_SWITCH for row in samples)


_OPTIONAL_CHECKS = {"context": _is_prose, "reasoning": _holds_thoughts}
"""Meaning of an optional column to the check whether a column of a usual name has it."""
