"""Translates text outside of widgets; inside a widget `self.tr` does the same."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication


def tr(text: str) -> str:
    """Return a text in the language of the studio; the text itself where there is no translation."""
    return QCoreApplication.translate("Burnish", text)
