"""Computes the state of the page Data: status, progress, and what its button does. No Qt."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState, PageState, seen
from burnish_app.state.step_status import StepStatus
from burnish_app.wording.data_text import kept_rows_text
from burnish_app.wording.numbers import plural
from burnish_engine.contract.facts.data_report import FileStatus
from burnish_engine.contract.facts.facts import DatasetFacts


def bad_files(dataset: DatasetFacts | None) -> list[FileStatus]:
    """Return the training files that cannot be trained on, as far as is known."""
    return [file for file in dataset.report.files if file.problem] if dataset and dataset.report else []


def page_state(
    dataset: DatasetFacts | None,
    shown: DatasetFacts | None,
    *,
    has_files: bool,
    is_busy: bool = False,
    is_filling: bool = False,
    has_failed: bool = False,
    asks_columns: bool = False,
) -> PageState:
    """Return the state of the page for the chosen data.

    Args:
        dataset: facts about the data as it is chosen; None: not known.
        shown: facts that are shown: while the same files are inspected again, the former ones; None: none.
        has_files: whether training files are chosen.
        is_busy: whether the data is inspected.
        is_filling: whether cards are still being filled with what is shown.
        has_failed: whether the inspection failed.
        asks_columns: whether the rows are shown, whose columns the person can name.
    """
    awaits, bad = is_busy and shown is None, len(bad_files(dataset))
    status = _status(dataset, is_busy=is_busy, has_failed=has_failed, has_files=has_files)
    subtitle = "" if has_files else tr("The conversations or texts your model shall learn from.")
    return PageState(
        status=status if is_busy or not is_filling else None,  # it is about all cards
        subtitle=kept_rows_text(shown) if shown is not None else subtitle,
        fills=awaits,
        parts=seen(empty=not has_files, held_out=has_files, busy=is_busy, to_come=awaits),
        primary=_primary(bad, has_files=has_files, has_failed=has_failed, asks_columns=asks_columns),
    )


def _primary(bad: int, *, has_files: bool, has_failed: bool, asks_columns: bool) -> ButtonState:
    """Continue to the recipe, without the files that cannot be trained on."""
    if bad:
        text = tr("Leave out {files} and continue").format(files=plural(bad, "file"))
    elif not has_files:
        text = tr("Add data first")
    elif not has_failed:
        text = tr("Next: the recipe")
    else:
        text = tr("Say what the columns mean") if asks_columns else tr("Mend the data first")
    return ButtonState(text=text, does="leave_out" if bad else "recipe", is_enabled=has_files and not has_failed)


def _status(dataset: DatasetFacts | None, *, is_busy: bool, has_failed: bool, has_files: bool) -> StepStatus:
    if is_busy:
        return "busy"
    if has_failed:
        return "attention"
    if dataset is not None:
        return "done" if dataset.train_rows and not bad_files(dataset) else "attention"
    return "ready" if has_files else "empty"
