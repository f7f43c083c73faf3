"""A line of a list of stages: its sign, and its words."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel

from burnish_app.widgets.basic.text import Look, set_tone
from burnish_app.wording.status import StageStatus

_SIGNS: dict[StageStatus, str] = {"done": "✓", "now": "●", "waiting": "○"}
_LOOKS: dict[StageStatus, Look] = {"done": "success", "now": "accent", "waiting": "muted"}


def show_stage(sign: QLabel, words: QLabel, text: str, status: StageStatus) -> None:
    """Show a stage; cheap if nothing changed.

    Args:
        sign: label of the sign.
        words: label of the words.
        text: what the stage does.
        status: whether it is done, running now, or waiting.
    """
    for label, shown in ((sign, _SIGNS[status]), (words, text)):
        if label.text() != shown:
            label.setText(shown)
    set_tone(sign, _LOOKS[status])
    set_tone(words, "muted" if status == "waiting" else "")
