"""Keep the rows that a run's replies are scored on in its folder, so that later scores are of the same ones."""

from __future__ import annotations

from pydantic import ValidationError

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_plain, write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.scoring.score import TaskRows


def save_task_rows(paths: RunPaths, rows: TaskRows) -> None:
    """Write `task_rows.json`.

    Raises:
        NoSpaceError: The file cannot be written.
    """
    write_atomic(paths.task_rows, rows.model_dump_json(indent=1) + "\n")


def scored_tokens(paths: RunPaths) -> int:
    """Return the most tokens that a model writes when it is scored on a run's rows; 0 where it is not."""
    try:
        rows = load_task_rows(paths)
    except UsageError:
        return 0
    return len(rows.rows) * rows.section.max_tokens if rows is not None else 0


def load_task_rows(paths: RunPaths) -> TaskRows | None:
    """Read `task_rows.json`; None where the run scores nothing.

    Raises:
        UsageError: The file is damaged or cannot be read.
    """
    try:
        return TaskRows.model_validate_json(read_plain(paths.task_rows))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ValidationError) as error:
        raise UsageError(
            f"The rows that the run {paths.root.name} is scored on (task_rows.json) cannot be read: "
            f"{str(error).splitlines()[0]}.",
            "Copy the file back if you have it; without it the run is not scored.",
        ) from None
