"""Questions for the page Try it: prompts that the person saved, and held-out rows with the wanted reply. No Qt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from burnish_app.state.preferences import studio_dir
from burnish_app.state.saved.saved_work import put_aside
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.files import read_with_retry, write_atomic
from burnish_engine.contract.serve.model_requests import ChatMessage

_MOST_SAVED, _LONGEST = 200, 20_000


@dataclass(frozen=True)
class ChatQuestion:
    """Something to ask.

    Attributes:
        messages: conversation up to the turn that is answered.
        wanted: reply that the data holds; empty: none is known.
    """

    messages: tuple[ChatMessage, ...]
    wanted: str = ""

    def __hash__(self) -> int:
        return hash((self.text, self.wanted))

    @property
    def text(self) -> str:
        """The last turn, which is asked."""
        return self.messages[-1].content


def held_out_questions(conversations: Sequence[Sequence[ChatMessage]]) -> list[ChatQuestion]:
    """Make questions of held-out conversations; those without a reply to a person's turn are left out."""
    found = []
    for turns in conversations:
        if len(turns) > 1 and turns[-1].role == "assistant" and turns[-2].role == "user":
            found.append(ChatQuestion(tuple(turns[:-1]), turns[-1].content))
    return found


class WrittenTexts:
    """The texts that the person wrote into the message box: their own words, and changed questions.

    Whatever the box shows next, both come back with the question that they belong to.
    """

    def __init__(self) -> None:
        self._texts: dict[ChatQuestion | None, str] = {}

    def leave(self, question: ChatQuestion | None, text: str) -> None:
        """Keep what stands in the box, because something else is to be shown there.

        Args:
            question: question that was shown; None: the person's own words.
            text: text of the box.
        """
        if text.strip() and (question is None or text.strip() != question.text.strip()):
            self._texts[question] = text
        else:
            self.forget(question)

    def text_of(self, question: ChatQuestion | None) -> str:
        """Return what the box shall show.

        Args:
            question: question to be shown; None: the person's own words.
        """
        return self._texts.get(question, "" if question is None else question.text)

    def forget(self, question: ChatQuestion | None) -> None:
        """Forget what was written, because it was sent or saved."""
        self._texts.pop(question, None)


class SavedPrompts:
    """The prompts that the person saved, newest first, in a file of the studio.

    Args:
        file: file to keep them in; None: the usual one.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or studio_dir() / "prompts.json"

    def read(self) -> list[str]:
        """Read the prompts; a damaged file holds none, and is put aside."""
        try:
            found = json.loads(read_with_retry(self._file))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, RecursionError):
            found = None
        if not isinstance(found, list):
            put_aside(self._file)
            return []
        texts = [one for one in found if isinstance(one, str) and one.strip()]
        return texts[:_MOST_SAVED]

    def add(self, text: str) -> None:
        """Put a prompt in front of the others."""
        text = text.strip()[:_LONGEST]
        self._write([text, *(one for one in self.read() if one != text)])

    def remove(self, text: str) -> None:
        """Take a prompt away."""
        self._write([one for one in self.read() if one != text])

    def _write(self, texts: list[str]) -> None:
        with suppress(OSError, BurnishError):  # a full disk costs the person no more than this prompt
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._file, json.dumps(texts[:_MOST_SAVED], ensure_ascii=False, indent=1) + "\n")
