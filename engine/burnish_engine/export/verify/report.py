"""Build the fidelity report of an export, write it before files get their names, and raise where a file is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from burnish_engine.advise.facts.gguf_rules import rounds_rope
from burnish_engine.contract.errors import FidelityError, NoSpaceError
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.facts.task_score import TaskChange
from burnish_engine.contract.files import cannot_write, read_limited, write_atomic
from burnish_engine.contract.recipe.recipe_export import COARSE_TYPES
from burnish_engine.export.base.losses import ModelDistance
from burnish_engine.export.base.staging import publish
from burnish_engine.export.quantize.importance_file import Importance
from burnish_engine.export.verify.contexts import factor_switch
from burnish_engine.export.verify.limits import hides_training, least_limit
from burnish_engine.export.verify.reference import REPLY_TOKENS, Reference
from burnish_engine.models.checkpoint.source import ModelSource

REPORT = "fidelity.json"
_MOST_BYTES = 64 * 2**20  # a report has about 100 bytes a tensor


@dataclass(frozen=True)
class CheckedFiles:
    """Results of all files of one export."""

    files: list[QuantFidelity]  # result of each file
    token_strings: int  # number of texts whose token ids were compared
    mismatches: list[str]  # descriptions of texts that were split differently
    conversion_kl: float | None  # mean KL of the 16-bit file that the others were made from; None where there was none


def conclude(
    out: Path, report: FidelityReport, proven: Mapping[str, Path], asked_for: Collection[str]
) -> FidelityReport:
    """Write the report to `out`/fidelity.json, then publish the verified files: none appears without proof.

    Args:
        out: folder of the export.
        report: findings of all checks.
        proven: finished file of every final name that passed.
        asked_for: final names of all files that the export was to make. Where one was refused, or never made because
            another was, an earlier export's file of that name is deleted: it must not be taken for the new one.

    Returns:
        The report.

    Raises:
        FidelityError: Files were refused; the message names them, the reason, and the usable files.
        NoSpaceError: The report or a name cannot be written; the report then names no file that is missing.
    """
    stale = sorted({*asked_for, *(file.file for file in report.files)} - proven.keys())
    whole = _with_earlier(out, report, stale)
    _write(out, whole)
    removed = [name for name in stale if _remove(out / name)]
    waiting = dict(proven)
    try:
        for name, path in proven.items():
            publish(path, out / name)
            del waiting[name]
    except NoSpaceError:
        with suppress(NoSpaceError):  # the first failure is the one to report
            _write(out, whole.model_copy(update={"files": [f for f in whole.files if f.file not in waiting]}))
        raise
    refused = [file for file in report.files if not file.passed]
    if refused:
        reasons = " ".join(f"{file.file}: {' '.join(file.problems)}" for file in refused)
        if removed:
            reasons += f" Deleted too, so that nobody takes it for the new file: the earlier {', '.join(removed)}."
        raise FidelityError(
            f"{len(refused)} of {len(report.files)} files are not the trained model and were deleted. {reasons}",
            f"{', '.join(proven)} passed and can be used." if proven else f"See {out / REPORT}; please report this.",
        )
    return report


def read_report(out: Path) -> FidelityReport | None:
    """Read the newest report of a folder; None where there is none that can be read."""
    try:
        return FidelityReport.model_validate_json(read_limited(out / REPORT, _MOST_BYTES))
    except (OSError, ValueError):  # pydantic's errors are ValueErrors
        return None


def _write(out: Path, report: FidelityReport) -> None:
    write_atomic(out / REPORT, report.model_dump_json(indent=2) + "\n")


def _remove(path: Path) -> bool:
    """Delete a file; return whether there was one."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise cannot_write(path, error) from error
    return True


def build_report(
    source: ModelSource, architecture: str, digest: str, checked: CheckedFiles, reference: Reference
) -> FidelityReport:
    """Build the report.

    Args:
        source: base model.
        architecture: value of the files' `general.architecture`.
        digest: SHA-256 of the adapter, or of the weights where all were trained; or an empty string.
        checked: results of the checks.
        reference: answers of the trained model.
    """
    notes = [source.note] if source.note else []
    asked = [probe.reply for probe in reference.probes if probe.reply is not None]
    if asked and not any(reply.stopped for reply in asked):
        notes.append(
            f"The trained model itself did not end its replies within {max(reply.tokens for reply in asked)} tokens, "
            "so ending was not compared."
        )
    elif asked:
        notes += [
            f"{file.quant} was still talking after {2 * REPLY_TOKENS} tokens where the trained model had ended; after "
            "that model's own reply it ends as that does."
            for file in checked.files
            if file.passed and not file.reply_stopped
        ]
    notes += _loss_text(reference) + _hidden_text(checked.files, reference, source)
    if reference.forgetting is not None:
        notes.append(f"What training forgot: {reference.forgetting.text}.")
    notes += _task_text(checked.files, reference)
    if (other := reference.other_merge) is not None:
        notes.append(_merge_text(reference, other))
    if reference.importance is not None and (weighed := [file.quant for file in checked.files if file.importance]):
        notes.append(
            f"{', '.join(weighed)}: quantized by llama.cpp with an importance matrix of {reference.importance.tokens} "
            "tokens of training rows; codes then chosen anew with their columns' second moments (GPTQ)."
        )
        notes += _expert_notes(reference.importance)
    notes += _context_notes(source, reference) + _rope_notes(source)
    coarse = [file.quant for file in checked.files if file.quant in COARSE_TYPES]
    if coarse:
        notes.append(
            f"{', '.join(coarse)}: below four bits much is lost, most of all in small models. Compare the figures."
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
        base_loss=reference.base_loss,
        base_kl=reference.base.mean_kl if reference.base else None,
        base_top1=reference.base.top1 if reference.base else None,
        tuned_loss=reference.tuned_loss,
        task=reference.task,
        importance_tokens=reference.importance.tokens if reference.importance else 0,
        notes=notes,
    )


def _expert_notes(importance: Importance) -> list[str]:
    """Note how the experts of a mixture were weighed; nothing for dense models."""
    unseen, experts = importance.unseen
    if not experts:
        return []
    seen = (
        f"{unseen} of {experts} experts saw no token, and all their columns count alike"
        if unseen
        else f"all {experts} experts saw tokens"
    )
    return [f"Experts were weighed by the tokens routed to each, without GPTQ: {seen}."]


def _rope_notes(source: ModelSource) -> list[str]:
    """Note that llama.cpp computes the rope of gpt-oss a little differently."""
    if not rounds_rope(source.spec):
        return []
    return [
        "llama.cpp rounds the two bounds of this model's yarn rope to whole pairs of numbers, which the trained model "
        "does not. The figures contain that difference; it grows with the length of a text."
    ]


def _context_notes(source: ModelSource, reference: Reference) -> list[str]:
    """Note which context to open a file with, where its rope has factors for short and for long rows."""
    switch = factor_switch(source.spec)
    if switch is None:
        return []
    longer = sum(len(row) > switch for row in reference.documents)
    compared = f" {longer} longer rows were compared in a context of their own." if longer > 1 else ""
    if longer == 1:
        compared = " One longer row was compared in a context of its own."
    return [
        f"Open the files with a context of at most {switch:,} tokens unless rows are longer: llama.cpp chooses the "
        f"rope's factors by the size of its context, the trained model by the length of the row.{compared}"
    ]


def _loss_text(reference: Reference) -> list[str]:
    """Note why the held-out loss differs from training's; empty where it is equal or unknown."""
    if reference.reported is None or reference.tuned_loss is None:
        return []
    reported, tokens = reference.reported
    if f"{reported:.3f}" == f"{reference.tuned_loss:.3f}":
        return []
    counted = f"{reference.loss_tokens:,} tokens of the first held-out rows, on which every file is compared"
    if not reference.flags_known:
        counted += "; the training data cannot be read again, so learned and other tokens count alike"
    elif reference.loss_tokens == tokens:
        counted = "the same tokens with the exported weights in fp32"
    return [
        f"Two held-out losses: training reported {reported:.3f} nats on {tokens:,} learned tokens; the "
        f"{reference.tuned_loss:.3f} here is of {counted}."
    ]


def _hidden_text(files: Sequence[QuantFidelity], reference: Reference, source: ModelSource) -> list[str]:
    """Note the files whose rounding changes predictions about as much as training did."""
    base, least = reference.base, least_limit(source.spec)
    hiding = [file for file in files if file.passed and hides_training(file.quant, file.mean_kl, base, least)]
    if base is None or not hiding:
        return []
    listed = ", ".join(f"{file.quant} {file.mean_kl:.2g}" for file in hiding)
    return [
        f"Training changed the predictions by a mean KL of only {base.mean_kl:.2g} nats, and rounding changes them by "
        f"{listed}: such a file may show little of what was learned. A finer type shows more."
    ]


def _task_text(files: Sequence[QuantFidelity], reference: Reference) -> list[str]:
    """Note the score of the task before and after training, and the files that answer worse beyond chance."""
    if reference.task is None:
        return []
    notes = [f"Score of the task as training measured it: {reference.task.text}."]
    for file in files:
        if file.task is None:
            continue
        change = TaskChange(before=reference.task.after, after=file.task)
        if change.verdict == "worse":
            notes.append(f"{file.quant} answers fewer rows rightly than the trained model: {change.text}.")
    return notes


def _merge_text(reference: Reference, other: ModelDistance) -> str:
    losses = [f"{loss:.3f}" if loss is not None else "unknown" for loss in (reference.tuned_loss, other.loss)]
    return (
        "The run trained on 4-bit weights, and its adapter can be added to these or to the 16-bit base "
        f"(export.merge_onto). Held-out loss as exported {losses[0]}, the other way {losses[1]} nats a token; mean KL "
        f"between the two {other.mean_kl:.4f}."
    )


def _with_earlier(out: Path, report: FidelityReport, stale: Collection[str]) -> FidelityReport:
    """Add an earlier export's results of the same model for files that still exist and stay."""
    earlier = read_report(out)
    if earlier is None:
        return report
    if (earlier.model, earlier.adapter_sha256) != (report.model, report.adapter_sha256):
        return report
    new = {*stale, *(file.file for file in report.files)}
    kept = [
        file for file in earlier.files if file.file not in new and file.passed and _size(out / file.file) == file.bytes
    ]
    return report.model_copy(update={"files": [*kept, *report.files]})


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
