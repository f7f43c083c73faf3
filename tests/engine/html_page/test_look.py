"""Every report in the window's look: its colors and type, nothing loaded, how its result is used, one sheet."""

import html
import re
import shutil
import subprocess

import pytest
from app.facts import export_facts
from PySide6.QtGui import QColor, QImage

from burnish_app.look import tokens
from burnish_engine.contract.plain_text import typed
from burnish_engine.export.report_page import render
from burnish_engine.html_page.style import DARK, LIGHT

from support.report_pages import report_pages

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KINDS = ("demo", "duel", "run", "export")


@pytest.fixture(scope="module")
def pages():
    return report_pages()


@pytest.mark.parametrize(("ours", "theirs"), [(LIGHT, tokens.LIGHT), (DARK, tokens.DARK)])
def test_the_colors_are_the_windows(ours, theirs):
    lines = {f"s{place}": line.color for place, line in enumerate(theirs.series)}
    assert ours == {name: lines.get(name) or getattr(theirs, name) for name in ours}


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_brings_its_type_and_says_how_its_result_is_used(pages, kind):
    page = pages[kind]
    assert page.count("@font-face") == 3
    assert not re.search(r"url\((?!data:)|@import|<script|<link|<img", page)
    assert re.search(r"<pre>burnish chat \S+", page)
    used = set(re.findall(r"var\(--([\w-]+)\)", page))
    assert used <= set(LIGHT) == set(DARK)


def test_commands_for_files_with_spaces_can_be_typed():
    report = export_facts.report()
    files = [file.model_copy(update={"file": "my file.gguf", "passed": True}) for file in report.files]
    page = html.unescape(render(report.model_copy(update={"files": files}), run="support-desk", data=[]))
    assert f"burnish chat {typed('my file.gguf')}" in page
    assert f"llama-cli -m {typed('my file.gguf')}" in page


@pytest.mark.parametrize("kind", ["demo", "export"])
def test_reports_with_files_say_what_share_of_the_gain_they_keep(pages, kind):
    assert "gain kept" in pages[kind]
    assert "99.8 %" in pages[kind]


def browse(folder, *options):
    """Run the browser without a window; its profile lies in the folder."""
    subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", *options],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip


def framed(folder, pages):
    """A page that shows all of them, 700 pixels high each."""
    frames = "".join(f'<iframe src="{kind}.html"></iframe>' for kind in pages)
    style = "body { margin:0 } iframe { display:block; border:0; width:1280px; height:700px }"
    (folder / "all.html").write_text(f"<!doctype html><style>{style}</style>{frames}", encoding="utf-8")
    return (folder / "all.html").as_uri()


@pytest.fixture
def folder(pages, tmp_path):
    for kind, page in pages.items():
        (tmp_path / f"{kind}.html").write_text(page, encoding="utf-8")
    return tmp_path


@pytest.mark.full
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_browser_shows_reports_in_both_looks(pages, folder):
    for scheme, colors in ((0, DARK), (1, LIGHT)):
        shot = folder / f"{scheme}.png"
        look = f"--blink-settings=preferredColorScheme={scheme}"
        browse(folder, look, "--window-size=1280,2800", f"--screenshot={shot}", framed(folder, pages))
        seen = QImage(str(shot))
        for place in range(len(KINDS)):
            assert seen.pixelColor(2, 700 * place + 2) == QColor(colors["window"])
            top = 700 * place + 60
            names = {seen.pixelColor(x, y).name() for x in range(190, 900) for y in range(top, top + 60, 2)}
            assert colors["text"] in names


@pytest.mark.full
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_printed_on_one_page_in_its_own_type(folder, kind):
    paper = folder / "page.pdf"
    browse(folder, "--no-pdf-header-footer", f"--print-to-pdf={paper}", (folder / f"{kind}.html").as_uri())
    assert re.findall(rb"/Count (\d+)", paper.read_bytes()) == [b"1"]
    assert re.search(rb"/\w+\+Inter-Regular", paper.read_bytes())
