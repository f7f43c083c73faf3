"""A row as a conversation, and the many ways in which people write its turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from burnish_engine.data.content_parts import LEARNED_IN_PART, Parts, is_learned, parts_of
from burnish_engine.data.problems import RowError, shorten

ROLE_KEYS = ("role", "from", "speaker", "author")
"""Names of the part of a turn that says whose it is."""
_MOST_LEVELS = 100  # of a tool or its arguments; Python's own recursion ends some hundreds of levels later
_CONTENT_KEYS = ("content", "value", "text", "message", "utterance")
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking", "thoughts", "thought")
_ROLES = {
    "system": "system", "developer": "system", "sys": "system", "context": "system",
    "user": "user", "human": "user", "prompter": "user", "customer": "user", "client": "user", "usr": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant",
    "ai": "assistant", "gpt-4": "assistant", "gpt4": "assistant", "bard": "assistant", "bing": "assistant",
    "claude": "assistant", "agent": "assistant", "chatbot": "assistant", "answer": "assistant",
    "tool": "tool", "function": "tool", "observation": "tool", "ipython": "tool", "tool_response": "tool",
    "tool-response": "tool", "function_response": "tool", "function-response": "tool", "tool_result": "tool",
    "tool_results": "tool", "function_result": "tool",
    "function_call": "call", "function-call": "call", "tool_call": "call", "tool-call": "call", "tool_calls": "call",
}  # fmt: skip
"""What a role is called to what it is; "call" is an assistant's turn whose text is the call of a tool, as JSON."""


@dataclass(frozen=True)
class Message:
    """One turn.

    Attributes:
        role: system, user, assistant or tool.
        content: Its text.
        extras: What else chat templates know of a turn: tool_calls, reasoning_content, tool_call_id, name.
        learned: False where the row says that this reply is not to be learned (OpenAI's weight 0).
    """

    role: str
    content: str
    extras: dict[str, Any] = field(default_factory=dict)
    learned: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The turn as chat templates take it."""
        return {"role": self.role, "content": self.content, **self.extras}


@dataclass(frozen=True)
class Conversation:
    """One usable row.

    Attributes:
        messages: The turns; empty for plain text.
        text: The plain text of a row of the text or the segments shape, else None.
        row: Number in its file, from 1.
        file: Path of the file.
        tools: The tools that the assistant may call, as JSON schemas.
        spans: Of a row of the segments shape: the characters of the text that are learned, as (start, end), ascending.
    """

    messages: tuple[Message, ...]
    text: str | None
    row: int
    file: str
    tools: tuple[Any, ...] = ()
    spans: tuple[tuple[int, int], ...] | None = None

    def as_dicts(self) -> list[dict[str, Any]]:
        """The turns as chat templates take them."""
        return [message.as_dict() for message in self.messages]


def turns_in(value: Any) -> list[Any] | None:
    """The turns in a cell; CSV and some Parquet files hold them as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def chat_in(value: Any) -> list[Any] | None:
    """The turns in a cell that may hold a plain text as well: a list of objects with roles, or one such object."""
    turns = [value] if isinstance(value, dict) else turns_in(value)
    if not turns or not all(isinstance(turn, dict) for turn in turns):
        return None
    return turns if any(key in turns[0] for key in ROLE_KEYS) or speakers_in(turns[0]) else None


def speakers_in(turn: Any) -> list[str]:
    """The keys of a turn that has its speakers for keys, such as {"human": ..., "assistant": ...}; else none."""
    if not isinstance(turn, dict) or any(key in turn for key in ROLE_KEYS):
        return []
    named = [key for key, value in turn.items() if isinstance(value, str)]
    return named if all(key.strip().lower() in _ROLES for key in named) else []


def is_reply(turn: Any) -> bool:
    """Whether a turn is the assistant's, or holds one of its turns."""
    if not isinstance(turn, dict):
        return isinstance(turn, list)
    names = [turn[key] for key in ROLE_KEYS if isinstance(turn.get(key), str)][:1] or speakers_in(turn)
    return any(_ROLES.get(name.strip().lower()) in ("assistant", "call") for name in names)


def messages_of(turns: Sequence[Any]) -> list[Message]:
    """The turns of a chat, in whichever dialect.

    Raises:
        RowError: One of them cannot be understood.
    """
    if not turns:
        raise RowError("empty conversation")
    if all(isinstance(turn, list) and len(turn) == 2 for turn in turns):  # [[question, answer], ...]
        roles = ("user", "assistant")
        return [
            Message(role, text_of(part, "message")) for turn in turns for role, part in zip(roles, turn, strict=True)
        ]
    messages = list[Message]()
    for turn in turns:
        speakers = speakers_in(turn)
        for one in [{"role": name, "content": turn[name]} for name in speakers] or [turn]:
            role, found = _messages_in(one)
            if role == "call" and messages and messages[-1].role == "assistant":
                messages[-1] = _with_calls(messages[-1], found[0])  # a call belongs to the reply before it
            else:
                messages.extend(found)
    return messages


def _with_calls(reply: Message, call: Message) -> Message:
    """A reply with the calls of a turn that follows it.

    Raises:
        RowError: One of the two is learned and the other is not.
    """
    if reply.learned != call.learned:
        raise RowError(LEARNED_IN_PART)
    calls = [*reply.extras.get("tool_calls", ()), *call.extras["tool_calls"]]
    return replace(reply, extras={**reply.extras, "tool_calls": calls})


def _messages_in(turn: Any) -> tuple[str, list[Message]]:
    """A turn's role and its messages: more than one where parts of it are answers of tools.

    Raises:
        RowError: It is not an object, has no known role, or no text and no call.
    """
    if not isinstance(turn, dict):
        raise RowError("a message is not an object")
    role = next((turn[key] for key in ROLE_KEYS if turn.get(key) is not None), None)
    if not isinstance(role, str):
        raise RowError("a message has no role")
    known = _ROLES.get(role.strip().lower())
    if known is None:
        raise RowError(f'unknown role "{shorten(role, 30)}"')
    content = next((turn[key] for key in _CONTENT_KEYS if turn.get(key) is not None), None)
    if known == "tool" and (isinstance(content, dict) or _is_json_list(content)):
        content = json.dumps(content, ensure_ascii=False)
    parts = parts_of(content) if isinstance(content, list) else None
    learned = is_learned(turn, known, parts)
    if known == "call":
        calls = parts.calls or parts.text if parts else content
        return known, [Message("assistant", "", {"tool_calls": calls_of(calls)}, learned)]
    results = [_answer(name, answer) for name, answer in parts.results] if parts else []
    if results and not (parts and parts.text):
        return known, results
    extras = _extras(turn, known, parts)
    if content is None and "tool_calls" in extras:
        content = ""
    text = sound(parts.text) if parts else text_of(content, "message")
    return known, [*results, Message(known, text, extras, learned)]


def _extras(turn: dict[str, Any], role: str, parts: Parts | None) -> dict[str, Any]:
    """What a turn has beside its text."""
    extras: dict[str, Any] = {}
    if role == "assistant":
        calls = turn.get("tool_calls") or ([turn["function_call"]] if turn.get("function_call") else None)
        calls = calls or (parts.calls if parts else None)
        if calls:
            extras["tool_calls"] = calls_of(calls)
        thoughts = next((turn[key] for key in _REASONING_KEYS if turn.get(key)), None)
        if thoughts is None and parts and parts.thoughts:
            thoughts = parts.thoughts
        if isinstance(thoughts, list) and parts_of(thoughts).learned_in_part:
            raise RowError(LEARNED_IN_PART)
        if thoughts is not None:
            extras["reasoning_content"] = text_of(thoughts, "reasoning")
    for key in ("name", "tool_call_id"):
        if isinstance(turn.get(key), str) and role == "tool":
            extras[key] = sound(turn[key])
    return extras


def _answer(call: str, content: Any) -> Message:
    """What a tool answered, as Anthropic writes it: within a turn of the user."""
    text = text_of(content, "tool result") if content is not None else ""
    return Message("tool", text, {"tool_call_id": sound(call)} if call else {})


def _is_json_list(content: Any) -> bool:
    """Whether a tool's answer is a list of values, and not one of parts."""
    return isinstance(content, list) and not all(isinstance(part, dict) and "type" in part for part in content)


def calls_of(value: Any) -> list[dict[str, Any]]:
    """Calls of tools, as OpenAI writes them with the arguments as an object, which is how templates want them.

    Raises:
        RowError: They are no calls.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RowError("a tool call is not JSON") from None
    calls = value if isinstance(value, list) else [value]
    return [_call(call) for call in calls]


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    if isinstance(function, str) and isinstance(call, dict):
        function = {"name": function, "arguments": call.get("arguments", call.get("parameters"))}
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RowError("a tool call has no name")
    arguments = function.get("arguments", function.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            raise RowError("a tool call's arguments are not JSON") from None
    if not isinstance(arguments, (dict, type(None))):
        raise RowError("a tool call's arguments are not an object")
    made: dict[str, Any] = {
        "type": "function",
        "function": {"name": sound(function["name"]), "arguments": _sound_values(arguments or {})},
    }
    if isinstance(call, dict) and isinstance(call.get("id"), str):
        made["id"] = sound(call["id"])
    return made


def tools_in(value: Any) -> tuple[Any, ...]:
    """The tools in a cell: a list of JSON schemas, or that as JSON text.

    Raises:
        RowError: They are neither.
    """
    if isinstance(value, str):
        if not value.strip():
            return ()
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RowError("the tools are not JSON") from None
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise RowError("the tools are not a list of objects")
    return tuple(_sound_values(_tool(tool)) for tool in value)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as OpenAI describes it; Axolotl's files hold the parameters as JSON text."""
    whole = tool if "function" in tool else {"type": "function", "function": tool}
    function = whole["function"]
    if not isinstance(function, dict) or not isinstance(function.get("parameters"), str):
        return whole
    try:
        parameters = json.loads(function["parameters"])
    except (ValueError, RecursionError):
        raise RowError("a tool's parameters are not JSON") from None
    return {**whole, "function": {**function, "parameters": parameters}}


def text_of(value: Any, name: str) -> str:
    """A text, or OpenAI's list of text parts joined.

    Raises:
        RowError: It is missing, not text, or not valid Unicode.
    """
    if value is None:
        raise RowError(f"{name} without content")
    if isinstance(value, list):
        value = parts_of(value).text
    if not isinstance(value, str):
        raise RowError(f"{name} content is not text")
    return sound(value)


def sound(text: str) -> str:
    """The text, if it is whole Unicode.

    Raises:
        RowError: It holds half a surrogate pair, which JSON can spell and which is no character.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError("broken Unicode (half a surrogate pair)") from None
    return text


def _sound_values(value: Any, levels: int = _MOST_LEVELS) -> Any:
    if isinstance(value, str):
        return sound(value)
    if not levels and isinstance(value, dict | list):
        raise RowError("a tool or its call is nested too deeply")
    if isinstance(value, dict):
        return {sound(str(key)): _sound_values(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_sound_values(item, levels - 1) for item in value]
    return value
