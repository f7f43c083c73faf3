"""Renders the proof of exported files: what each keeps of what training gained, and how near it is to the model."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.units import file_size, percent
from burnish_engine.html_page.page import cell, head_cell, number, paragraph, section, table

_TITLES = ("type", "size", "gain kept", "same top token", "mean KL", "99 % KL", "tokens/s", "")
_WORDS = (
    "KL compares a file's next-token probabilities with the trained model's on held-out text, in nats; 0 is identical. "
    "Gain kept is the share of what training gained on held-out rows that the file keeps."
)


def fidelity_section(report: FidelityReport) -> str:
    """Render the section "Fidelity"."""
    strings = f"{report.token_strings - report.token_mismatches} of {report.token_strings}"
    same = f"{strings} test strings get the same token ids in the file as in the model. {_WORDS}"
    converted = "" if report.conversion_kl is None else f"{report.conversion_kl:.1e} nats"
    base = f"The 16-bit file that all others are made from has a mean KL of {converted} to the trained model."
    notes = [f"{one.quant}: {note}" for one in report.files for note in one.fallbacks]
    return section(
        "Fidelity",
        table(_TITLES, [_row(one) for one in report.files], numbers=True),
        paragraph(f"{same} {base}" if converted else same, "muted small"),
        *(paragraph(note, "muted small") for note in [*notes, *report.notes]),
    )


def _row(file: QuantFidelity) -> list[str]:
    kept = "" if file.gain_kept is None else percent(file.gain_kept, 1)
    speed = "" if file.tokens_per_s is None else f"{file.tokens_per_s:,.0f}"
    return [
        head_cell(file.quant),
        number(file_size(file.bytes)),
        number(kept),
        number(percent(file.top1_agreement, 1)),
        number(f"{file.mean_kl:.5f}"),
        number(f"{file.p99_kl:.4f}"),
        number(speed),
        cell("passed", "num good") if file.passed else cell("refused", "num bad"),
    ]
