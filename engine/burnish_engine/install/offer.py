"""A release that can be set up: its description, checked by its signature, and what it would change."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.engines import InstalledEngine
from burnish_engine.install.files.sources import Source
from burnish_engine.install.release.description import DESCRIPTION, SIGNATURE, Release, Target, read_release
from burnish_engine.install.release.minisign import PublicKey, check, read_key

RELEASE_VARIABLE, KEY_VARIABLE = "BURNISH_RELEASE", "BURNISH_RELEASE_KEY"
"""Environment variables with the folder or address of a release, and with the public key that it is signed with."""


@dataclass(frozen=True)
class ReleaseOffer:
    """A release that can be set up.

    Attributes:
        release: the release.
        signature: text of its signature.
    """

    release: Release
    signature: str


@dataclass(frozen=True)
class Changes:
    """The changes that an update makes.

    Attributes:
        told: sentences of its makers.
        added: packages that are new, with their version.
        removed: packages that are gone.
        changed: packages of another version, with the version before and after.
    """

    told: tuple[str, ...]
    added: dict[str, str]
    removed: tuple[str, ...]
    changed: dict[str, tuple[str, str]]


def release_places(env: Mapping[str, str]) -> list[str]:
    """Return the places of a release: the folder beside a packaged window, and what the environment names."""
    beside = Path(sys.executable).parent / "release"
    named = env.get(RELEASE_VARIABLE, "").strip()
    return [*([str(beside)] if getattr(sys, "frozen", False) and beside.is_dir() else []), *([named] if named else [])]


def trusted_key(env: Mapping[str, str]) -> PublicKey:
    """Return the public key that releases are checked with.

    Raises:
        SetupError: None is named, or it is no key.
    """
    named = env.get(KEY_VARIABLE, "").strip()
    if not named:
        raise SetupError(
            "This Burnish knows no key to check a release with.",
            f"Name the release's public key, or its file, in {KEY_VARIABLE} and start again.",
        )
    path = Path(named)
    try:
        return read_key(path.read_text(encoding="utf-8") if path.is_file() else named)
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"The release's public key cannot be read: {error}.", "Check its path.") from error


def read_offer(source: Source, key: PublicKey) -> ReleaseOffer:
    """Read what a place offers.

    Args:
        source: place of a release.
        key: public key that has to have signed it.

    Raises:
        SetupError: There is no release, or it is not signed with that key.
    """
    text, signature = source.text(DESCRIPTION), source.text(SIGNATURE)
    check(key, text.encode(), signature, name=f"The release at {source.place}")
    return ReleaseOffer(read_release(text), signature)


def is_newer(offer: ReleaseOffer, engine: InstalledEngine) -> bool:
    """Whether a release is newer than an engine's; an older one is never offered as an update."""
    return offer.release.order > engine.release.order


def changes(offer: ReleaseOffer, target: Target, engine: InstalledEngine) -> Changes:
    """Return what setting a release up would change.

    Args:
        offer: the release.
        target: kind of machine, of that release.
        engine: engine in use.
    """
    before, after = engine.target.packages(), target.packages()
    return Changes(
        told=offer.release.changes,
        added={name: version for name, version in after.items() if name not in before},
        removed=tuple(name for name in before if name not in after),
        changed={
            name: (before[name], version)
            for name, version in after.items()
            if name in before and before[name] != version
        },
    )
