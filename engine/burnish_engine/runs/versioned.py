"""JSON files of a run folder that say their format's version: read, or what is wrong with one is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_with_retry

_Content = TypeVar("_Content", bound=BaseModel)


def read_versioned(path: Path, form: type[_Content], version: int, *, what: str, remedy: str) -> _Content:
    """Read a file.

    Args:
        path: JSON with its version under "v".
        form: What its content is.
        version: The one that this Burnish reads.
        what: Names the file, as a sentence begins.
        remedy: What to do where it is damaged.

    Raises:
        FileNotFoundError: There is none.
        UsageError: It is damaged, cannot be read, or is of another version.
    """
    try:
        raw = json.loads(read_with_retry(path))
        found = raw.get("v") if isinstance(raw, dict) else None
        if found != version:
            raise UsageError(
                f"{what} has format version {found!r}; this Burnish reads {version}.",
                "Open it with the Burnish that made it.",
            )
        return form.model_validate(raw)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # pydantic's and JSON's errors are ValueErrors
        raise UsageError(f"{what} is damaged or cannot be read: {_reason(error)}.", remedy) from None


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first, *others = error.errors(include_url=False)
    found = "" if first["type"] == "missing" else f", not {first['input']!r:.80}"
    more = f"; and {len(others)} more" if others else ""
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}{found}{more}"
