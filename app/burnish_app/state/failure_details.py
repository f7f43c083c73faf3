"""One text with all that is needed to understand a failure elsewhere: to be copied, so without secrets and names."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from burnish_app.look.language import tr
from burnish_engine.contract.errors import EXIT_CODE_MEANINGS, ExitCode
from burnish_engine.contract.files import is_file
from burnish_engine.contract.version import burnish_version

_LOG_LINES, _LOG_BYTES = 30, 20_000
_SECRETS = (
    re.compile(r"\b(?:hf|sk|ghp|gho|github_pat|glpat|xox[abp])[_-][A-Za-z0-9_-]{12,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/-]{8,}=*"),
    re.compile(r"(?i)((?:token|password|passwd|secret|api[_-]?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]{4,}"),
)
_HIDDEN = "(hidden)"


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


def cleaned(text: str, home: Path | None = None) -> str:
    """Return the text without secrets, and with ~ for the home folder.

    Args:
        text: text to clean.
        home: home folder; None: the person's.
    """
    folder = str(home or Path.home()).rstrip("/\\")
    if len(folder) > 1:
        for written in {folder, folder.replace("\\", "/"), folder.replace("\\", "\\\\")}:
            text = re.sub(re.escape(written) + r"(?![\w.-])", "~", text)
    for secret in _SECRETS:
        text = secret.sub(lambda found: (found[1] if found.re.groups else "") + _HIDDEN, text)
    return text


def last_lines(log: Path) -> str:
    """Return the last lines of a log; empty where it cannot be read."""
    if not is_file(log):  # a pipe would never end
        return ""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - _LOG_BYTES, 0))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-_LOG_LINES:])
