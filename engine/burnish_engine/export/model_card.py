"""Write the card beside exported files: origin, fidelity, how to run them, and their checksums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.facts.task_score import METRIC_NAMES
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.units import file_size
from burnish_engine.contract.version import burnish_version
from burnish_engine.export.checks.checksums import CHECKSUMS
from burnish_engine.export.verify.verdict import verdict_text
from burnish_engine.models.checkpoint.gguf_file.header import read_header

CARD = "README.md"
_MADE_BY = "<!-- made by Burnish; a new export writes it again -->"


def write_card(folder: Path, report: FidelityReport, *, run: str, data: Sequence[str]) -> list[Path]:
    """Write the card and the checksums of all files that passed.

    A README.md that is not ours is left alone.

    Args:
        folder: folder of the files.
        report: report on the files, including results of earlier exports of the same model.
        run: name of the run.
        data: names of the run's data files, without folders.

    Returns:
        Paths of the files that were written.

    Raises:
        NoSpaceError: A file cannot be written.
    """
    files = [file for file in report.files if file.passed]
    if not files:
        return []
    sums = folder / CHECKSUMS
    write_atomic(sums, "".join(f"{file.sha256}  {file.file}\n" for file in files))
    card = folder / CARD
    if card.exists() and _MADE_BY not in card.read_text(encoding="utf-8", errors="replace"):
        return [sums]
    write_atomic(card, _text(folder, report, run, data))
    return [card, sums]


def _text(folder: Path, report: FidelityReport, run: str, data: Sequence[str]) -> str:
    files = [file for file in report.files if file.passed]
    license_name = str(read_header(folder / files[0].file).metadata.get("general.license", ""))
    name = files[0].file.removesuffix(f"-{files[0].quant}.gguf")
    front = ["---", "library_name: gguf", "tags:", "- gguf", f"base_model: {report.model}"]
    front += [f"license: {license_name}"] if license_name else []
    lines = [*front, "---", "", f"# {name}", "", _MADE_BY, ""]
    lines += [
        f"{report.model}, fine-tuned in the run {run}" + (f" on {', '.join(data)}" if data else "") + ".",
        "",
        "| | |",
        "|---|---|",
        f"| base model | {report.model} |",
        f"| license of the base | {license_name or 'not stated in its folder; look it up before you share'} |",
        f"| architecture | {report.architecture} |",
        f"| SHA-256 of the trained weights | {report.adapter_sha256 or 'none: the base as it is'} |",
        f"| made with | Burnish {burnish_version()} |",
        "",
        "## How near they are to the trained model",
        "",
        *_table(files),
        "",
        *(f"- {verdict_text(file)}" for file in files),
        *(f"- {file.quant}: {METRIC_NAMES[file.task.metric]} {file.task.figures}." for file in files if file.task),
        *_losses(report),
        f"- Token ids of {report.token_strings} texts are the same as the model's own tokenizer gives.",
        *(f"- {note}" for note in report.notes),
        "",
        "## How to run them",
        "",
        "```",
        f"llama-cli -m {files[0].file}",
        "burnish chat " + files[0].file,
        "```",
        "",
        "LM Studio, Ollama, PocketPal and other programs on llama.cpp open the files as they are; the chat template is "
        f"inside. `sha256sum -c {CHECKSUMS}` checks a copy.",
        "",
    ]
    return "\n".join(lines)


def _table(files: list[QuantFidelity]) -> list[str]:
    rows = [
        "| file | size | mean KL | 99 % KL | same top token | held-out loss | gain kept |",
        "|---|---|---|---|---|---|---|",
    ]
    for file in files:
        loss = "" if file.held_out_loss is None else f"{file.held_out_loss:.3f}"
        kept = "" if file.gain_kept is None else f"{file.gain_kept:.1%}"
        figures = (file_size(file.bytes), f"{file.mean_kl:.5f}", f"{file.p99_kl:.4f}", f"{file.top1_agreement:.1%}")
        rows.append(f"| {' | '.join((file.file, *figures, loss, kept))} |")
    return rows


def _losses(report: FidelityReport) -> list[str]:
    if report.base_loss is None or report.tuned_loss is None:
        return []
    return [
        f"- Held-out loss in nats a learned token: base {report.base_loss:.3f}, trained {report.tuned_loss:.3f}. The "
        "gain is the difference."
    ]
