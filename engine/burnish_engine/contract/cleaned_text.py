"""Texts made fit to be given away: without secrets, without the home folder, and without names of files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from burnish_engine.contract.files import is_file

_LINE_BYTES = 700  # a long line of a log
_SECRETS = (
    re.compile(r"\b(?:hf|sk|ghp|gho|github_pat|glpat|xox[abp])[_-][A-Za-z0-9_-]{12,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/-]{8,}=*"),
    re.compile(r"(?i)((?:token|password|passwd|secret|api[_-]?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]{4,}"),
)
_HIDDEN = "(hidden)"
_CODE = Path(__file__).resolve().parents[3]
"""Folder of Burnish's source, or of the packages that it is installed with."""
_ENDINGS = "jsonl?|csv|tsv|parquet|arrow|txt|md|toml|gguf|safetensors|jinja|zip|gz"
_PATH = re.compile(
    rf"""(?P<quote>["'`])(?P<quoted>(?:~|[A-Za-z]:)?[/\\][^"'`\n]*)(?P=quote)  # in quotes, perhaps with spaces
    | (?<![\w/\\<>.])(?P<plain>(?:~|[A-Za-z]:)?[/\\][^\s"'`,;:()\[\]{{}}<>]+)  # absolute, up to a space
    | (?<![\w/\\<>])(?P<relative>(?:[\w.-]+[/\\])*[\w-]+\.(?:{_ENDINGS}))\b  # a file of a known kind
    """,
    re.VERBOSE,
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
    return without_secrets(text)


def without_secrets(text: str) -> str:
    """Return the text with "(hidden)" for what looks like a token or a password."""
    for secret in _SECRETS:
        text = secret.sub(lambda found: (found[1] if found.re.groups else "") + _HIDDEN, text)
    return text


def last_lines(log: Path, most: int = 30) -> str:
    """Return the last lines of a log; empty where it cannot be read.

    Args:
        log: path of the log.
        most: most lines to return; empty ones are left out.
    """
    if not is_file(log):  # a pipe would never end
        return ""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - most * _LINE_BYTES, 0))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-most:])


def without_paths(text: str) -> str:
    """Return the text with `<path>` for each path that is not of code; what a file's name ends in stays.

    Paths of Burnish's own source, of installed packages and of Python's library stay from the folder on that they are
    in: `<burnish>/engine/burnish_engine/train/run.py`.
    """
    return _PATH.sub(_masked, text)


def _masked(found: re.Match[str]) -> str:
    quote = found["quote"] or ""
    path = found["quoted"] or found["plain"] or found["relative"]
    return f"{quote}{_masked_path(path.rstrip('.') if not quote else path)}{quote}"


def _masked_path(path: str) -> str:
    written = path.replace("\\", "/")
    if written.endswith(".py"):
        for mark in ("/site-packages/", f"/python{sys.version_info[0]}.{sys.version_info[1]}/"):
            if mark in written:
                return f"<{mark.strip('/')}>/{written.rpartition(mark)[2]}"
        code = _CODE.as_posix()
        if written.startswith(f"{code}/"):
            return f"<burnish>/{written.removeprefix(f'{code}/')}"
    ending = re.search(r"\.[A-Za-z0-9]{1,11}$", written)
    return f"<path>{ending[0] if ending else ''}"
