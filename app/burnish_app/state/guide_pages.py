"""The guide that ships with Burnish as pages and sections: in order, by place, and searched. No Qt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from burnish_engine.contract.paths import assets_dir

FIRST = "README.md"
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*$")
_LINK = re.compile(r"\]\(([\w-]+\.md)")
_MARKUP = re.compile(r"^[ \t]*\|?[-:| \t]{3,}$|^[ \t]*-[ \t]|!?\[([^\]]*)\]\([^)]*\)|[`*]+|(?P<cell>\|)", re.MULTILINE)
_EXCERPT = 160  # characters
_MOST_HITS = 60

PLACE_PROPERTY = "guide"
"""Dynamic property of a widget: the place of the guide that explains it and all that is in it."""
PLACES = {
    "start": "window.md",
    "hardware": "hardware.md",
    "model": "models.md",
    "data": "data.md",
    "recipe": "recipe.md",
    "train": "your-data.md#reading-the-curves",
    "try_out": "window.md#try-it-is-it-good",
    "export": "export-and-proof.md",
    "runs": "window.md#runs-what-has-been-trained-here",
    "compare": "window.md#compare-which-run-is-better-and-why",
    "sweep": "window.md#sweep-which-settings-are-best",
    "duel": "duels.md",
    "settings": "window.md#settings",
}
"""Place of the guide for each page of the window."""


@dataclass(frozen=True)
class GuideSection:
    """A section of a page, from its heading to the next one.

    Attributes:
        title: heading, without markup.
        anchor: name of the heading in links.
        text: text below it, without markup.
    """

    title: str
    anchor: str
    text: str


@dataclass(frozen=True)
class GuidePage:
    """A page of the guide.

    Attributes:
        file: name of its file.
        markdown: its text.
    """

    file: str
    markdown: str

    @cached_property
    def sections(self) -> tuple[GuideSection, ...]:
        """The sections in order; the first one is the page's own."""
        found: list[tuple[str, list[str]]] = []
        fenced = False
        for line in self.markdown.splitlines():
            fenced ^= line.startswith("```")
            heading = None if fenced else _HEADING.match(line)
            if heading:
                found.append((plain(heading[2]), []))
            elif found:
                found[-1][1].append(line)
        return tuple(GuideSection(title, anchor_of(title), plain("\n".join(lines))) for title, lines in found)

    @property
    def title(self) -> str:
        """The page's heading."""
        return self.sections[0].title if self.sections else self.file


@dataclass(frozen=True)
class GuideHit:
    """A section that holds all the words that were looked for.

    Attributes:
        place: page's file, "#" and the section's anchor.
        title: titles of page and section.
        excerpt: text around the first word.
    """

    place: str
    title: str
    excerpt: str


def plain(markdown: str) -> str:
    """Return Markdown without links, emphasis, code marks, list marks and table lines."""
    return " ".join(_MARKUP.sub(lambda match: match[1] or (" " if match["cell"] else ""), markdown).split())


def anchor_of(title: str) -> str:
    """Return the name that links use for a heading: lower case, words joined by hyphens, other signs left out."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def load_guide(folder: Path | None = None) -> list[GuidePage]:
    """Read the guide: its first page, then the others in the order in which that names them.

    Args:
        folder: folder of the pages; None: the one that ships with Burnish.
    """
    folder = folder or assets_dir() / "guide"
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    named = _LINK.findall(texts.get(FIRST, ""))
    order = [name for name in dict.fromkeys([FIRST, *named, *texts]) if name in texts]
    return [GuidePage(name, texts[name]) for name in order]


def search_guide(pages: Sequence[GuidePage], query: str) -> list[GuideHit]:
    """Find the sections that hold all words, in any case; those with a word in their heading come first.

    Args:
        pages: pages of the guide.
        query: words or parts of words, separated by spaces; without any, nothing is found.
    """
    wanted = query.casefold().split()
    if not wanted:
        return []
    titled, others = list[GuideHit](), list[GuideHit]()
    for page in pages:
        for section in page.sections:
            text = f"{section.title} {section.text}".casefold()
            if all(word in text for word in wanted):
                title = page.title if section is page.sections[0] else f"{page.title}: {section.title}"
                hit = GuideHit(f"{page.file}#{section.anchor}", title, _excerpt(section.text, wanted))
                (titled if any(word in section.title.casefold() for word in wanted) else others).append(hit)
    return [*titled, *others][:_MOST_HITS]


def _excerpt(text: str, wanted: Sequence[str]) -> str:
    """Cut the text around the first word that was looked for, at words."""
    places = [place for word in wanted if (place := text.casefold().find(word)) >= 0]
    start = max(min(places, default=0) - _EXCERPT // 3, 0)
    cut = text[start : start + _EXCERPT]
    if start:
        cut = f"... {cut.partition(' ')[2]}"
    return cut if start + _EXCERPT >= len(text) else f"{cut.rpartition(' ')[0]} ..."
