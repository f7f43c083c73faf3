"""One text with all that is needed to understand a failure elsewhere: to be copied, so without secrets and names."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from burnish_app.look.language import tr
from burnish_engine.contract.cleaned_text import cleaned, last_lines
from burnish_engine.contract.errors import EXIT_CODE_MEANINGS, ExitCode
from burnish_engine.contract.version import burnish_version


@dataclass(frozen=True)
class FailureDetails:
    """Facts of a failure.

    Attributes:
        what: what failed, such as "Run support-desk".
        title: cause in a few words.
        message: cause in sentences.
        exit_code: exit code of the process; None: it has none, or it is not known.
        process_end: how the process ended, where its parent saw it; may be empty.
        step: optimizer step that was reached, of how many; empty where there is none.
        device: device that trained, engine and precision.
        versions: versions of the software by name.
        recipe: path of the recipe; empty where there is none.
        log: path of the log whose last lines are added; None where there is none.
    """

    what: str
    title: str = ""
    message: str = ""
    exit_code: int | None = None
    process_end: str = ""
    step: str = ""
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    recipe: str = ""
    log: Path | None = None


def details_text(details: FailureDetails) -> str:
    """Write the facts of a failure, one to a line, and the last lines of its log.

    The home folder is written as ~, and what looks like a secret is hidden.
    """
    code = details.exit_code
    meaning = EXIT_CODE_MEANINGS.get(ExitCode(code), "") if code in set(ExitCode) else ""
    versions = {"Burnish": burnish_version(), "Python": platform.python_version(), **details.versions}
    lines = [
        (tr("What"), details.what),
        (tr("Cause"), ": ".join(part for part in (details.title, details.message) if part)),
        (tr("Exit code"), "" if code is None else f"{code} ({meaning})" if meaning else str(code)),
        (tr("Process"), details.process_end),
        (tr("Step"), details.step),
        (tr("Device"), details.device),
        (tr("System"), f"{platform.system()} {platform.release()} {platform.machine()}"),
        (tr("Versions"), ", ".join(f"{name} {version}" for name, version in versions.items())),
        (tr("Recipe"), details.recipe),
    ]
    text = "\n".join(f"{name}: {value}" for name, value in lines if value)
    log = last_lines(details.log) if details.log is not None else ""
    return (
        cleaned("\n".join([text, "", tr("Last lines of {log}:").format(log=details.log), log]) if log else text) + "\n"
    )
