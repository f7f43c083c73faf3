"""What is noticed on the way from rows to tokens. Counted where the rows are worked on, and added up in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from burnish_engine.data.problems import Dropped, Place


@dataclass
class Notes:
    """What was noticed.

    Attributes:
        rows: Rows looked at.
        used: Rows of which there is a document.
        dropped: Rows that are not used: why, how many, which.
        noticed: Rows that something was noticed in: what, how many, which. They are used all the same.
        shown: For a thing noticed, how it looked in the first such row, with what is secret left out.
        turn_ends: Tokens with which the template ends replies.
        control_example: A special token that a row spells out in its text.
        called: Rows in which a tool is called.
        thoughtful: Rows with thoughts apart from the reply.
    """

    rows: int = 0
    used: int = 0
    dropped: Dropped = field(default_factory=Dropped)
    noticed: Dropped = field(default_factory=Dropped)
    shown: dict[str, str] = field(default_factory=dict)
    turn_ends: list[str] = field(default_factory=list)
    control_example: str = ""
    called: int = 0
    thoughtful: int = 0

    def merge(self, later: Notes) -> None:
        """Add what was noticed in later rows."""
        self.dropped.merge(later.dropped)
        self.noticed.merge(later.noticed)
        for name in ("rows", "used", "called", "thoughtful"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.control_example = self.control_example or later.control_example
        self.turn_ends = sorted({*self.turn_ends, *later.turn_ends})
        for what, how in later.shown.items():
            self.shown.setdefault(what, how)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Notes:
        """Notes that were written as JSON."""
        dropped, noticed = (_tally(document.pop(name)) for name in ("dropped", "noticed"))
        return cls(dropped=dropped, noticed=noticed, **document)


def _tally(document: dict[str, Any]) -> Dropped:
    examples = {what: [Place(*place) for place in places] for what, places in document["examples"].items()}
    return Dropped(document["counts"], examples)
