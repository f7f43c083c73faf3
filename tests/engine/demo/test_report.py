"""The demo's page: figures and curve are there, and nothing a model or a file says becomes markup."""

import re
from html.parser import HTMLParser

import pytest

from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.demo.report import DemoReport, ReplyScores, render

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;"
LOSSES = [(1, 2.5), (2, 2.0), (4, 1.25)]


def make(text, **changes):
    """A report whose every outside text is `text`."""
    file = QuantFidelity(
        file=f"{text}.gguf", quant=text, bytes=145_000_000, sha256="0" * 64, tensor_types={text: 211},
        fallbacks=[text], positions=900, mean_kl=0.004321, p99_kl=0.0567, top1_agreement=0.9876, reply=text,
        reply_stopped=True, passed=True,
    )  # fmt: skip
    fidelity = FidelityReport(
        model=text, architecture=text, token_strings=120, token_mismatches=1, mismatch_examples=[text], files=[file],
        passed=True, conversion_kl=1.5e-7, notes=[text],
    )  # fmt: skip
    values = {
        "model": text, "note": text, "dataset": text, "title": text, "device": text, "train_rows": 321,
        "held_out_rows": 43,
        "precision": text, "steps": 77, "trained_tokens": 123_456, "tokens_per_s": 1_234.5,
        "peak_memory_bytes": 3_400_000_000, "losses": LOSSES, "held_out_loss_base": 2.468, "held_out_loss_tuned": 1.357,
        "held_out_improvement": 0.45, "scores": ReplyScores(prompts=40, base=2, tuned=38, gguf={text: 36}),
        "behavior": text, "fidelity": fidelity, "files": {text: 145_000_000},
        "examples": [{"prompt": text, "base": text, "tuned": text}],
        "gguf_chat": {"prompt": text, "file": text, "reply": text}, "seconds": {text: 90.0, "export": 30.0},
        "versions": {text: text},
    }  # fmt: skip
    return DemoReport(**{**values, **changes})


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text += data


def test_hostile_text_stays_text():
    plain, evil = Page(render(make("plain"))), Page(render(make(EVIL)))
    assert evil.tags == plain.tags
    assert evil.attributes == plain.attributes
    assert "script" not in evil.tags
    assert "onerror" not in evil.attributes
    quoted = evil.text.count(typed(f"gguf/{EVIL}.gguf"))
    assert evil.text.count(EVIL) + quoted == plain.text.count("plain") > 10


def test_the_figures_are_there():
    text = Page(render(make("plain"))).text
    for figure in (
        "45 %", "38 of 40", "36 of 40", "base: 2", "2.0 min", "77 optimizer steps", "123,456 tokens",
        "321 conversations", "1,234 tokens/s", "3.2 GiB", "2.468", "1.357", "43 conversations", "119 of 120", "1.5e-07",
        "0.00432", "0.0567", "98.8 %", "passed", "0.14 GB",
    ):  # fmt: skip
        assert figure in text, figure


def test_commands_can_be_typed():
    assert f"burnish chat {typed('gguf/my file.gguf')}" in Page(render(make("my file"))).text


def test_a_report_on_preferences_has_their_figures():
    forgetting = Forgetting(before=2.64, after=2.57, tokens=2048)
    text = Page(render(make("plain", preferred=0.958, forgetting=forgetting))).text
    for figure in ("96 %", "321 pairs of replies", "43 pairs of replies", "nats per pair", "2.64 -> 2.57"):
        assert figure in text, figure
    assert "45 %" not in text
    assert "conversations" not in text


def test_a_refused_file_is_called_that():
    report = make("plain")
    file = report.fidelity.files[0].model_copy(update={"passed": False})
    page = render(report.model_copy(update={"fidelity": report.fidelity.model_copy(update={"files": [file]})}))
    assert "refused" in page


def test_the_curve_falls_with_the_loss():
    page = render(make("plain"))
    points = [tuple(map(float, pair.split(","))) for pair in re.search(r'<polyline points="([^"]+)"', page)[1].split()]
    assert len(points) == len(LOSSES)
    assert {"1.2", "2.0", "2.4"} <= set(re.findall(r">([\d.]+)</text>", page))  # ticks are round numbers
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted(y for _, y in points)  # SVG counts downwards
    assert all(0 <= x <= 860 and 0 <= y <= 280 for x, y in points)
    assert page.count("stroke-dasharray") == 2  # held-out loss, before and after


@pytest.mark.parametrize("losses", [[], [(1, 2.0)]])
def test_too_few_steps_draw_no_curve(losses):
    assert "<polyline" not in render(make("plain", losses=losses))
