"""The data layouts that the documentation of other trainers describes, and what Burnish makes of each.

One file a peer, one layout a line: its name, rows, and either what is read of them or why they are refused. The guide's
page on data layouts is written from them: `python -m tests.support.layouts`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "assets" / "guide" / "data-layouts.md"
PEERS = {
    "llama_factory": "LLaMA-Factory",
    "axolotl": "Axolotl",
    "trl": "TRL",
    "unsloth": "Unsloth",
    "ms_swift": "ms-swift",
}
"""File to peer."""

_HEAD = """# Data layouts

The layouts of rows that the documentation of five other trainers describes, and what Burnish does with each.
`burnish inspect FILE` shows how a file is read before anything is trained.

Each layout is tried on a few example rows:

- *read as*: the [shape](recipe-reference.md#data), then the turns of the first row that can be used; what is learned is
  **bold**. *No row*: none of the rows can be used. *Asks which column is meant*: the columns can be read in several
  ways, or only by a guess, and `data.columns` has to say what they mean, such as
  `["prompt=Frage", "completion=Antwort"]`. *Refused*: a chat model cannot be trained on what the file holds, or not as
  it is arranged; the error says what to do.
- *left out*: why some of the rows are not used. In your files such rows are counted.

Preference pairs (shape preference) and replies labeled good or bad (shape kto) are trained on only where the recipe
says so: with `data.shape` the good replies are learned and nothing else, as the tables show it; with
`preference.objective` both replies of a pair, or good and bad ones.

This page is written from the layouts that the tests read, by `python -m tests.support.layouts`.
"""

_HELD = {"fit no known shape": "columns that fit no known shape"}
"""Part of a reason to the words for what the file holds, where the part alone does not say it."""


@dataclass(frozen=True)
class LayoutCase:
    """One layout of a peer's documentation.

    Attributes:
        peer: name of the trainer.
        name: what the layout is called there, and what is special about it.
        rows: rows in this layout, column to value.
        shape: shape that they are recognized as; empty where the file is refused.
        turns: the first usable row as "kind> text"; kinds are system, user, reply (learned), shown (a reply that is
            not learned), thought, call (names of the tools), tool and text.
        dropped: reason to number of rows that are left out.
        refused: a part of the reason for which the file is refused; empty where it is read.
    """

    peer: str
    name: str
    rows: list[dict[str, Any]]
    shape: str = ""
    turns: list[str] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    refused: str = ""

    @property
    def columns(self) -> list[str]:
        """Every column of the rows, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


def layouts() -> list[LayoutCase]:
    """Every layout, by peer."""
    found = []
    for file, peer in PEERS.items():
        lines = (Path(__file__).parent / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
        found += [LayoutCase(peer, **json.loads(line)) for line in lines]
    return found


def page() -> str:
    """The guide's page on data layouts, as Markdown."""
    parts = [_HEAD]
    for peer in PEERS.values():
        parts += [f"\n## {peer}\n\n| layout | columns | read as | left out |\n| --- | --- | --- | --- |\n"]
        parts += [_line(case) for case in layouts() if case.peer == peer]
    return "".join(parts)


def _line(case: LayoutCase) -> str:
    columns = ", ".join(f"`{name}`" for name in case.columns)
    left_out = "; ".join(case.dropped)
    return f"| {case.name} | {columns} | {_result(case)} | {left_out} |\n"


def _result(case: LayoutCase) -> str:
    if not case.refused:
        return f"{case.shape}: {_roles(case.turns)}" if case.turns else f"{case.shape}, no row"
    asks = case.refused.startswith("can be read")
    return "asks which column is meant" if asks else f"refused: {_HELD.get(case.refused, case.refused)}"


def _roles(turns: list[str]) -> str:
    names = {"reply": "**reply**", "text": "**text**", "call": "**call**", "thought": "**thoughts**"}
    kinds = [turn.partition(">")[0] for turn in turns]
    return ", ".join(names.get(kind, {"shown": "reply (not learned)"}.get(kind, kind)) for kind in kinds)
