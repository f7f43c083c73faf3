"""Read Ollama's Modelfile strictly, as Ollama reads it, and report what it would refuse.

Grammar: https://docs.ollama.com/modelfile. As Ollama's own reader (ollama/parser/parser.go), this one drops characters
that are not printable, lets a value in triple quotes span lines, and requires FROM. Ollama accepts parameters of any
type and any template, and fails later; here both are checked.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from burnish_engine.contract.errors import UsageError

_WORDS: Final = (
    "from", "parameter", "template", "system", "adapter", "license", "message", "renderer", "parser", "requires",
)  # fmt: skip
_ROLES: Final = ("system", "user", "assistant")
PARAMETERS: Final[dict[str, type]] = {
    "num_ctx": int, "num_predict": int, "num_keep": int, "repeat_last_n": int, "seed": int, "top_k": int,
    "num_batch": int, "num_gpu": int, "num_thread": int, "temperature": float, "top_p": float, "min_p": float,
    "typical_p": float, "repeat_penalty": float, "presence_penalty": float, "frequency_penalty": float, "stop": str,
}  # fmt: skip
"""Parameters and the type of their values."""
_VARIABLES: Final = (
    ".System", ".Prompt", ".Response", ".Messages", ".Role", ".Content", ".Tools", ".ToolCalls", ".Suffix", ".First",
    ".Thinking", ".Function", ".Name", ".Arguments",
)  # fmt: skip
_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_OPENS, _ELSE, _END = ("if", "range", "with", "define", "block"), "else", "end"


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Modelfile."""

    word: str  # instruction in lower case, such as `from`
    key: str  # name of the parameter, or role of the message; else empty
    value: str  # text without its quotes
    line: int  # number of the line on which it begins, from 1


def read_modelfile(text: str) -> list[Instruction]:
    """Parse a Modelfile as Ollama does.

    Args:
        text: content of the Modelfile.

    Raises:
        UsageError: Ollama would refuse the text, or read something other than what is written.
    """
    instructions: list[Instruction] = []
    lines, place = text.split("\n"), 0
    while place < len(lines):
        begun, line = place, lines[place].strip(" \t\r")
        place += 1
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word.lower() not in _WORDS:
            raise _wrong(begun, f"{word[:40]!r} is no instruction", f"Known are {', '.join(_WORDS).upper()}.")
        key, value = _key(word.lower(), rest.lstrip(" \t"), begun)
        while (unquoted := _unquoted(value)) is None:
            if place == len(lines):
                raise _wrong(begun, "its quotes are never closed", "Close them.")
            value += "\n" + lines[place].rstrip("\r")
            place += 1
        if not unquoted and word.lower() != "system":
            raise _wrong(begun, f"{word.upper()} has no value", "Give it one.")
        dropped = [character for character in unquoted if not character.isprintable() and character != "\n"]
        if dropped:
            raise _wrong(begun, f"Ollama drops the character {dropped[0]!r}", "Write the text without it.")
        instructions.append(Instruction(word.lower(), key, unquoted, begun + 1))
    _check(instructions)
    return instructions


def _key(word: str, rest: str, line: int) -> tuple[str, str]:
    if word not in {"parameter", "message"}:
        return "", rest
    key, _, value = rest.partition(" ")
    if word == "message" and key not in _ROLES:
        raise _wrong(line, f"the role {key[:40]!r} is unknown", f"Known are {', '.join(_ROLES)}.")
    if word == "parameter" and key not in PARAMETERS:
        raise _wrong(line, f"the parameter {key[:40]!r} is unknown", f"Known are {', '.join(PARAMETERS)}.")
    return key, value.lstrip(" \t")


def _unquoted(value: str) -> str | None:
    """Return the text inside the quotes; None where the quotes are still open."""
    stripped = value.strip()
    if stripped.startswith('"""'):
        closed = len(stripped) >= 6 and stripped.endswith('"""')
        return stripped[3:-3] if closed else None
    if stripped.startswith('"'):
        closed = len(stripped) >= 2 and stripped.endswith('"')
        return stripped[1:-1] if closed else None
    return stripped


def _check(instructions: list[Instruction]) -> None:
    names = [one.word for one in instructions]
    if names.count("from") != 1:
        raise UsageError(f"The Modelfile has {names.count('from')} FROM lines; one is needed.", "Write it again.")
    for once in ("template", "system"):
        if names.count(once) > 1:
            raise UsageError(f"The Modelfile has {names.count(once)} {once.upper()}s; the last alone would count.")
    for one in instructions:
        if one.word == "parameter" and PARAMETERS[one.key] is not str:
            _number(one)
        if one.word == "template":
            check_template(one.value)


def _number(one: Instruction) -> None:
    kind = PARAMETERS[one.key]
    try:
        if not math.isfinite(kind(one.value)):
            raise ValueError
    except (ValueError, OverflowError):
        name = "a whole number" if kind is int else "a number"
        raise _wrong(one.line - 1, f"{one.key} is {one.value[:40]!r}, not {name}", "Give one.") from None


def check_template(template: str) -> None:
    """Check a Go template: closed actions, balanced blocks, variables that Ollama has.

    Raises:
        UsageError: Ollama would refuse the template.
    """
    rest = _ACTION.sub("", template)
    if "{{" in rest or "}}" in rest:
        raise UsageError("The Ollama template has an action that is not closed.", "Close every {{ with }}.")
    blocks: list[str] = []
    for action in _ACTION.findall(template):
        word = action.split(" ")[0]
        if word in _OPENS:
            blocks.append(word)
        elif word in (_ELSE, _END) and not blocks:
            raise UsageError(f"The Ollama template has an {{{{ {word} }}}} that belongs to nothing.", "Balance it.")
        elif word == _END:
            blocks.pop()
        unknown = [name for name in re.findall(r"(?<![\w\"$])\.[A-Za-z]\w*", action) if name not in _VARIABLES]
        if unknown:
            raise UsageError(f"The Ollama template uses {unknown[0]}, which Ollama does not have.", "Leave it out.")
    if blocks:
        raise UsageError(f"The Ollama template never ends its {{{{ {blocks[-1]} }}}}.", "Add {{ end }}.")


def _wrong(line: int, what: str, remedy: str) -> UsageError:
    return UsageError(f"Line {line + 1} of the Modelfile: {what}.", remedy)
