"""Parts of a report: the page, sections, cards, figures, tables, replies and commands. Text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from burnish_engine.contract.paths import assets_dir
from burnish_engine.contract.version import burnish_version
from burnish_engine.html_page.style import style


class Figure(NamedTuple):
    """A large figure.

    Attributes:
        value: the figure with its unit.
        label: what it is, in a few words.
        live: whether it is what the report is about.
    """

    value: str
    label: str
    live: bool = False


def page(title: str, kind: str, body: Iterable[str]) -> str:
    """Assemble a whole page, which loads nothing.

    Args:
        title: title of the page; the heading is the body's.
        kind: kind of report, such as "Demo report".
        body: parts of the page, as HTML.
    """
    mark = (
        (assets_dir() / "icons" / "burnish.svg")
        .read_text(encoding="utf-8")
        .replace("<svg ", '<svg aria-hidden="true" ')
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{style()}</style></head><body><main>\n"
        f'<div class="mark">{mark}Burnish<span class="muted">{text(kind)}</span></div>\n{"".join(body)}'
        f"<footer>Made with Burnish {text(burnish_version())}.</footer></main></body></html>\n"
    )


def heading(title: str, headline: str = "", about: str = "") -> str:
    """Render the page's heading, what it comes to, and a quiet line about it."""
    lines = [f"<h1>{text(title)}</h1>"]
    lines += [f'<p class="headline">{text(headline)}</p>'] if headline else []
    lines += [f'<p class="muted">{text(about)}</p>'] if about else []
    return "".join(lines) + "\n"


def section(title: str, *parts: str, printed: bool = True) -> str:
    """Render a section; empty without parts.

    Args:
        title: heading of the section.
        parts: HTML of the section.
        printed: whether it is on paper too, which has one page.
    """
    inner = "".join(parts)
    kind = "" if printed else ' class="more"'
    return f"<section{kind}><h2>{text(title)}</h2>{inner}</section>\n" if inner else ""


def paragraph(content: str, kind: str = "") -> str:
    """Render a paragraph of plain text; empty without text."""
    return f"<p{_class(kind)}>{text(content)}</p>" if content else ""


def figures(entries: Sequence[Figure]) -> str:
    """Render large figures side by side."""
    cards = (
        f'<div class="card"><b{_class("live" if one.live else "")}>{text(one.value)}</b>'
        f'<span class="muted">{text(one.label)}</span></div>'
        for one in entries
    )
    return f'<div class="figures">{"".join(cards)}</div>\n'


def card(title: str, content: str, kind: str = "") -> str:
    """Render a card with a plot or a table; empty without content."""
    head = f"<h3>{text(title)}</h3>" if title else ""
    return f'<div class="{f"card {kind}".strip()}">{head}<div class="scroll">{content}</div></div>' if content else ""


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False, caption: str = "") -> str:
    """Render a table of cells that are HTML already.

    Args:
        titles: headings of the columns; all empty: the table has no head.
        rows: cells of each row.
        numbers: whether all columns but the first are numbers.
        caption: caption above the table.
    """
    kind = ' class="num"' if numbers else ""
    head = "".join(f'<th scope="col"{kind if place else ""}>{text(title)}</th>' for place, title in enumerate(titles))
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    above = f"<caption>{text(caption)}</caption>" if caption else ""
    head = f"<thead><tr>{head}</tr></thead>" if any(titles) else ""
    return f'<div class="scroll"><table>{above}{head}<tbody>{body}</tbody></table></div>' if rows else ""


def head_cell(content: str, rows: int = 1) -> str:
    """Render the cell that names a row, or several rows."""
    span = f' rowspan="{rows}"' if rows > 1 else ""
    return f'<th scope="row"{span}>{text(content)}</th>'


def cell(content: Any, kind: str = "") -> str:
    """Render a cell of a table."""
    return f"<td{_class(kind)}>{text(content)}</td>"


def code_cell(content: str) -> str:
    """Render a cell with a name or a value as it is typed."""
    return f"<td><code>{text(content)}</code></td>"


def number(content: Any) -> str:
    """Render a cell with a number."""
    return cell(content, "num")


def replies(prompt: str, given: Sequence[tuple[str, str]]) -> str:
    """Render replies to a prompt side by side, each with the name of who gave it; the last is what was made."""
    kinds = ["" for _ in given[:-1]] + ["live" if len(given) > 1 else ""]
    inner = "".join(
        f'<div class="card reply"><small{_class(kind)}>{text(name)}</small>{text(reply)}</div>'
        for kind, (name, reply) in zip(kinds, given, strict=True)
    )
    shown = f'<div class="pair">{inner}</div>' if len(given) > 1 else inner
    return (f'<p class="prompt">{text(prompt)}</p>' if prompt else "") + shown


def commands(lines: Sequence[str], about: str = "") -> str:
    """Render commands to type, and a line about them."""
    return f"<pre>{text(chr(10).join(lines))}</pre>{paragraph(about, 'muted small')}" if lines else ""


def text(value: Any) -> str:
    """Escape text for a page."""
    return html.escape(str(value))


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
