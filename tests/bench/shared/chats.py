"""Made-up chats for runs whose text does not matter."""

from __future__ import annotations

import json
import random
from pathlib import Path

_WORDS = ["cause", "fix", "check", "lamp", "bike", "door", "soup", "garden", "the", "of", "and", "again", "worn"]


def write_chats(path: Path, rows: int) -> None:
    """Write chats with replies of widely varying length, always the same ones."""
    drawn = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            said = [drawn.choices(_WORDS, k=max(4, int(drawn.lognormvariate(mu, 0.8)))) for mu in (2.8, 3.8)]
            turns = [
                {"role": role, "content": " ".join(text)}
                for role, text in zip(("user", "assistant"), said, strict=True)
            ]
            file.write(json.dumps({"messages": turns}) + "\n")
