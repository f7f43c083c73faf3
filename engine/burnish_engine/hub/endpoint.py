"""Reads the address of the hub. Loads no HTTP library, so that what only names a dataset starts fast."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from burnish_engine.contract.errors import UsageError


def endpoint() -> str:
    """Return the address of the hub: HF_ENDPOINT, else huggingface_hub's default.

    Raises:
        UsageError: HF_ENDPOINT is no web address.
    """
    address = os.environ.get("HF_ENDPOINT", "").rstrip("/")
    try:
        from huggingface_hub import constants  # reads HF_ENDPOINT too

        address = address or constants.ENDPOINT.rstrip("/")
        parts = urlsplit(address)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # such as half a pair of brackets around an IPv6 address
        is_web = False
    if not is_web:
        raise UsageError(f"HF_ENDPOINT is {address!r}, which is no web address.", "Start it with https:// or unset it.")
    return address
