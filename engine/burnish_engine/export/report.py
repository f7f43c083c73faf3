"""The fidelity report of an export: put together, written beside the files, raised where files were refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from burnish_engine.contract.errors import FidelityError
from burnish_engine.contract.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.files import write_atomic
from burnish_engine.export.reference import Probe
from burnish_engine.models.source import ModelSource

REPORT = "fidelity.json"


@dataclass(frozen=True)
class Checked:
    """Results of all files of one export.

    Attributes:
        files: Result of each file.
        token_strings: Texts whose token ids were compared.
        mismatches: Texts that were split differently, in words.
        conversion_kl: Mean KL of the 16-bit file everything was made from; None where there was none.
    """

    files: list[QuantFidelity]
    token_strings: int
    mismatches: list[str]
    conversion_kl: float | None


def conclude(out: Path, report: FidelityReport) -> FidelityReport:
    """Write the report to `out`/fidelity.json and give it back.

    Raises:
        FidelityError: Files were refused; names them, why, and what can be used.
        NoSpaceError: The report cannot be written.
    """
    write_atomic(out / REPORT, _with_earlier(out, report).model_dump_json(indent=2) + "\n")
    refused = [file for file in report.files if not file.passed]
    if refused:
        reasons = " ".join(f"{file.file}: {' '.join(file.problems)}" for file in refused)
        kept = [file.file for file in report.files if file.passed]
        raise FidelityError(
            f"{len(refused)} of {len(report.files)} files are not the trained model and were deleted. {reasons}",
            f"{', '.join(kept)} passed and can be used." if kept else f"See {out / REPORT}; please report this.",
        )
    return report


def build_report(
    source: ModelSource, architecture: str, digest: str, checked: Checked, probes: Sequence[Probe]
) -> FidelityReport:
    """Put the report together.

    Args:
        source: The base model.
        architecture: The files' `general.architecture`.
        digest: SHA-256 of the adapter, or an empty string.
        checked: What was found.
        probes: Conversations the trained model was asked.
    """
    notes = [source.note] if source.note else []
    asked = [probe.reply for probe in probes if probe.reply is not None]
    if asked and not any(reply.stopped for reply in asked):
        notes.append(
            f"The trained model itself did not end its replies within {max(reply.tokens for reply in asked)} tokens, "
            "so ending was not compared."
        )
    return FidelityReport(
        model=source.name,
        architecture=architecture,
        token_strings=checked.token_strings,
        token_mismatches=len(checked.mismatches),
        mismatch_examples=checked.mismatches[:10],
        files=checked.files,
        passed=all(file.passed for file in checked.files) and not checked.mismatches,
        adapter_sha256=digest,
        conversion_kl=checked.conversion_kl,
        notes=notes,
    )


def _with_earlier(out: Path, report: FidelityReport) -> FidelityReport:
    """The report with what an earlier export of the same model found about files that are still there."""
    try:
        earlier = FidelityReport.model_validate_json((out / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return report
    if (earlier.model, earlier.adapter_sha256) != (report.model, report.adapter_sha256):
        return report
    new = {file.file for file in report.files}
    kept = [
        file for file in earlier.files if file.file not in new and file.passed and _size(out / file.file) == file.bytes
    ]
    return report.model_copy(update={"files": [*kept, *report.files]})


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
