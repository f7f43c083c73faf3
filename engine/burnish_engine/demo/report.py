"""Render the demo's one-page report: replies before and after, files, fidelity, time; one HTML file, no scripts."""

from __future__ import annotations

import html
from typing import Any

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.contract.units import file_size, memory_size

_STYLE = """
:root { --ink:#1f2328; --dim:#656d76; --page:#faf9f7; --card:#ffffff; --line:#e4e1dc; --live:#b45f06; --cool:#2f6f9f; }
@media (prefers-color-scheme: dark) {
  :root { --ink:#e8e6e3; --dim:#9a9691; --page:#17181a; --card:#1f2123; --line:#33363a; --live:#f0a04b; --cool:#7db8e0; }
}
body { margin:0; background:var(--page); color:var(--ink); font:16px/1.5 system-ui,sans-serif; }
main { max-width:56rem; margin:0 auto; padding:3rem 1.5rem 4rem; }
h1 { font-size:1.75rem; margin:0 0 .25rem; } h2 { font-size:1.1rem; margin:2.5rem 0 .75rem; }
p { margin:.25rem 0 .75rem; } .dim { color:var(--dim); } .live { color:var(--live); }
.figures { display:grid; grid-template-columns:repeat(auto-fit,minmax(11rem,1fr)); gap:1rem; margin-top:1.5rem; }
.figure { background:var(--card); border-radius:.5rem; padding:1rem; }
.figure b { display:block; font-size:1.6rem; font-variant-numeric:tabular-nums; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.93rem; }
th { text-align:left; font-weight:600; color:var(--dim); } th,td { padding:.4rem .75rem .4rem 0; vertical-align:top; }
tr + tr td { border-top:1px solid var(--line); } td.num, th.num { text-align:right; }
.pair { display:grid; grid-template-columns:1fr 1fr; gap:1rem; margin-bottom:1rem; }
.reply { background:var(--card); border-radius:.5rem; padding:.75rem 1rem; white-space:pre-wrap; font-size:.93rem; }
.reply small { display:block; color:var(--dim); } .prompt { margin:1.25rem 0 .5rem; font-weight:600; }
code { font-size:.85rem; overflow-wrap:anywhere; }
svg text { fill:var(--dim); font:12px system-ui,sans-serif; font-variant-numeric:tabular-nums; }
@media (max-width:40rem) { .pair { grid-template-columns:1fr; } }
"""


class ReplyScores(BaseModel):
    """Numbers of held-out replies that show the taught behavior."""

    model_config = ConfigDict(frozen=True)

    prompts: int
    base: int
    tuned: int
    gguf: dict[str, int]


class DemoReport(BaseModel):
    """Content of `report.json`."""

    model_config = ConfigDict(frozen=True)

    v: int = 1
    model: str
    note: str
    dataset: str
    title: str
    train_rows: int
    held_out_rows: int
    device: str
    precision: str
    steps: int
    trained_tokens: int
    tokens_per_s: float
    peak_memory_bytes: int
    losses: list[tuple[int, float]]
    held_out_loss_base: float
    held_out_loss_tuned: float
    held_out_improvement: float
    preferred: float | None = None
    forgetting: Forgetting | None = None
    scores: ReplyScores
    behavior: str
    fidelity: FidelityReport
    files: dict[str, int]
    examples: list[dict[str, str]]
    gguf_chat: dict[str, str]
    seconds: dict[str, float]
    versions: dict[str, str]


def render(report: DemoReport) -> str:
    """Render the report as one self-contained HTML page."""
    scores = report.scores
    best = next(iter(scores.gguf.items()))
    figures = [
        (f"{report.held_out_improvement:.0%}", "lower held-out loss than the base model", True)
        if report.preferred is None
        else (f"{report.preferred:.0%}", "of held-out pairs: the chosen reply is preferred", True),
        (f"{scores.tuned} of {scores.prompts}", f"held-out replies show the behavior (base: {scores.base})", True),
        (f"{best[1]} of {scores.prompts}", f"of the {best[0]} file's replies show it", True),
        (f"{sum(report.seconds.values()) / 60:.1f} min", f"for the whole job on {report.device}", False),
    ]
    cards = "".join(
        f'<div class="figure"><b{" class=live" if live else ""}>{_text(value)}</b><span class="dim">{_text(label)}</span>'
        "</div>"
        for value, label, live in figures
    )
    rows, unit = ("conversations", "learned token") if report.preferred is None else ("pairs of replies", "pair")
    forgetting = f"; {_text(report.forgetting.text)}" if report.forgetting else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Burnish demo report</title><style>{_STYLE}</style></head><body><main>
<h1>{_text(report.model)}, tuned to {_text(report.title)}</h1>
<p class="dim">{_text(report.behavior)}</p>
<div class="figures">{cards}</div>
<h2>What was trained</h2>
<p>A LoRA adapter on {_text(report.model)}, {report.steps} optimizer steps over {report.trained_tokens:,} tokens,
taken from {report.train_rows} {rows}, in {_text(report.precision)} on {_text(report.device)} at
{report.tokens_per_s:,.0f} tokens/s, with a peak of {memory_size(report.peak_memory_bytes)} of memory.
Held-out loss fell from {report.held_out_loss_base:.3f} to <b>{report.held_out_loss_tuned:.3f}</b> nats per {unit}
on {report.held_out_rows} {rows} that it was not trained on, with which the settings were chosen{forgetting}.</p>
<p class="dim">{_text(report.note)}</p>
{_curve(report.losses, report.held_out_loss_base, report.held_out_loss_tuned)}
<h2>Before and after</h2>
{"".join(_pair(example) for example in report.examples)}
<h2>Files</h2>
{_files(report)}
<h2>Fidelity</h2>
{_fidelity(report.fidelity)}
<h2>A chat with the file</h2>
<p class="prompt">{_text(report.gguf_chat["prompt"])}</p>
<div class="reply"><small>{_text(report.gguf_chat["file"])}</small>{_text(report.gguf_chat["reply"])}</div>
<h2>Time</h2>
<table>{"".join(f'<tr><td>{_text(k)}</td><td class="num">{v:.1f} s</td></tr>' for k, v in report.seconds.items())}</table>
<p class="dim">{_text(", ".join(f"{name} {number}" for name, number in report.versions.items()))}</p>
</main></body></html>
"""


def _pair(example: dict[str, str]) -> str:
    return (
        f'<p class="prompt">{_text(example["prompt"])}</p><div class="pair">'
        f'<div class="reply"><small>base</small>{_text(example["base"])}</div>'
        f'<div class="reply"><small class="live">tuned</small>{_text(example["tuned"])}</div></div>'
    )


def _files(report: DemoReport) -> str:
    rows = "".join(
        f'<tr><td><code>{_text(name)}</code></td><td class="num">{file_size(size)}</td></tr>'
        for name, size in report.files.items()
    )
    return f"<table>{rows}</table>"


def _fidelity(fidelity: FidelityReport) -> str:
    head = (
        f"<p>{fidelity.token_strings - fidelity.token_mismatches} of {fidelity.token_strings} test strings get the same "
        "token ids in the file as in the model. KL compares a file's next-token probabilities with the trained "
        "model's on held-out text; 0 is identical.</p>"
    )
    if fidelity.conversion_kl is not None:
        head += (
            f"<p>The 16-bit file that all others are made from has a mean KL of {fidelity.conversion_kl:.1e} to the "
            "trained model.</p>"
        )
    rows = "".join(
        f"<tr><td>{_text(entry.quant)}</td><td>{_text(_types(entry.tensor_types))}</td>"
        f'<td class="num">{entry.mean_kl:.6f}</td><td class="num">{entry.p99_kl:.4f}</td>'
        f'<td class="num">{entry.top1_agreement:.1%}</td><td>{"passed" if entry.passed else "refused"}</td></tr>'
        for entry in fidelity.files
    )
    notes = "".join(
        f'<p class="dim">{_text(entry.quant)}: {_text(note)}</p>'
        for entry in fidelity.files
        for note in entry.fallbacks
    )
    titles = (
        '<tr><th>type</th><th>tensors</th><th class="num">mean KL</th><th class="num">99th percentile</th>'
        '<th class="num">same top token</th><th>gate</th></tr>'
    )
    return f"{head}<table>{titles}{rows}</table>{notes}"


def _types(types: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(types.items(), key=lambda item: -item[1]))


def _curve(losses: list[tuple[int, float]], base: float, tuned: float) -> str:
    """Draw the training loss over steps as inline SVG, with held-out loss before and after as dashed lines."""
    if len(losses) < 2:
        return ""
    width, height, left, bottom, top = 800, 260, 44, 28, 12
    values = [loss for _, loss in losses] + [base, tuned]
    low, high = min(values) * 0.95, max(values) * 1.02
    last = max(step for step, _ in losses)

    def x(step: float) -> float:
        return left + (width - left - 8) * step / last

    def y(loss: float) -> float:
        return top + (height - top - bottom) * (high - loss) / (high - low)

    ticks = [low + (high - low) * i / 4 for i in range(5)]
    grid = "".join(
        f'<line x1="{left}" x2="{width - 8}" y1="{y(t):.1f}" y2="{y(t):.1f}" stroke="var(--line)"/>'
        f'<text x="{left - 6}" y="{y(t) + 4:.1f}" text-anchor="end">{t:.2f}</text>'
        for t in ticks
    )
    held = "".join(
        f'<line x1="{left}" x2="{width - 8}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="var(--cool)" stroke-dasharray="6 5"/>'
        f'<text x="{width - 12}" y="{y(v) - 5:.1f}" text-anchor="end">{label} {v:.2f}</text>'
        for v, label in ((base, "held-out, base"), (tuned, "held-out, tuned"))
    )
    points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in losses)
    return (
        f'<svg viewBox="0 0 {width} {height}" width="100%" role="img" aria-label="Training loss over steps">{grid}{held}'
        f'<polyline points="{points}" fill="none" stroke="var(--live)" stroke-width="1.75"/>'
        f'<text x="{left}" y="{height - 8}">step 1</text>'
        f'<text x="{width - 8}" y="{height - 8}" text-anchor="end">step {last}</text></svg>'
    )


def _text(value: Any) -> str:
    return html.escape(str(value))
