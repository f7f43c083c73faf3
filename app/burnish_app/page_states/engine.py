"""Computes what the card of the engine shows: asked, fetching, paused, failed or done. No Qt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from burnish_app.engine_setup.setup_facts import EngineSetupFacts
from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState
from burnish_app.wording.numbers import duration_text
from burnish_engine.contract.units import file_size
from burnish_engine.install.offer import Changes

Phase = Literal["unknown", "asked", "busy", "paused", "failed", "done"]
_DOING = {
    "looking": tr("Looking for a release"),
    "fetching": tr("Fetching"),
    "unpacking": tr("Unpacking"),
    "installing": tr("Installing"),
    "trying": tr("Trying it out"),
    "checking": tr("Checking the files"),
    "switching": tr("Going back"),
    "moving": tr("Moving the engine"),
    "removing": tr("Removing the engine"),
    "bundling": tr("Making the bundle"),
}
_FAILED = {
    "looking": tr("No release could be read"),
    "checking": tr("The repair failed"),
    "switching": tr("Going back failed"),
    "moving": tr("The engine was not moved"),
    "removing": tr("The engine was not removed"),
    "bundling": tr("The bundle was not made"),
}
_ALONE = frozenset({"repair", "move", "remove"})
"""Buttons of what would take the engine from under a run."""
_MOST_CHANGES = 6


@dataclass(frozen=True, kw_only=True)
class EngineState:
    """The state of the engine's card.

    Attributes:
        phase: where the set-up is.
        headline: what there is to say, in a few words.
        lines: sentences under it.
        problem: what failed, and what to do; empty: nothing.
        share: done share of the work, 0 to 1; None: not known.
        has_bar: whether a bar is shown.
        primary: main button; None: it is hidden.
        buttons: names of the further buttons that are shown.
        blocked: names of those of them that cannot be pressed now.
        rollback_text: text of the button that switches back.
    """

    phase: Phase
    headline: str
    lines: tuple[str, ...] = ()
    problem: tuple[str, str] = ("", "")
    share: float | None = None
    has_bar: bool = False
    primary: ButtonState | None = None
    buttons: frozenset[str] = field(default_factory=frozenset)
    blocked: frozenset[str] = field(default_factory=frozenset)
    rollback_text: str = ""


def engine_state(facts: EngineSetupFacts) -> EngineState:
    """Return what the card shows for the facts."""
    if facts.doing:
        return _busy(facts)
    if facts.problem[0]:
        headline = _FAILED.get(facts.failed, tr("The set-up failed"))
        return _with_buttons(facts, "failed", headline, (), ButtonState(text=tr("Try again")))
    if facts.is_paused:
        kept = tr("What came so far is kept, also when the PC is switched off.")
        missing = tr("{missing} are still missing.").format(missing=file_size(facts.fetch_bytes))
        lines = (missing, kept) if facts.fetch_bytes else (kept,)
        return _with_buttons(facts, "paused", tr("Paused"), lines, ButtonState(text=tr("Continue")))
    if not facts.in_use:
        return _asked(facts)
    return _done(facts)


def _busy(facts: EngineSetupFacts) -> EngineState:
    reading = facts.reading
    lines: tuple[str, ...] = ()
    share = None
    if reading is not None and reading.total_bytes and facts.doing in ("fetching", "bundling"):
        share = reading.done_bytes / reading.total_bytes
        lines = (_fetch_text(facts),)
    if facts.in_use and facts.doing in ("fetching", "unpacking", "installing", "trying"):
        lines = (*lines, tr("The engine in use stays as it is until the new one works."))
    can_pause = facts.doing not in ("looking", "switching", "removing")
    return EngineState(
        phase="busy",
        headline=_DOING[facts.doing],
        lines=lines,
        share=share,
        has_bar=True,
        buttons=frozenset({"pause"}) if can_pause else frozenset(),
    )


def _fetch_text(facts: EngineSetupFacts) -> str:
    reading = facts.reading
    assert reading is not None
    text = tr("{done} of {total}").format(done=file_size(reading.done_bytes), total=file_size(reading.total_bytes))
    if reading.rate is not None and reading.left_s is not None:
        text = tr("{text}, {rate}, {left} left").format(
            text=text, rate=_rate_text(reading.rate), left=duration_text(reading.left_s)
        )
    return text


def _rate_text(rate: float) -> str:
    return tr("{rate} MB/s").format(rate=f"{rate / 1e6:.1f}")


def _asked(facts: EngineSetupFacts) -> EngineState:
    if not facts.offered:
        return _with_buttons(
            facts,
            "unknown",
            tr("The engine is not set up yet"),
            (tr("It trains, replies and exports. The window fetches it once; later no network is needed."),),
            ButtonState(text=tr("Look for the engine")),
        )
    return _with_buttons(
        facts,
        "asked",
        tr("Set the engine up?"),
        (*_sizes(facts), tr("It goes into {place}.").format(place=facts.place)),
        ButtonState(text=tr("Set up"), is_enabled=_has_room(facts)),
    )


def _done(facts: EngineSetupFacts) -> EngineState:
    lines = tuple(filter(None, (facts.note, tr("It lies in {place}.").format(place=facts.place))))
    headline = tr("Engine {version}").format(version=facts.in_use)
    if not facts.is_update:
        return _with_buttons(facts, "done", headline, lines, None)
    told = () if facts.changes is None else _change_lines(facts.changes)
    return _with_buttons(
        facts,
        "asked",
        tr("Burnish {version} is there").format(version=facts.offered),
        (*told, *_sizes(facts)),
        ButtonState(text=tr("Install it beside the engine in use"), is_enabled=_has_room(facts)),
    )


def _sizes(facts: EngineSetupFacts) -> tuple[str, ...]:
    if facts.fetch_bytes:
        fetched = tr("{size} come from {source}.").format(size=file_size(facts.fetch_bytes), source=facts.source)
    else:
        fetched = tr("All files are in {source}: nothing is downloaded.").format(source=facts.source)
    room = (
        tr("{needed} are written, and {free} are free there.")
        if _has_room(facts)
        else tr("Too little space: {needed} are written, and only {free} are free there. Choose another drive.")
    )
    return fetched, room.format(needed=file_size(facts.disk_bytes), free=file_size(facts.free_bytes))


def _has_room(facts: EngineSetupFacts) -> bool:
    return facts.free_bytes >= facts.disk_bytes


def _change_lines(changes: Changes) -> tuple[str, ...]:
    moved = [f"{name} {before} → {after}" for name, (before, after) in changes.changed.items()]
    moved += [f"{name} {version} ({tr('new')})" for name, version in changes.added.items()]
    moved += [f"{name} ({tr('gone')})" for name in changes.removed]
    more = len(moved) - _MOST_CHANGES
    shown = ", ".join(moved[:_MOST_CHANGES])
    if more > 0:
        shown = tr("{shown} and {more} more").format(shown=shown, more=more)
    return (*changes.told, *([tr("Packages: {shown}.").format(shown=shown)] if moved else []))


def _with_buttons(
    facts: EngineSetupFacts, phase: Phase, headline: str, lines: tuple[str, ...], primary: ButtonState | None
) -> EngineState:
    names = {"bundle_from", *(("updates", "bundle", *_ALONE) if facts.in_use else ())}
    blocked = names & _ALONE if facts.has_runs else frozenset()
    if blocked:
        lines = (*lines, tr("While something is running, the engine is not repaired, moved or removed."))
    names |= {"place"} if not facts.in_use and facts.offered else set()
    names |= {"roll_back"} if facts.former else set()
    return EngineState(
        phase=phase,
        headline=headline,
        lines=lines,
        problem=facts.problem,
        primary=primary,
        buttons=frozenset(names),
        blocked=frozenset(blocked),
        rollback_text=tr("Go back to {version}").format(version=facts.former) if facts.former else "",
    )
