"""The logs that the window shows: what engine, window and set-up said. No Qt."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from burnish_app.look.language import tr
from burnish_engine.contract.cleaned_text import last_lines
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.install.engines import Engines, engine_home

MOST_LINES = 500


class LogFile(NamedTuple):
    """A log.

    Attributes:
        key: name by which it is chosen.
        title: name for people.
        path: file that holds it.
    """

    key: str
    title: str
    path: Path


def log_files(engine_log: Path) -> list[LogFile]:
    """Return the logs there may be.

    Args:
        engine_log: file of what the engine says.
    """
    data = user_data_dir()
    return [
        LogFile("engine", tr("Engine"), engine_log),
        LogFile("errors", tr("Errors"), data / "serve.log"),
        LogFile("window", tr("Last bug"), data / "last-error.log"),
        LogFile("set_up", tr("Set-up"), Engines(engine_home(data)).log),
    ]


def log_text(log: LogFile) -> str:
    """Return the last lines of a log; a sentence where there is none."""
    text = last_lines(log.path, MOST_LINES) if log.path.is_file() else ""
    return text or tr("Nothing was written here yet.")
