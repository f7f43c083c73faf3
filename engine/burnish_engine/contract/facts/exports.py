"""Types and text for which exports of a run's result work; `advise.plan.exports` decides it before training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from burnish_engine.contract.record import Record

ExportKind = Literal["gguf", "safetensors", "adapter", "ollama", "lmstudio", "lora-gguf"]
"""Kinds of `burnish export --to`."""
GGUF_KINDS: tuple[ExportKind, ...] = ("gguf", "ollama", "lmstudio")
"""Kinds of export that are GGUF files with a fidelity report."""


class ExportChoice(Record):
    """Whether one kind of export works for a run."""

    kind: ExportKind
    works: bool
    reason: str = Field(default="", description="Why it does not work, as a sentence.")


def export_text(exports: Sequence[ExportChoice]) -> str:
    """Write which exports work and why the others do not; empty where all that concern the run's kind work.

    Args:
        exports: decision for each kind of export; empty where it is not known.
    """
    works = [one.kind for one in exports if one.works]
    failing = [one for one in exports if not one.works]
    reasons = list(dict.fromkeys(one.reason for one in failing if one.kind in {*GGUF_KINDS, "safetensors"}))
    if not reasons:
        return ""
    names = f"only as {_listed(works)}" if works else "in no form"
    return f"The result can be exported {names}. {' '.join(reasons)}"


def next_export(exports: Sequence[ExportChoice]) -> str:
    """Write the options of the first `burnish export` that works; empty where none does.

    Args:
        exports: decision for each kind of export; empty where it is not known, and then GGUF is taken to work.
    """
    works = {one.kind for one in exports if one.works}
    if not exports or "gguf" in works:
        return "--to gguf"
    return next((f"--to {kind}" for kind in ("safetensors", "adapter") if kind in works), "")


def _listed(kinds: Sequence[str]) -> str:
    return f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kinds[0]
