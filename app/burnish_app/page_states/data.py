"""What the page Data shows around its cards. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import Button, PageState, seen
from burnish_app.state.step_status import StepStatus
from burnish_app.wording.data_text import kept_rows_text
from burnish_app.wording.numbers import plural
from burnish_engine.contract.facts.data_report import FileStatus
from burnish_engine.contract.facts.facts import DatasetFacts


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What is known of the chosen data.

    Attributes:
        has_files: whether training files are chosen.
        dataset: facts about the data as it is chosen; None: not known.
        shown: facts that are shown: while the same files are inspected again, the former ones; None: none.
        is_busy: whether the data is inspected.
        is_filling: whether cards are still being filled with what is shown.
        has_failed: whether the inspection failed.
        asks_columns: whether the rows are shown, whose columns the person can name.
    """

    has_files: bool
    dataset: DatasetFacts | None
    shown: DatasetFacts | None
    is_busy: bool = False
    is_filling: bool = False
    has_failed: bool = False
    asks_columns: bool = False


def bad_files(dataset: DatasetFacts | None) -> list[FileStatus]:
    """Return the training files that cannot be trained on, as far as is known."""
    return [file for file in dataset.report.files if file.problem] if dataset and dataset.report else []


def page_state(known: DataFacts) -> PageState:
    """Say what is shown of the chosen data."""
    awaits = known.is_busy and known.shown is None
    subtitle = "" if known.has_files else tr("The conversations or texts your model shall learn from.")
    return PageState(
        status=_status(known),
        subtitle=kept_rows_text(known.shown) if known.shown is not None else subtitle,
        fills=awaits,
        parts=seen(empty=not known.has_files, held_out=known.has_files, busy=known.is_busy, to_come=awaits),
        primary=_primary(known),
    )


def _primary(known: DataFacts) -> Button:
    """Go on to the recipe, without the files that cannot be trained on."""
    bad, can_go_on = len(bad_files(known.dataset)), known.has_files and not known.has_failed
    if bad:
        text = tr("Leave out {files} and go on").format(files=plural(bad, "file"))
    elif not known.has_files:
        text = tr("Add data first")
    elif not known.has_failed:
        text = tr("Next: the recipe")
    else:
        text = tr("Say what the columns mean") if known.asks_columns else tr("Mend the data first")
    return Button(text=text, does="leave_out" if bad else "recipe", is_enabled=can_go_on)


def _status(known: DataFacts) -> StepStatus | None:
    if known.is_busy:
        return "busy"
    if known.is_filling:
        return None  # what the status is about is not all there yet
    if known.has_failed:
        return "attention"
    if known.dataset is not None:
        return "done" if known.dataset.train_rows and not bad_files(known.dataset) else "attention"
    return "ready" if known.has_files else "empty"
