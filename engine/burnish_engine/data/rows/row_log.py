"""Logs what is noticed about rows on their way to tokens; each process counts its rows, and the logs are merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from burnish_engine.data.files.problems import RowRef, RowTally


@dataclass
class RowLog:
    """Counts and examples of what was noticed in some rows.

    Attributes:
        rows: number of rows that were read.
        used: number of rows that became a document.
        dropped: rows that are not used, by reason.
        noticed: rows that are used although a content check found something, by finding.
        first_texts: finding to the text that it concerns in the first such row; secrets have none.
        turn_ends: tokens with which the template ends replies.
        offers: what the chat template does not write of rows, and would write in an equal form.
        control_example: special token that a row spells out in its text.
        tool_call_rows: number of rows with a tool call.
        reasoning_rows: number of rows with reasoning apart from the reply.
    """

    rows: int = 0
    used: int = 0
    dropped: RowTally = field(default_factory=RowTally)
    noticed: RowTally = field(default_factory=RowTally)
    first_texts: dict[str, str] = field(default_factory=dict)
    turn_ends: list[str] = field(default_factory=list)
    offers: list[str] = field(default_factory=list)
    control_example: str = ""
    tool_call_rows: int = 0
    reasoning_rows: int = 0

    def merge(self, later: RowLog) -> None:
        """Add the log of later rows."""
        self.dropped.merge(later.dropped)
        self.noticed.merge(later.noticed)
        for name in ("rows", "used", "tool_call_rows", "reasoning_rows"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.control_example = self.control_example or later.control_example
        self.turn_ends = sorted({*self.turn_ends, *later.turn_ends})
        self.offers = sorted({*self.offers, *later.offers})
        for what, how in later.first_texts.items():
            self.first_texts.setdefault(what, how)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> RowLog:
        """Build the log from its JSON form."""
        dropped, noticed = (_tally(document.pop(name)) for name in ("dropped", "noticed"))
        return cls(dropped=dropped, noticed=noticed, **document)


def _tally(document: dict[str, Any]) -> RowTally:
    examples = {what: [RowRef(*ref) for ref in refs] for what, refs in document["examples"].items()}
    return RowTally(document["counts"], examples)
