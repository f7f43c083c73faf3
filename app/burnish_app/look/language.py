"""The language of the window: every text that is shown goes through `tr`, in widgets and in wording alike. No Qt.

A text's key is the text itself, in English. The texts of the recipe's settings stand in their declarations, in the
engine's `contract/recipe/` (labels, choices, notes, help, units), and what the terminal says too in its
`contract/wording/`; they are looked up where they are shown. The catalog is installed before pages and wording are
imported, as texts that are constants of a module are looked up at its import; another language takes effect at the
next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from burnish_engine.contract.wording.tables import Sentence, recognize


class _Language:
    """The function that looks a text up; one for the application."""

    look_up: Callable[[str], str] = staticmethod(lambda text: text)


def install(look_up: Callable[[str], str]) -> None:
    """Set the language.

    Args:
        look_up: function that returns the translation of an English text, or the text itself where there is none.
    """
    _Language.look_up = staticmethod(look_up)


def tr(text: str) -> str:
    """Return a text in the language of the window. Values are put in afterwards: `tr("{n} rows").format(n=n)`."""
    return _Language.look_up(text)


def say(sentence: Sentence) -> str:
    """Return a sentence of the engine's tables in the language of the window."""
    return tr(sentence.form).format(**sentence.values)


def retold(text: str, forms: Mapping[str, str]) -> str:
    """Return what the engine wrote by a table of forms in the language of the window; any other text as it is."""
    known = recognize(text, forms)
    return text if known is None else tr(forms[known[0]]).format(**known[1])
