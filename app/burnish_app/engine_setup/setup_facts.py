"""The facts about the engine that the window shows, and where a release may come from. No Qt."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.engines import Engines, InstalledEngine
from burnish_engine.install.files.meter import FetchReading
from burnish_engine.install.files.sources import Source, open_source
from burnish_engine.install.machine.choose_builds import choose
from burnish_engine.install.machine.machine_facts import detect
from burnish_engine.install.offer import (
    RELEASE_VARIABLE,
    Changes,
    ReleaseOffer,
    changes,
    is_newer,
    read_offer,
    trusted_key,
)
from burnish_engine.install.release.description import target_name
from burnish_engine.install.set_up import Order

Doing = Literal[
    "", "looking", "fetching", "unpacking", "installing", "trying", "checking", "switching", "moving", "removing",
    "bundling",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EngineSetupFacts:
    """The facts about the engine.

    Attributes:
        doing: what is being done; empty: nothing.
        in_use: version and build of the engine in use; empty: there is none.
        former: version and build of the engine before it; empty: there is none.
        place: folder that engines go into.
        offered: version that can be set up; empty: none is known.
        is_update: whether it is newer than the engine in use.
        source: place that it comes from.
        changes: what it would change.
        fetch_bytes: bytes that come over the network.
        disk_bytes: bytes that are written.
        free_bytes: free bytes in the place.
        reading: how far the fetch is.
        is_paused: whether the set-up was paused.
        problem: what failed, and what to do; empty: nothing.
        failed: what was being done when it failed.
        has_runs: whether something is running that needs the engine where it is.
        note: what went well, as a sentence.
    """

    doing: Doing = ""
    in_use: str = ""
    former: str = ""
    place: str = ""
    offered: str = ""
    is_update: bool = False
    source: str = ""
    changes: Changes | None = None
    fetch_bytes: int = 0
    disk_bytes: int = 0
    free_bytes: int = 0
    reading: FetchReading | None = None
    is_paused: bool = False
    problem: tuple[str, str] = ("", "")
    failed: Doing = ""
    has_runs: bool = False
    note: str = ""


@dataclass(frozen=True)
class Found:
    """A release that was found.

    Attributes:
        offer: the release.
        order: the engine of it for this machine.
    """

    offer: ReleaseOffer
    order: Order


def open_places(places: list[str]) -> list[Source]:
    """Open places of releases.

    Raises:
        SetupError: There is none.
    """
    if not places:
        raise SetupError(
            "No release of Burnish's engine is known to this window.",
            f"Choose a bundle, or name a release's address in {RELEASE_VARIABLE} and start the window again.",
        )
    return [open_source(one) for one in places]


def find_release(places: list[str], place: Path) -> Found:
    """Look for a release for this machine.

    Args:
        places: places of releases, the first one's description counts; files may come from all.
        place: folder that the engine goes into.

    Raises:
        SetupError: There is none, it is not signed, or it has no engine for this machine.
    """
    sources = open_places(places)
    offer = read_offer(sources[0], trusted_key(os.environ))
    facts = detect(place, {**os.environ, "BURNISH_TORCH_INDEX": sources[0].place}, offer.release.python)
    # What was detected about the window's Python is not so of the one in the release, which has its headers.
    chosen = choose(replace(facts, python_headers=True, python_bits=64, free_threaded=False))
    if chosen.error:
        raise SetupError(chosen.error)
    return Found(offer, Order(offer.release, offer.release.target(target_name(facts, chosen.build)), sources, place))


def facts_of(engines: Engines, place: Path, found: Found | None) -> EngineSetupFacts:
    """Return the facts while nothing is being done."""
    current, former = engines.current, engines.former
    shown = EngineSetupFacts(
        in_use=_named(current), former=_named(former), place=str(place), free_bytes=_free_bytes(place)
    )
    if found is None:
        return shown
    order = found.order
    return replace(
        shown,
        offered=found.offer.release.version,
        is_update=current is not None and is_newer(found.offer, current),
        source=order.sources[0].place,
        changes=None if current is None else changes(found.offer, order.target, current),
        fetch_bytes=order.missing_bytes(),
        disk_bytes=order.disk_bytes(),
    )


def _named(engine: InstalledEngine | None) -> str:
    return "" if engine is None else f"{engine.release.version} ({engine.target.name.rpartition('-')[2]})"


def _free_bytes(place: Path) -> int:
    there = next((one for one in (place, *place.parents) if one.is_dir()), None)
    return 0 if there is None else shutil.disk_usage(there).free
