"""Derive an Ollama template (Go's text/template) from a model's Jinja chat template by probing, and verify it.

The Jinja template renders conversations of marked words; the text between the marks gives the pieces of a turn. These
pieces must then reproduce every other probe exactly, or nothing is written: a template that does more than put text
around turns (ChatML, Llama 3, Gemma, Mistral, Zephyr and Phi do no more) is reported as unknown, never guessed.

Ollama's variables: `.System` is the system prompt, `.Messages` all turns (ollama/template/template.go).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from burnish_engine.chat.prompt import Messages, render
from burnish_engine.contract.errors import UsageError
from burnish_engine.data.templates.template import ChatTemplate

_SYSTEM = "Sq1"
_TURNS = ("Uq1", "Aq1", "Uq2", "Aq2", "Uq3")  # marks: words that no template contains


@dataclass(frozen=True)
class TurnPieces:
    """Text that a chat template puts around turns."""

    start: str  # text before everything (BOS, where the tokenizer does not add it)
    system_open: str | None  # text before the system prompt; None where the template takes none
    system_close: str  # text after the system prompt
    system_in_turn: bool  # whether the system prompt stands inside the first user turn
    default_system: str  # system prompt of conversations without one
    user_open: str  # text before the user's message
    between: str  # text after the user's message, up to where the model continues
    assistant_open: str  # text that the template adds to `between` before an earlier reply (a space, in Mistral's)
    assistant_close: str  # text after the assistant's message
    prefill: str = ""  # text after `between` where the reply is still to come, with which it begins (<think>)

    def render(self, system: str, turns: Sequence[str]) -> str:
        """Render alternating turns that begin and end with the user's, as the Go template does."""
        system = system or self.default_system
        text, inside = self.start, ""
        if system and self.system_open is not None:
            block = self.system_open + system + self.system_close
            text, inside = (text, block) if self.system_in_turn else (text + block, "")
        for place, content in enumerate(turns):
            if place % 2:
                text += self.assistant_open + content + self.assistant_close
            else:
                text += self.user_open + inside + content + self.between
                inside = ""
        return text + self.prefill

    def go_template(self) -> str:
        """Build the Ollama template."""
        system = ""
        if self.system_open is not None:
            system = f"{self.system_open}{{{{ .System }}}}{self.system_close}"
        # Ollama's own templates ask in this way whether a message is the last.
        last = f"{{{{ if eq (len (slice $.Messages $i)) 1 }}}}{self.prefill}{{{{ end }}}}" if self.prefill else ""
        each = "range $i, $_ := .Messages" if self.prefill else "range .Messages"
        user = f"{self.user_open}{{{{ .Content }}}}{self.between}{last}"
        head = f"{{{{ if .System }}}}{system}{{{{ end }}}}" if system else ""
        if system and self.system_in_turn:
            inside = system.replace(".System", "$system")
            head = "{{ $system := .System }}"
            user = (
                f'{self.user_open}{{{{ if $system }}}}{inside}{{{{ $system = "" }}}}{{{{ end }}}}'
                f"{{{{ .Content }}}}{self.between}{last}"
            )
        return (
            f'{self.start}{head}{{{{ {each} }}}}{{{{ if eq .Role "user" }}}}{user}'
            f'{{{{ else if eq .Role "assistant" }}}}{self.assistant_open}{{{{ .Content }}}}{self.assistant_close}'
            "{{ end }}{{ end }}"
        )


def derive_pieces(template: ChatTemplate, ends: Sequence[str], bos: str = "") -> TurnPieces | None:
    """Derive and verify the pieces of a template; None where the template does more than put text around turns.

    Args:
        template: chat template to analyze.
        ends: texts of the tokens that end a generation.
        bos: text of the BOS token where programs add it by themselves, else empty.
    """
    plain = _split(_render(template, "", _TURNS, bos), _TURNS)
    if plain is None:
        return None
    head, answered, joint, asked = plain[0], plain[1], plain[2], plain[-1]
    between = answered if asked.startswith(answered) else asked
    close = _turn_close(joint, ends)
    user_open = joint.removeprefix(close)
    if not close or not head.endswith(user_open) or not answered.startswith(between):
        return None
    bare = TurnPieces(
        start=head.removesuffix(user_open),
        system_open=None,
        system_close="",
        system_in_turn=False,
        default_system="",
        user_open=user_open,
        between=between,
        assistant_open=answered.removeprefix(between),
        assistant_close=close,
        prefill=asked.removeprefix(between),
    )
    pieces = _with_system(bare, template, bos)
    return pieces if pieces is not None and _verified(pieces, template, bos) else None


def _with_system(pieces: TurnPieces, template: ChatTemplate, bos: str) -> TurnPieces | None:
    """Add the place of the system prompt, and the default prompt where conversations without one begin with it."""
    marks = (_SYSTEM, *_TURNS)
    found = _split(_render(template, _SYSTEM, _TURNS, bos), marks)
    if found is None:
        return pieces  # the template refuses a system turn, or omits it
    before, after = found[0], found[1]
    text: dict[str, str | bool | None]
    if after.endswith(pieces.user_open):
        close = after.removesuffix(pieces.user_open)
        text = {"system_open": before, "system_close": close}
        if pieces.start.startswith(before) and pieces.start.endswith(close) and pieces.start != "":
            default = pieces.start[len(before) : len(pieces.start) - len(close)]
            text |= {"start": "", "default_system": default}
        elif before.startswith(pieces.start):
            text["system_open"] = before.removeprefix(pieces.start)
        else:
            return None
    elif before == pieces.start + pieces.user_open:
        text = {"system_open": "", "system_close": after, "system_in_turn": True}
    else:
        return None
    return TurnPieces(**{**pieces.__dict__, **text})


def _verified(pieces: TurnPieces, template: ChatTemplate, bos: str) -> bool:
    """Whether the pieces reproduce the template on conversations they were not derived from."""
    if any("{{" in str(piece) or "}}" in str(piece) for piece in pieces.__dict__.values()):
        return False
    conversations = (("Hi",), ("Hello there.\nTwo lines", "Yes: 1, 2", "And?"), _TURNS)
    systems = ("", "Be brief.", "Line one\n\nLine two") if pieces.system_open is not None else ("",)
    return all(
        pieces.render(system, turns) == _render(template, system, turns, bos)
        for system in systems
        for turns in conversations
    )


def _render(template: ChatTemplate, system: str, turns: Sequence[str], bos: str) -> str:
    messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    messages += [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(turns)]
    try:
        conversation: Messages = messages
        return render(template, conversation).removeprefix(bos)
    except UsageError:  # the template refuses this conversation
        return ""


def _split(text: str, marks: Sequence[str]) -> list[str] | None:
    """Split a text into the parts before, between and after the marks; None unless each occurs once and in order."""
    pieces = re.split("|".join(map(re.escape, marks)), text)
    return pieces if re.findall("|".join(map(re.escape, marks)), text) == list(marks) else None


def _turn_close(joint: str, ends: Sequence[str]) -> str:
    """Extract the end token and the white space after it, with which the text between two turns begins."""
    for end in sorted(ends, key=len, reverse=True):
        match = re.match(rf"\s*{re.escape(end)}\s*", joint)
        if end and match:
            return match.group()
    return ""
