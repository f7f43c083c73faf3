"""Parses the turns of a row, in the many dialects of public datasets, into a conversation."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from burnish_engine.contract.plain_text import is_unicode
from burnish_engine.data.files.problems import RowError, refuse_unreadable, shorten
from burnish_engine.data.rows.content_parts import PARTLY_SUPERVISED, ContentParts, is_supervised, split_content
from burnish_engine.data.rows.literals import literal_text
from burnish_engine.data.rows.media import NEEDS_MEDIA, needs_media

ROLE_KEYS = ("role", "from", "speaker", "author", "sender")
"""Keys of a turn that name its speaker."""
_MOST_LEVELS = 100  # nesting of a tool or its arguments; Python's recursion limit lies some hundreds of levels higher
_CONTENT_KEYS = ("content", "value", "text", "message", "utterance", "parts")
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking", "thoughts", "thought")
_ROLES = {
    "system": "system", "developer": "system", "sys": "system", "context": "system",
    "user": "user", "human": "user", "prompter": "user", "customer": "user", "client": "user", "usr": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant",
    "ai": "assistant", "gpt-4": "assistant", "gpt4": "assistant", "bard": "assistant", "bing": "assistant",
    "claude": "assistant", "agent": "assistant", "chatbot": "assistant",
    "input": "user", "question": "user", "prompt": "user", "query": "user", "instruction": "user",
    "output": "assistant", "answer": "assistant", "response": "assistant",
    "tool": "tool", "function": "tool", "observation": "tool", "ipython": "tool", "tool_response": "tool",
    "tool-response": "tool", "function_response": "tool", "function-response": "tool", "tool_result": "tool",
    "tool_results": "tool", "function_result": "tool",
    "function_call": "call", "function-call": "call", "tool_call": "call", "tool-call": "call", "tool_calls": "call",
}  # fmt: skip
"""Name of a role in datasets to the role; "call" is an assistant's turn whose text is a tool call as JSON."""
_THOUGHTS = re.compile(r"\s*<think>(.*?)</think>(.*)", re.DOTALL)
_PYTHON_LIST = re.compile(r"\[\s*[\[{(]\s*['\"]")
_LONGEST_PYTHON = 2**20  # characters; parsing takes some hundred bytes for each


@dataclass(frozen=True)
class Message:
    """One turn.

    Attributes:
        role: system, user, assistant or tool.
        content: text of the turn.
        extras: further fields for chat templates: tool_calls, reasoning_content, tool_call_id, name.
        supervised: False where the row excludes this reply from training (OpenAI's weight 0).
    """

    role: str
    content: str
    extras: dict[str, Any] = field(default_factory=dict)
    supervised: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return the turn as the dictionary that chat templates take."""
        return {"role": self.role, "content": self.content, **self.extras}


@dataclass(frozen=True)
class Conversation:
    """One usable row.

    Attributes:
        messages: turns of the chat; empty for plain text.
        text: plain text of a row of the text or segments shape, else None.
        row: number of the row in its file, from 1.
        file: path of the file.
        tools: tools that the assistant may call, as JSON schemas.
        spans: supervised characters of the text as (start, end), ascending; None unless the shape is segments.
        desirable: whether the reply is labeled good; so are replies without a label.
    """

    messages: tuple[Message, ...]
    text: str | None
    row: int
    file: str
    tools: tuple[Any, ...] = ()
    spans: tuple[tuple[int, int], ...] | None = None
    desirable: bool = True

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the turns as the dictionaries that chat templates take."""
        return [message.as_dict() for message in self.messages]


def turns_in(value: Any) -> list[Any] | None:
    """Return the list of turns in a cell; None without one.

    CSV and some Parquet files hold it as JSON text, or, written by pandas, as Python's; the `datasets` library stores a
    sequence of objects as an object of lists.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return _python_list(value)
    if isinstance(value, dict) and value and all(isinstance(column, list) for column in value.values()):
        lengths = {len(column) for column in value.values()}
        if len(lengths) == 1 and any(key in value for key in ROLE_KEYS):
            return [dict(zip(value, turn, strict=True)) for turn in zip(*value.values(), strict=True)]
    return value if isinstance(value, list) else None


def _python_list(text: str) -> list[Any] | None:
    if len(text) > _LONGEST_PYTHON or not _PYTHON_LIST.match(text.lstrip()):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    return [list(turn) if isinstance(turn, tuple) else turn for turn in value] if isinstance(value, list) else None


def chat_in(value: Any) -> list[Any] | None:
    """Return the turns in a cell that holds objects with roles, or one such object; None where it holds plain text."""
    turns = turns_in(value) or ([value] if isinstance(value, dict) else None)
    if not turns or not all(isinstance(turn, dict) for turn in turns):
        return None
    return turns if any(key in turns[0] for key in ROLE_KEYS) or speakers_in(turns[0]) else None


def speakers_in(turn: Any) -> list[str]:
    """Return the keys of a turn whose keys are its speakers, such as {"human": ..., "assistant": ...}; else none."""
    if not isinstance(turn, dict) or any(key in turn for key in ROLE_KEYS):
        return []
    named = [
        key
        for key, value in turn.items()
        if isinstance(value, str) or (isinstance(value, (int, float)) and known_role(key))
    ]
    return named if all(map(known_role, named)) else []


def known_role(name: Any) -> str:
    """Return the role that a dataset's name of a role means: a value of `_ROLES`, or an empty text."""
    return _ROLES.get(name.strip().rstrip(":").lower(), "") if isinstance(name, str) else ""


def is_reply(turn: Any) -> bool:
    """Whether a turn is a reply of the assistant or contains one."""
    return isinstance(turn, list) or any(known_role(name) in ("assistant", "call") for name in _names_in(turn))


def may_reply(turn: Any) -> bool:
    """Whether a turn is a reply, or of an unknown role."""
    return is_reply(turn) or not all(map(known_role, _names_in(turn)))


def _names_in(turn: Any) -> list[Any]:
    if not isinstance(turn, dict):
        return []
    return [turn[key] for key in ROLE_KEYS if turn.get(key) is not None][:1] or speakers_in(turn)


def is_turn(row: dict[str, Any]) -> bool:
    """Whether a row is a single turn: it names a known role as its speaker, and has content."""
    role = next((row[key] for key in ROLE_KEYS if row.get(key) is not None), None)
    return bool(known_role(role)) and any(key in row for key in _CONTENT_KEYS)


def messages_of(turns: Sequence[Any]) -> list[Message]:
    """Parse the turns of a chat, in any dialect.

    Raises:
        RowError: A turn cannot be understood.
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
        if (plain := _plain_message(turn)) is not None:
            messages.append(plain)
            continue
        speakers = speakers_in(turn)
        for one in [{"role": name, "content": turn[name]} for name in speakers] or [turn]:
            role, found = _messages_in(one)
            if role == "call" and messages and messages[-1].role == "assistant":
                messages[-1] = _with_calls(messages[-1], found[0])  # a call belongs to the reply before it
            else:
                messages.extend(found)
    return _in_order_of_calls(messages) if sum(one.role == "tool" for one in messages) > 1 else messages


def _in_order_of_calls(messages: list[Message]) -> list[Message]:
    """Sort the results of parallel calls as their calls, where all of them have ids: templates may write none."""
    ordered = list[Message]()
    for role, group in groupby(messages, key=lambda message: message.role):
        turns = list(group)
        if role == "tool" and ordered:
            places = {call.get("id"): place for place, call in enumerate(ordered[-1].extras.get("tool_calls", ()))}
            ids = [turn.extras.get("tool_call_id", "") for turn in turns]
            if all(one in places for one in ids):
                turns.sort(key=lambda turn: places[turn.extras.get("tool_call_id", "")])
        ordered += turns
    return ordered


def _plain_message(turn: Any) -> Message | None:
    """Return the message of a turn that has a role and a text alone, as most turns do; None of any other."""
    if not isinstance(turn, dict) or len(turn) != 2:
        return None
    (first, name), (second, content) = turn.items()
    if first not in ROLE_KEYS or second not in _CONTENT_KEYS or type(content) is not str:
        return None
    role = known_role(name)
    return Message(role, valid_unicode(content)) if role and role != "call" else None


def _with_calls(reply: Message, call: Message) -> Message:
    """Join a reply with the tool calls of the turn that follows it."""
    if reply.supervised != call.supervised:
        raise RowError(PARTLY_SUPERVISED)
    calls = [*reply.extras.get("tool_calls", ()), *call.extras["tool_calls"]]
    return replace(reply, extras={**reply.extras, "tool_calls": calls})


def _messages_in(turn: Any) -> tuple[str, list[Message]]:
    """Parse a turn into its role and its messages: several where parts of it are tool results."""
    if not isinstance(turn, dict):
        raise RowError("a message is not an object")
    if needs_media(turn, _CONTENT_KEYS):
        raise RowError(NEEDS_MEDIA)
    role = next((turn[key] for key in ROLE_KEYS if turn.get(key) is not None), None)
    if not isinstance(role, str):
        raise RowError("a message has no role")
    known = known_role(role)
    if not known:
        raise RowError(f'unknown role "{shorten(role, 30)}"')
    content = next((turn[key] for key in _CONTENT_KEYS if turn.get(key) is not None), None)
    refuse_unreadable(content)
    if known == "tool" and (isinstance(content, dict) or _is_json_list(content)):
        content = json.dumps(content, ensure_ascii=False)
    parts = split_content(content) if isinstance(content, list) else None
    supervised = is_supervised(turn, known, parts)
    if known == "call":
        calls = parts.calls or parts.text if parts else content
        thoughts, calls = _thoughts_before(calls)
        return known, [Message("assistant", "", {"tool_calls": calls_of(calls), **thoughts}, supervised)]
    results = [_answer(name, answer) for name, answer in parts.results] if parts else []
    if results and not (parts and parts.text):
        return known, results
    extras = _extras(turn, known, parts)
    if content is None and "tool_calls" in extras:
        content = ""
    text = valid_unicode(parts.text) if parts else text_of(content, "message")
    return known, [*results, Message(known, text, extras, supervised)]


def _thoughts_before(calls: Any) -> tuple[dict[str, str], Any]:
    """Split off the thoughts that LLaMA-Factory allows before the JSON of a tool call."""
    found = _THOUGHTS.match(calls) if isinstance(calls, str) else None
    return ({"reasoning_content": valid_unicode(found[1].strip())}, found[2]) if found else ({}, calls)


def _extras(turn: dict[str, Any], role: str, parts: ContentParts | None) -> dict[str, Any]:
    """Collect a turn's tool calls, reasoning, name and call id."""
    extras: dict[str, Any] = {}
    if role == "assistant":
        calls = turn.get("tool_calls") or ([turn["function_call"]] if turn.get("function_call") else None)
        calls = calls or (parts.calls if parts else None)
        if calls:
            extras["tool_calls"] = calls_of(calls)
        thoughts = next((turn[key] for key in _REASONING_KEYS if turn.get(key)), None)
        if thoughts is None and parts and parts.thoughts:
            thoughts = parts.thoughts
        if isinstance(thoughts, list) and split_content(thoughts).partly_supervised:
            raise RowError(PARTLY_SUPERVISED)
        if thoughts is not None:
            extras["reasoning_content"] = text_of(thoughts, "reasoning")
    for key in ("name", "tool_call_id"):
        if isinstance(turn.get(key), str) and role == "tool":
            extras[key] = valid_unicode(turn[key])
    return extras


def _answer(call: str, content: Any) -> Message:
    """Build the message of a tool result that, as Anthropic writes it, stands within a user's turn."""
    text = text_of(content, "tool result") if content is not None else ""
    return Message("tool", text, {"tool_call_id": valid_unicode(call)} if call else {})


def _is_json_list(content: Any) -> bool:
    """Whether a tool's result is a JSON list of values, not a list of content parts."""
    return isinstance(content, list) and not all(isinstance(part, dict) and "type" in part for part in content)


def calls_of(value: Any) -> list[dict[str, Any]]:
    """Convert tool calls to OpenAI's form with the arguments as an object, which templates take.

    Raises:
        RowError: The value is no tool call.
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
        "function": {"name": valid_unicode(function["name"]), "arguments": _valid_values(arguments or {})},
    }
    if isinstance(call, dict) and isinstance(call.get("id"), str):
        made["id"] = valid_unicode(call["id"])
    return made


def tools_in(value: Any) -> tuple[Any, ...]:
    """Parse the tools in a cell: a list of JSON schemas, or the JSON text of one.

    Raises:
        RowError: The cell holds neither.
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
    tools = [value] if isinstance(value, dict) else value
    if isinstance(tools, list) and all(isinstance(tool, str) for tool in tools):
        return tuple(tool for text in tools for tool in tools_in(text))
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError("the tools are not a list of objects")
    return tuple(_valid_values(_tool(tool)) for tool in tools)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Convert a tool to OpenAI's form; Axolotl's files hold the parameters as JSON text."""
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
    """Return a text; a list of OpenAI's text parts is joined, a number or a boolean is taken as its JSON text.

    Raises:
        RowError: The value is missing, not text, or not valid Unicode.
    """
    if value is None:
        raise RowError(f"{name} without content")
    refuse_unreadable(value)
    value = split_content(value).text if isinstance(value, list) else literal_text(value)
    if not isinstance(value, str):
        raise RowError(f"{name} content is not text")
    return valid_unicode(value)


def valid_unicode(text: str) -> str:
    """Return the text if it is valid Unicode.

    Raises:
        RowError: The text holds half a surrogate pair, which JSON can spell and which is no character.
    """
    if not is_unicode(text):
        raise RowError("broken Unicode (half a surrogate pair)")
    return text


def _valid_values(value: Any, levels: int = _MOST_LEVELS) -> Any:
    if isinstance(value, str):
        return valid_unicode(value)
    if not levels and isinstance(value, dict | list):
        raise RowError("a tool or its call is nested too deeply")
    if isinstance(value, dict):
        refuse_unreadable(value)
        return {valid_unicode(str(key)): _valid_values(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_valid_values(item, levels - 1) for item in value]
    return value
