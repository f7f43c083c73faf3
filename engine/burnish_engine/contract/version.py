"""Reads Burnish's own version."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache  # plans are made by the hundred
def burnish_version() -> str:
    """The installed version; "source" where the code runs from a folder that was never installed."""
    try:
        return version("burnish")
    except PackageNotFoundError:
        return "source"
