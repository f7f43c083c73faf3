"""What a run's card says, for people."""

from __future__ import annotations

from burnish_engine.contract.card import Change, Resume

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
    """A fact of `RunCard.now` for people."""
    return _LABELS.get(name, name)


def changes_words(resume: Resume) -> str:
    """What was another when a run went on; of contents only that they are. Empty: everything was the same."""
    return ", ".join(_change_words(change) for change in resume.changed)


def _change_words(change: Change) -> str:
    _, separator, file = change.what.partition(": ")
    if not separator:
        return f"{fact_label(change.what)} {change.after or 'none'} (before: {change.before or 'none'})"
    if change.after is None:
        return f"{file} gone or unreadable"
    return f"another {file}" if change.before else f"{file} (not there or unreadable before)"
