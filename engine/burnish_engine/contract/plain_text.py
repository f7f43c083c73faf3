"""Makes text from data safe: control characters are spelled out before it is printed, and arguments are quoted.

So no name can steer a terminal, and a command can be typed as it stands.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import PurePath

# C0 and C1 controls except newline and tab; Unicode's line separators; the signs that turn the direction of text
# around (CVE-2021-42574); lone surrogates, which no encoding can write.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Spell out control characters, as `\x1b` or `\u202e`. Newline and tab stay.

    Args:
        text: text from a file, a name or an error of the system.
    """
    return _CONTROLS.sub(_spelled_out, text)


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: it holds no lone surrogates, which stand for undecodable bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def one_line(text: str) -> str:
    """Write a text on one line: like `printable`, and every line break becomes a space.

    Args:
        text: a sentence that may quote text from a file.
    """
    return printable(" ".join(text.splitlines()) if "\n" in text or "\r" in text else text)


def printable_json(document: str) -> str:
    r"""Write the control characters inside a JSON document's strings as `\u....`.

    Args:
        document: JSON text. Outside of strings it has no control characters but line breaks and tabs.
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def typed(argument: str | PurePath) -> str:
    """Quote an argument as a person types it into the shell of this system."""
    text = str(argument)
    return subprocess.list2cmdline([text]) if os.name == "nt" else shlex.quote(text)


def _spelled_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
