"""Read the checksums beside exported files (the format of `sha256sum`)."""

from __future__ import annotations

from pathlib import Path

from burnish_engine.contract.files import read_limited

CHECKSUMS = "SHA256SUMS"
_MOST_BYTES = 1_000_000


def recorded_checksum(file: Path) -> str | None:
    """Return the SHA-256 that the checksums beside a file give for it, as its export wrote them; None without any."""
    try:
        lines = read_limited(file.parent / CHECKSUMS, _MOST_BYTES).decode().splitlines()
    except (OSError, ValueError):
        return None
    return next((digest for digest, _, name in (line.partition("  ") for line in lines) if name == file.name), None)
