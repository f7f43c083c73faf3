"""Score whether replies show the behavior that the sample dataset teaches.

The behavior is the three-line bench note: the reply has exactly three lines, which start with "Cause:", "Fix:" and
"Check:" in this order, each followed by at least three words, and the model ended the reply by itself.

Run as a script it scores a demo's replies again: `python -m burnish_engine.demo.score burnish-demo/replies.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

LABELS = ("Cause:", "Fix:", "Check:")
_LEAST_WORDS = 3


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


def count(replies: list[dict[str, object]]) -> int:
    """Count the replies (objects with `reply` and `stopped`) that show the behavior."""
    return sum(shows_behavior(str(entry["reply"]), stopped=bool(entry["stopped"])) for entry in replies)


def main() -> None:
    """Print the score of every model in a replies.json."""
    replies = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for model, entries in replies.items():
        sys.stdout.write(f"{model}: {count(entries)} of {len(entries)}\n")


if __name__ == "__main__":
    main()
