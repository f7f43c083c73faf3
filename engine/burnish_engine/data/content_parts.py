"""What a turn holds beside plain text: parts of text, thoughts, calls of tools, media, and marks of what is learned."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from burnish_engine.data.problems import RowError

NEEDS_MEDIA = "needs images, audio or video, and only text is trained on"
LEARNED_IN_PART = "a reply of which only a part is to be learned"
NOT_A_REPLY = "a turn that is not the assistant's is to be learned"

MEDIA_PARTS = {
    *("image", "image_url", "input_image", "image_path", "audio", "audio_url", "input_audio", "audio_path"),
    *("video", "video_url", "input_video", "video_path", "file", "input_file", "document"),
}
_TEXT_PARTS = {"text", "input_text", "output_text"}
_THOUGHT_PARTS = {"reasoning", "thinking"}
_CALL_PARTS = {"tool_use", "tool_call", "tool_calls", "function_call"}
_PART_TEXTS = ("text", "value", "content", "reasoning", "thinking")
_WEIGHTS = ("weight", "train", "loss", "loss_weight", "loss_scale")
"""Keys of a turn or a part that say whether it is learned: OpenAI, Axolotl, ms-swift (two), LLaMA-Factory."""
_ON_QUESTIONS = ("train", "loss_weight")  # the keys that count for turns of any role; the others for replies alone


@dataclass
class Parts:
    """A turn's content, sorted.

    Attributes:
        text: The words.
        thoughts: Thoughts before the reply.
        calls: Calls of tools, in whichever dialect.
        results: What tools answered, as (id of the call or an empty text, content).
        weights: Whether the parts are learned, of those that say so.
        unmarked: Whether some part does not say so.
    """

    text: str = ""
    thoughts: str = ""
    calls: list[Any] = field(default_factory=list)
    results: list[tuple[str, Any]] = field(default_factory=list)
    weights: set[bool] = field(default_factory=set)
    unmarked: bool = False

    @property
    def learned_in_part(self) -> bool:
        """Whether some parts of a reply are learned and others are not."""
        return len(self.weights) > 1 or (self.unmarked and self.weights == {False})


def parts_of(content: list[Any]) -> Parts:
    """The parts of a content that is a list.

    Raises:
        RowError: A part is media, or of a kind that is not known.
    """
    found = Parts()
    for part in content:
        kind = part.get("type") or "text" if isinstance(part, dict) else "text"
        text = _text(part)
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
            found.text += text
        weight = weight_of(part) if isinstance(part, dict) else None
        found.unmarked = found.unmarked or weight is None
        found.weights.update([] if weight is None else [weight])
    return found


def weight_of(holder: dict[str, Any]) -> bool | None:
    """Whether a turn or a part says that it is learned; None where it says nothing.

    Raises:
        RowError: It is to count more or less than the others.
    """
    given = [holder[key] for key in _WEIGHTS if holder.get(key) is not None]
    if not all(isinstance(weight, (int, float)) and weight in (0, 1) for weight in given):  # True and False too
        raise RowError("a message's weight is neither 0 nor 1")
    return all(given) if given else None


def is_learned(turn: dict[str, Any], role: str, parts: Parts | None) -> bool:
    """Whether a turn is learned, if it is a reply.

    Args:
        turn: The turn as the row has it.
        role: system, user, assistant, tool or call.
        parts: Its content, where that is a list of parts.

    Raises:
        RowError: Only a part of it is learned, or it is to be learned though it is no reply, or its weight is a share.
    """
    own = weight_of(turn)
    marks = parts.weights if parts else set[bool]()
    if role not in ("assistant", "call"):
        if True in marks or any(turn.get(key) for key in _ON_QUESTIONS):
            raise RowError(NOT_A_REPLY)
        return True
    if (parts and parts.learned_in_part) or turn.get("train_detail"):
        raise RowError(LEARNED_IN_PART)
    return next(iter(marks)) if marks else own is not False


def _text(part: Any) -> str | None:
    if isinstance(part, dict):
        part = next((part[key] for key in _PART_TEXTS if part.get(key) is not None), None)
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
