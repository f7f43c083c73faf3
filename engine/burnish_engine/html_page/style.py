"""The look of a report: colors, type and sizes of the window, for light and dark screens and for one sheet of paper."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from typing import Final

from burnish_engine.contract.paths import assets_dir

LIGHT: Mapping[str, str] = {
    "window": "#f7f5f1", "surface": "#fffefc", "raised": "#f3f0ea", "line": "#e6e2da", "edge": "#8f877b",
    "text": "#211e1a", "muted": "#625b51", "accent_ink": "#8f5500", "error": "#b3261e", "warning": "#646400",
    "warning_soft": "#f5f3bd", "success": "#12694d", "s0": "#c97a00", "s1": "#0072b2", "s2": "#00805d",
    "s3": "#a8487f",
}  # fmt: skip
"""Colors of the light look, by the names that the window's tokens have; s0 to s3 are its kinds of chart lines."""
DARK: Mapping[str, str] = {
    "window": "#191715", "surface": "#221f1c", "raised": "#2d2925", "line": "#35312c", "edge": "#7b7164",
    "text": "#ece7df", "muted": "#aba295", "accent_ink": "#f3b35a", "error": "#f2928a", "warning": "#d9d65a",
    "warning_soft": "#37361a", "success": "#7fd0a8", "s0": "#f0a02c", "s1": "#56b4e9", "s2": "#3fc79c",
    "s3": "#dd90b8",
}  # fmt: skip
"""The same for the dark look."""

FACES: Final = (
    ("Inter", 400, "inter/Inter-Regular"),
    ("Inter", 600, "inter/Inter-SemiBold"),
    ("JetBrains Mono", 400, "jetbrains-mono/JetBrainsMono-Regular"),
)
"""Typefaces in a page: family, weight, and file below `assets/fonts`, without its ending."""
_TEXT, _MONO = "Inter,system-ui,sans-serif", "'JetBrains Mono',ui-monospace,monospace"


def style() -> str:
    """Return the style sheet, with the typefaces in it: a report loads nothing."""
    return f"{_faces()}\n{palette()}\n{_SCREEN}{_PRINT}"


def palette() -> str:
    """Return the colors alone, as variables, for drawings that are files of their own."""
    dark = f"@media screen and (prefers-color-scheme:dark) {{ :root {{ {_colors(DARK)} }} }}"
    return f":root {{ {_colors(LIGHT)} }}\n{dark}"


def _colors(colors: Mapping[str, str]) -> str:
    return " ".join(f"--{name}:{color};" for name, color in colors.items())


@functools.cache
def _faces() -> str:
    faces = []
    for family, weight, name in FACES:
        font = base64.b64encode((assets_dir() / "fonts" / f"{name}.woff2").read_bytes()).decode()
        source = f"src:url(data:font/woff2;base64,{font}) format('woff2')"
        faces.append(f"@font-face {{ font-family:'{family}'; font-weight:{weight}; {source}; }}")
    return "\n".join(faces)


_SCREEN = f"""
:root {{ color-scheme:light dark; }}
* {{ box-sizing:border-box; }}
body {{ margin:0; background:var(--window); color:var(--text); font:14px/1.5 {_TEXT};
  font-variant-numeric:tabular-nums; -webkit-print-color-adjust:exact; print-color-adjust:exact; }}
main {{ max-width:60rem; margin:0 auto; padding:24px 32px 64px; }}
.mark {{ display:flex; align-items:center; gap:8px; font-weight:600; margin-bottom:32px; }}
.mark svg {{ width:22px; height:22px; color:var(--s0); }} .mark span {{ margin-left:auto; font-weight:400; }}
h1 {{ font-size:28px; line-height:1.2; letter-spacing:-.5px; font-weight:600; margin:0 0 8px; overflow-wrap:anywhere; }}
h2 {{ font-size:18px; line-height:1.3; letter-spacing:-.2px; font-weight:600; margin:40px 0 12px; }}
h3 {{ font-size:14px; font-weight:600; margin:0 0 8px; }}
p {{ margin:0 0 12px; max-width:46rem; overflow-wrap:anywhere; }} b, strong {{ font-weight:600; }}
.muted, small, caption {{ color:var(--muted); }} .small, small {{ font-size:12px; }}
.headline {{ font-size:16px; }} .live {{ color:var(--accent_ink); font-weight:600; }}
.good {{ color:var(--success); }} .bad {{ color:var(--error); }}
.note {{ background:var(--warning_soft); color:var(--warning); border-radius:8px; padding:12px 16px; max-width:none; }}
.card {{ background:var(--surface); border:1px solid var(--line); border-radius:12px; padding:20px; margin:0 0 20px; }}
.figures {{ display:grid; grid-template-columns:repeat(auto-fit,minmax(11rem,1fr)); gap:20px; margin:24px 0 0; }}
.figures .card {{ margin:0; }}
.figures b {{ display:block; font-size:28px; line-height:1.2; letter-spacing:-.5px; margin-bottom:4px; }}
.plots {{ display:grid; grid-template-columns:repeat(auto-fit,minmax(17rem,1fr)); gap:20px; margin-bottom:20px; }}
.plots .card {{ margin:0; }}
.legend {{ display:flex; flex-wrap:wrap; gap:4px 24px; margin:0 0 12px; }}
.legend span {{ display:inline-flex; align-items:center; gap:8px; overflow-wrap:anywhere; }}
.scroll {{ overflow-x:auto; }} .card > .scroll > table {{ margin:0; }}
table {{ border-collapse:collapse; width:100%; margin:0 0 20px; }} caption {{ text-align:left; padding-bottom:8px; }}
th {{ text-align:left; font-weight:600; }} thead th {{ color:var(--muted); font-size:12px; }}
th, td {{ padding:8px 16px 8px 0; vertical-align:top; }} td:last-child, th:last-child {{ padding-right:0; }}
tbody tr {{ border-top:1px solid var(--line); }} td.num, th.num {{ text-align:right; white-space:nowrap; }}
code, pre {{ font:12px/1.6 {_MONO}; overflow-wrap:anywhere; }}
pre {{ background:var(--raised); border-radius:8px; padding:12px 16px; white-space:pre-wrap; margin:0 0 12px; }}
.pair {{ display:grid; grid-template-columns:1fr 1fr; gap:20px; margin-bottom:20px; }}
.reply {{ white-space:pre-wrap; margin:0; }} .reply small {{ display:block; margin-bottom:4px; }}
.prompt {{ font-weight:600; margin:20px 0 8px; }}
details summary {{ cursor:pointer; margin:8px 0 12px; }}
.runs tbody th {{ white-space:nowrap; }} .runs td:last-child {{ min-width:16rem; }}
svg {{ display:block; height:auto; }} svg.sample {{ width:44px; }} svg text {{ font-family:{_TEXT}; }}
footer {{ margin-top:48px; font-size:12px; color:var(--muted); }}
@media (max-width:40rem) {{ main {{ padding:16px 16px 48px; }} .pair {{ grid-template-columns:1fr; }} }}
"""

_PRINT = """
@page { size:A4; margin:12mm 14mm; }
@media print {
  body { background:#fff; font-size:10.5px; line-height:1.4; } main { max-width:none; padding:0; }
  .more, details { display:none; } .mark { margin-bottom:12px; } h1 { font-size:20px; margin-bottom:4px; }
  h2 { font-size:12px; margin:12px 0 4px; } h3 { font-size:10.5px; margin-bottom:4px; }
  p { margin-bottom:4px; max-width:none; }
  .headline { font-size:11px; } .small, small, thead th, code, pre, footer { font-size:9px; }
  .card { padding:8px 10px; margin-bottom:8px; border-radius:6px; break-inside:avoid; }
  .figures, .plots, .pair { gap:8px; margin-top:8px; margin-bottom:8px; } .figures b { font-size:16px; margin:0; }
  .figures { grid-template-columns:repeat(4,1fr); } .plots { grid-template-columns:1fr 1fr; }
  th, td { padding:2px 8px 2px 0; } table { margin-bottom:6px; } pre { padding:4px 8px; margin-bottom:4px; }
  .prompt { margin:8px 0 4px; } .note { padding:4px 8px; } footer { margin-top:12px; } .wide svg { max-height:46mm; }
}
"""
