"""News about runs, exports and duels that ended, or need a person, since the last look. No Qt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from burnish_app.look.language import tr
from burnish_app.wording.activity import duel_name, run_title
from burnish_app.wording.causes import CURES, failure_cause
from burnish_app.wording.numbers import first_sentence
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.run.duels import DuelFacts
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.serve.replies import RunSummary

NewsKind = Literal["done", "failed", "attention"]


@dataclass(frozen=True)
class News:
    """Something that a person who looks elsewhere wants to know.

    Attributes:
        kind: whether it went well, failed, or is running and needs the person.
        title: what happened to what, in a few words.
        text: one sentence more; may be empty.
        page: key of the page that shows it.
        folder: folder of the run or duel.
    """

    kind: NewsKind
    title: str
    text: str
    page: str
    folder: str


def run_news(before: Sequence[RunSummary], after: Sequence[RunSummary], since: float = math.inf) -> list[News]:
    """List what happened to runs and their exports between two looks.

    An older run that is listed for the first time, such as one that was opened or brought back, is no news.

    Args:
        before: runs at the earlier look.
        after: runs at the later look.
        since: time of the earlier look, seconds since 1970; what began later may have ended without being seen before.
    """
    known = {run.folder: run for run in before}
    found: list[News] = []
    for run in after:
        earlier = known.get(run.folder)
        if earlier is not None or run.state.created > since:
            found += filter(None, (_of_run(earlier, run), _of_export(earlier, run, since)))
    return found


def duel_news(before: Sequence[DuelFacts], after: Sequence[DuelFacts]) -> list[News]:
    """List what happened to duels between two looks."""
    was_running = {duel.folder for duel in before if duel.status == "running"}
    found = []
    for duel in after:
        if duel.folder in was_running and duel.status == "finished":
            title = tr("{name}: the verdict is there").format(name=duel_name(duel))
            found.append(News("done", title, duel.headline, "duel", duel.folder))
        elif duel.folder in was_running and duel.status == "stopped":
            title = tr("{name}: stopped").format(name=duel_name(duel))
            found.append(News("failed", title, plain_words(duel.message), "duel", duel.folder))
    return found


def _of_run(before: RunSummary | None, now: RunSummary) -> News | None:
    name, status = run_title(now), now.standing
    went_on = before is None or before.standing in ("created", "queued", "running", "paused", "not responding")
    if status == "finished" and went_on:
        loss = now.state.evaluation_loss
        text = tr("Held-out loss {loss:.3f}.").format(loss=loss) if loss is not None else ""
        return News("done", tr("{name} is trained").format(name=name), text, "train", now.folder)
    if status in ("failed", "interrupted") and went_on:
        cause = failure_cause(now, RunState())
        why = CURES[cause].title if cause is not None else tr("Interrupted")
        text = plain_words(first_sentence(now.state.message)[0]) if now.state.message else ""
        return News("failed", tr("{name}: {why}").format(name=name, why=why), text, "train", now.folder)
    if status == "not responding" and before is not None and before.standing in ("running", "paused"):
        return News("attention", tr("{name} does not respond").format(name=name), "", "train", now.folder)
    if status == "running" and now.state.suspicious and not (before is not None and before.state.suspicious):
        title = tr("{name} needs attention").format(name=name)
        return News("attention", title, first_sentence(now.state.verdict)[0], "train", now.folder)
    return None


def _of_export(before: RunSummary | None, now: RunSummary, since: float) -> News | None:
    earlier, job = before.export if before is not None else None, now.export
    if job is None:
        return None
    name = run_title(now)
    is_same = earlier is not None and earlier.started == job.started
    went_on = earlier is not None and earlier.status == "running" if is_same else job.started > since
    if not went_on:
        return None
    if job.status == "finished":
        return News("done", tr("{name} is exported").format(name=name), job.why, "export", now.folder)
    if job.status == "failed":
        title = tr("{name}: the export failed").format(name=name)
        return News(
            "failed", title, plain_words(first_sentence(job.message)[0]) if job.message else "", "export", now.folder
        )
    return None
