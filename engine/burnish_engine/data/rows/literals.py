"""Takes numbers, true and false as texts: as their JSON text, whatever the format of the file is."""

from __future__ import annotations

import json
from typing import Any


class LiteralText(str):
    """The JSON text of a number, of true or of false that a row holds where a text is wanted."""

    __slots__ = ()


def literal_text(value: Any) -> Any:
    """Return the JSON text of a number or a boolean, and any other value as it is."""
    return LiteralText(json.dumps(value)) if isinstance(value, (bool, int, float)) else value
