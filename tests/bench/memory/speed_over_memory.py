"""Draw speed over memory, ours and the peer's, from measured rows.

    python tests/bench speed_over_memory tests/bench/memory/speed_over_memory.jsonl assets/plots/speed-over-memory.svg

Rows have engine, shape, tok_s and allocated_gib (torch's peak), such as `on_gpu curve` and `peers` measure them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from burnish_engine.html_page.plots import CurveLine, Frame, curve_plot
from burnish_engine.html_page.style import palette
from burnish_engine.html_page.svg import marker, polyline

from bench.shared.rows import read_rows

ENGINES = {"burnish": "Burnish, planned for a budget", "unsloth": "Unsloth, offloading or not"}
TITLES = {
    "qwen3-0.6b": "Qwen3-0.6B, LoRA",
    "llama-3.2-1b": "Llama-3.2-1B, LoRA",
    "qwen3-4b": "Qwen3-4B, QLoRA",
}
WIDTH, HEIGHT, GAP, TOP = 340, 250, 20, 58


def panel(shape: str, rows: list[dict[str, Any]], left: int) -> str:
    """One model's plot, with its title."""
    lines = []
    for side, engine in enumerate(ENGINES):
        own = [row for row in rows if (row["engine"], row["shape"]) == (engine, shape)]
        spots = sorted((row["allocated_gib"], row["tok_s"] / 1000) for row in own)
        # Settings of the peer's are single points: there is nothing between them.
        pieces = [spots] if engine == "burnish" else [[spot] for spot in spots]
        lines += [CurveLine(side, piece, marked=True) for piece in pieces]
    plot = curve_plot(lines, Frame(TITLES[shape], "GiB that torch allocated at most", WIDTH, HEIGHT))
    shapes = plot.partition("</title>")[2].removesuffix("</svg>")
    title = words(58, -8, TITLES[shape], 14)
    return f'<g transform="translate({left} {TOP})">{title}{shapes}</g>'


def words(x: int, y: int, said: str, size: int) -> str:
    """A piece of text."""
    return f'<text x="{x}" y="{y}" fill="var(--text)" font-size="{size}">{said}</text>'


def drawing(rows: list[dict[str, Any]]) -> str:
    """All panels and a legend."""
    width = len(TITLES) * (WIDTH + GAP)
    parts = [panel(shape, rows, place * (WIDTH + GAP)) for place, shape in enumerate(TITLES)]
    for side, name in enumerate(ENGINES.values()):
        left = 58 + 260 * side
        parts += [marker(side, (left + 21, 15)), words(left + 52, 19, name, 13)]
    parts.append(polyline([(58, 15), (100, 15)], 0))  # only ours is a line
    parts.append(words(58 + 520, 19, "thousand tokens/s, 16,384 tokens a step, H100; axes are cut", 13))
    look = f"{palette()} text {{ font-family: system-ui, sans-serif; }}"
    box = f'viewBox="0 0 {width} {TOP + HEIGHT}" width="{width}" role="img" aria-label="Speed over memory"'
    page = '<rect width="100%" height="100%" fill="var(--surface)"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}><style>{look}</style>{page}{"".join(parts)}</svg>\n'


def main() -> None:
    """Read the rows, write the drawing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("drawing", type=Path)
    options = parser.parse_args()
    if not options.rows.is_file():
        parser.error(f"there are no rows at {options.rows}")
    rows = read_rows(options.rows)
    unknown = {
        (row["engine"], row["shape"]) for row in rows if row["engine"] not in ENGINES or row["shape"] not in TITLES
    }
    if unknown:
        parser.error(f"no panel shows {sorted(unknown)}; name them in ENGINES and TITLES")
    options.drawing.parent.mkdir(parents=True, exist_ok=True)
    options.drawing.write_text(drawing(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
