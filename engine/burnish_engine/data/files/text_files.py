"""Splits text files into documents and Markdown files into sections, one row each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain

from burnish_engine.data.files.discover import DatasetPart
from burnish_engine.data.files.problems import BrokenRowError
from burnish_engine.data.files.text_lines import text_lines

LONGEST_TEXT_CHARS = 16 * 2**20
"""Length from which a document of a text file continues as a further row, at a line, so that memory stays bounded."""

NumberedText = tuple[int, str | BrokenRowError]


def txt_rows(part: DatasetPart, encoding: str) -> Iterator[NumberedText]:
    """Yield the documents of a text file, runs of lines between blank lines, numbered by their first line."""
    begins, document, chars = 0, list[str](), 0
    for number, line in chain(text_lines(part, encoding), [(0, "")]):
        if isinstance(line, BrokenRowError):
            yield number, line
            continue
        blank = not line.strip()
        if document and (blank or chars + len(line) > LONGEST_TEXT_CHARS):
            yield begins, json.dumps({"text": "\n".join(document)})
            begins, document, chars = 0, [], 0
        if not blank:
            begins = begins or number
            document.append(line.rstrip("\r\n"))
            chars += len(line)


def markdown_rows(part: DatasetPart, encoding: str) -> Iterator[NumberedText]:
    """Yield the sections of a Markdown file, each from a heading of level 1 or 2 to the next, numbered by first line.

    Headings within fenced code are not headings.
    """
    begins, section, fence = 0, list[str](), ""
    for number, line in chain(text_lines(part, encoding), [(0, "# ")]):
        if isinstance(line, BrokenRowError):
            yield number, line
            continue
        bare = line.strip()
        if not fence and _HEADING.match(line):
            if text := "\n".join(section).strip():
                yield begins, json.dumps({"text": text})
            begins, section = 0, []
        if fence:
            fence = "" if bare.startswith(fence) and not bare.strip(fence[0]) else fence
        elif opening := _FENCE.match(bare):
            fence = opening[0]
        begins = begins or (number if bare else 0)
        section.append(line.rstrip())
    # An unclosed fence swallows the sentinel heading, which is removed here.
    if text := "\n".join(section).removesuffix("#").strip():
        yield begins, json.dumps({"text": text})


_HEADING = re.compile(r"#{1,2}\s")
_FENCE = re.compile(r"`{3,}|~{3,}")
