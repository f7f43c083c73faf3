"""Read JSON files of a run folder that carry their format's version, with clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_with_retry

_Content = TypeVar("_Content", bound=BaseModel)


def read_versioned(path: Path, form: type[_Content], version: int, *, what: str, remedy: str) -> _Content:
    """Read a versioned file.

    Args:
        path: JSON file with its version under "v".
        form: type of its content.
        version: number of the version that this Burnish reads.
        what: name of the file, at the beginning of a sentence.
        remedy: advice for a damaged file.

    Raises:
        FileNotFoundError: The file does not exist.
        UsageError: The file is damaged, cannot be read, or has another version.
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
    if isinstance(error, OSError) and error.strerror:  # without the path, which stands before it
        return error.strerror
    if not isinstance(error, ValidationError):
        return str(error)
    first, *others = error.errors(include_url=False)
    found = "" if first["type"] == "missing" else f", not {first['input']!r:.80}"
    more = f"; and {len(others)} more" if others else ""
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}{found}{more}"
