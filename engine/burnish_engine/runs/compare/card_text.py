"""Texts for people from a run's card."""

from __future__ import annotations

from burnish_engine.contract.run.card import FactChange, Resume

_LABELS = {
    "burnish": "Burnish",
    "python": "Python",
    "triton": "Triton",
    "cuda": "CUDA",
    "driver": "NVIDIA driver",
    "os": "system",
    "memory": "device memory",
    "compute_capability": "compute capability",
    "threads": "processor threads",
    "weights": "frozen weights in",
    "layout": "passes",
    "memory_plan": "memory plan",
}


def fact_label(name: str) -> str:
    """Name a fact of `RunCard.now` for people."""
    return _LABELS.get(name, name)


def changes_text(resume: Resume) -> str:
    """Describe what had changed when a run was resumed, without the contents; empty where nothing had."""
    return ", ".join(_change_text(change) for change in resume.changed)


def _change_text(change: FactChange) -> str:
    _, separator, file = change.what.partition(": ")
    if not separator:
        return f"{fact_label(change.what)} {change.after or 'none'} (before: {change.before or 'none'})"
    if change.after is None:
        return f"{file} gone or unreadable"
    return f"another {file}" if change.before else f"{file} (not there or unreadable before)"
