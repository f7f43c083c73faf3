"""Splits a turn's content into text, reasoning, tool calls, tool results and marks of supervision; refuses media."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from burnish_engine.data.files.problems import RowError, refuse_unreadable
from burnish_engine.data.rows.literals import literal_text
from burnish_engine.data.rows.media import NEEDS_MEDIA

PARTLY_SUPERVISED = "a reply of which only a part is to be learned"
NOT_A_REPLY = "a turn that is not the assistant's is to be learned"

MEDIA_PARTS = {
    *("image", "image_url", "input_image", "image_path", "audio", "audio_url", "input_audio", "audio_path"),
    *("video", "video_url", "input_video", "video_path", "file", "input_file", "document"),
}
_TEXT_PARTS = {"text", "input_text", "output_text"}
_THOUGHT_PARTS = {"reasoning", "thinking"}
_CALL_PARTS = {"tool_use", "tool_call", "tool_calls", "function_call"}
_PART_TEXTS = ("text", "value", "content", "reasoning", "thinking")
_MARK_KEYS = ("weight", "train", "training", "loss", "loss_scale", "loss_weight")
"""Keys that mark a turn or part as supervised or not: OpenAI, Axolotl (two), ms-swift (two), LLaMA-Factory."""
_MARK_KEYS_OF_ANY_ROLE = ("train", "training", "loss_weight")
"""Keys that count for every turn; the others count for replies alone."""


@dataclass
class ContentParts:
    """A turn's content by kind.

    Attributes:
        text: text of the turn.
        thoughts: reasoning before the reply.
        calls: tool calls, in any dialect.
        results: tool results as (id of the call or an empty text, content).
        marks: values of the parts' marks of supervision.
        unmarked: whether some part has no mark.
    """

    text: str = ""
    thoughts: str = ""
    calls: list[Any] = field(default_factory=list)
    results: list[tuple[str, Any]] = field(default_factory=list)
    marks: set[bool] = field(default_factory=set)
    unmarked: bool = False

    @property
    def partly_supervised(self) -> bool:
        """Whether some parts of a reply are supervised and others are not."""
        return len(self.marks) > 1 or (self.unmarked and self.marks == {False})


def split_content(content: list[Any]) -> ContentParts:
    """Split a content that is a list of parts by kind.

    Raises:
        RowError: A part is media or of an unknown kind.
    """
    found = ContentParts()
    for part in content:
        refuse_unreadable(part)
        kind = part.get("type") or "text" if isinstance(part, dict) else "text"
        text = _part_text(part)
        if kind in MEDIA_PARTS:
            raise RowError(NEEDS_MEDIA)
        if kind in _CALL_PARTS:
            found.calls.extend(_calls(part))
        elif kind == "tool_result":
            found.results.append((str(part.get("tool_use_id") or ""), part.get("content")))
        elif text is None or kind not in _TEXT_PARTS | _THOUGHT_PARTS:
            raise RowError("message content is not text")
        elif kind in _THOUGHT_PARTS:
            found.thoughts += text
        else:
            found.text = found.text + text if found.text else text
        mark = supervision_mark(part) if isinstance(part, dict) else None
        found.unmarked = found.unmarked or mark is None
        found.marks.update([] if mark is None else [mark])
    return found


def supervision_mark(holder: dict[str, Any]) -> bool | None:
    """Whether a turn or part is marked as supervised; None where it has no mark.

    Raises:
        RowError: The mark is a weight other than 0 and 1.
    """
    given = [holder[key] for key in _MARK_KEYS if holder.get(key) is not None]
    if not all(isinstance(mark, (int, float)) and mark in (0, 1) for mark in given):  # True and False too
        raise RowError("a message's weight is neither 0 nor 1")
    return all(given) if given else None


def is_supervised(turn: dict[str, Any], role: str, parts: ContentParts | None) -> bool:
    """Whether a turn is supervised; a turn that is no reply returns True.

    Args:
        turn: turn as the row has it.
        role: system, user, assistant, tool or call.
        parts: content of the turn, where that is a list of parts.

    Raises:
        RowError: Only a part of the turn is supervised, the turn is no reply but marked, or a mark is a fraction.
    """
    own = supervision_mark(turn)
    marks = parts.marks if parts else set[bool]()
    if role not in ("assistant", "call"):
        if True in marks or any(turn.get(key) for key in _MARK_KEYS_OF_ANY_ROLE):
            raise RowError(NOT_A_REPLY)
        return True
    if parts and parts.partly_supervised:
        raise RowError(PARTLY_SUPERVISED)
    if turn.get("train_detail"):
        return _all_learned(turn["train_detail"], parts.text if parts else _part_text(turn))
    return next(iter(marks)) if marks else own is not False


def _all_learned(ranges: Any, text: str | None) -> bool:
    """Whether Axolotl's ranges of a reply's characters, ends included, train on all of it; no range: not learned."""
    try:
        learned = sorted((one["begin_offset"], one["end_offset"]) for one in ranges if one["train"])
        end = 0
        for first, last in learned:
            end = max(end, last + 1) if first <= end else end
    except (KeyError, TypeError):
        raise RowError(PARTLY_SUPERVISED) from None
    if learned and (end < len(text or "") or len(learned) < len(ranges)):
        raise RowError(PARTLY_SUPERVISED)
    return bool(learned)


def _part_text(part: Any) -> str | None:
    if isinstance(part, dict):
        part = next((part[key] for key in _PART_TEXTS if part.get(key) is not None), None)
    part = literal_text(part)
    return part if isinstance(part, str) else None


def _calls(part: dict[str, Any]) -> list[Any]:
    if "input" in part and "name" in part:  # Anthropic
        return [{"id": part.get("id"), "name": part["name"], "arguments": part["input"]}]
    value = next((part[key] for key in ("value", "content", "text", "function") if part.get(key) is not None), part)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RowError("a tool call is not JSON") from None
    return value if isinstance(value, list) else [value]
