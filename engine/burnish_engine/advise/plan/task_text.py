"""Say at plan time which held-out rows the score of a task finds, and refuse one that finds none."""

from __future__ import annotations

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.recognize import is_suggested
from burnish_engine.scoring.score import NO_ROW_REMEDY, no_row_text


def task_notes(section: TaskSection, dataset: DatasetFacts | None) -> list[str]:
    """List what a person should know of the rows that are scored.

    Args:
        section: section of the recipe.
        dataset: facts on the data; None: not known.

    Raises:
        UsageError: Somebody chose a metric that can score no held-out row. A suggested one is left out of the run.
    """
    report = dataset.report if dataset is not None else None
    fit = report.task_fit if report is not None else None
    if report is None or fit is None or not section.is_active:
        return []
    same = fit.section == section  # else facts of another score, which only say whether any could be
    if not (fit.rows if same else fit.usable_rows):
        text = no_row_text(section, fit.left_out)
        if is_suggested(section, report.task):
            return [f"{text} It was suggested, and is left out."]
        if not report.sampled_rows:
            raise UsageError(text, NO_ROW_REMEDY)
        return [text]
    notes = []
    if same and fit.left_out:
        left_out = "; ".join(f"{count} not scored: {why}" for why, count in fit.left_out.items())
        notes.append(f"The task is scored on {fit.rows} held-out rows ({left_out}).")
    if same and fit.long_replies:
        notes.append(
            f"The own replies of {fit.long_replies} of {fit.rows} scored rows do not end within "
            f"{section.max_tokens:,} tokens (task.max_tokens). A reply that is cut there is not right: allow more."
        )
    return notes
