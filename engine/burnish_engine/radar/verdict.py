"""The verdict on a model type, and the page of the guide that lists all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """The verdict on how far a model type gets, without measured numbers, which vary.

    Attributes:
        model_type: name of the type in config.json.
        plans: "fast" or "plain", the engine that the plan names; "no" where it is refused; empty: not reached.
        trains: layout of rows in a pass, as a run's card names it; "no" or empty as above.
        exports: "yes" or "no", whether Burnish writes a GGUF.
        runs: "equal" where llama.cpp computes the file as transformers computes the model, "differs" where not.
        why: what stopped it, in a few words; empty where nothing did.
    """

    model_type: str
    plans: str = ""
    trains: str = ""
    exports: str = ""
    runs: str = ""
    why: str = ""

    @property
    def whole_way(self) -> bool:
        """Whether it is planned, trained on rows that share passes, and proven in llama.cpp."""
        return self.runs == "equal" and self.trains not in {"padded", "alone"}

    @property
    def row(self) -> str:
        """Row of the table."""
        found = (self.plans, self.trains, self.exports, self.runs)
        return f"| {' | '.join([f'`{self.model_type}`', *(one or '-' for one in found), self.why or '-'])} |"


def page(verdicts: Sequence[Verdict], version: str) -> str:
    """Return the guide's page.

    Args:
        verdicts: verdict on each type.
        version: version of transformers.
    """
    fast = sum(one.plans == "fast" for one in verdicts)
    packed = sum(one.trains not in {"", "no", "padded", "alone"} for one in verdicts)
    whole = sum(one.whole_way for one in verdicts)
    rows = [one.row for one in sorted(verdicts, key=lambda one: one.model_type)]
    return _PAGE.format(version=version, types=len(rows), fast=fast, packed=packed, whole=whole, rows="\n".join(rows))


_PAGE = """# Radar

Which causal language models of transformers work in Burnish, tried on small models of random weights. Of the {types}
types of transformers {version}, the fast engine trains {fast}; {packed} train with rows that share passes, and {whole}
get the whole way to a GGUF that llama.cpp computes as transformers does. `burnish models radar --table` prints this
page, for whichever transformers is installed; `--only TYPE` tries a single type.

- *engine*: the one that the plan names. `no`: Burnish refuses the model.
- *rows*: how they lie in a pass. `packed` (`masked` with masks of ours): several rows share it; `padded` and `alone`:
  they would reach each other, and do not share it.
- *GGUF*: whether one is written; *llama.cpp*: whether the proof of the F16 file finds it `equal` to the trained model.
- *why not*: what stopped it. A small model that could not be built says nothing about a real one.

| `model_type` | engine | rows | GGUF | llama.cpp | why not |
|---|---|---|---|---|---|
{rows}
"""
