"""Tell whether replies show the behavior that a sample dataset teaches.

The three-line bench note: the reply has exactly three lines, which start with "Cause:", "Fix:" and "Check:" in this
order, each followed by at least three words, and the model ended the reply by itself.

The answer in one sentence: one line of 4 to 40 words with one end of a sentence, a period, at its end, and the model
ended the reply by itself.
"""

from __future__ import annotations

import re

LABELS = ("Cause:", "Fix:", "Check:")
_LEAST_WORDS = 3
_SENTENCE_WORDS = range(4, 41)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


def shows_behavior(reply: str, *, stopped: bool) -> bool:
    """Whether one reply is a complete bench note.

    Args:
        reply: text of the model, without special tokens.
        stopped: whether the model ended it by itself.
    """
    lines = reply.strip().split("\n")
    return (
        stopped
        and len(lines) == len(LABELS)
        and all(
            line.startswith(label) and len(line.removeprefix(label).split()) >= _LEAST_WORDS
            for line, label in zip(lines, LABELS, strict=True)
        )
    )


def is_one_sentence(reply: str, *, stopped: bool) -> bool:
    """Whether one reply is a single sentence and no question.

    Args:
        reply: text of the model, without special tokens.
        stopped: whether the model ended it by itself.
    """
    text = reply.strip()
    ends = _SENTENCE_END.findall(text)
    return stopped and "\n" not in text and ends == ["."] and text[-1] == "." and len(text.split()) in _SENTENCE_WORDS
