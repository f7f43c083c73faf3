"""Run the whole export to GGUF: write, quantize, verify, and only then publish files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.garbage import collect_as_usual
from burnish_engine.contract.paths import safe_name
from burnish_engine.contract.recipe.recipe_export import USE_IMPORTANCE, GgufType
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.staging import Canceled, never, staging_folder, stop_if
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.gguf.write import GgufPlan, plan_gguf, write_gguf
from burnish_engine.export.preflight import base_type, check_space, checked_types
from burnish_engine.export.quantize.importance_file import with_unknown, write_importance
from burnish_engine.export.quantize.quantize import Quantized, quantize, read_back
from burnish_engine.export.verify.fidelity import add_score, check_file, probe_texts
from burnish_engine.export.verify.probe_strings import PROBE_CHATS
from burnish_engine.export.verify.reference import (
    ExportedModel,
    Reference,
    ReferenceOptions,
    compute_reference,
    render_probes,
)
from burnish_engine.export.verify.report import CheckedFiles, build_report, conclude
from burnish_engine.export.verify.stage_bar import StageBar, StageName
from burnish_engine.export.weights.folders import BeyondRangeError, Progress, no_progress
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.export.written_again import missing_proven, write_again
from burnish_engine.models.gguf.gguf_speed import generation_speed
from burnish_engine.models.gguf.gguf_trial import try_file


@dataclass(frozen=True)
class _CheckInputs:
    """Inputs of the check of every file."""

    tokenizer: Any
    expected: list[tuple[str, list[int]]]
    reference: Reference
    origin: Origin


def export_gguf(
    model: ExportedModel,
    out: Path,
    name: str,
    quants: Sequence[GgufType],
    *,
    progress: Progress = no_progress,
    canceled: Canceled = never,
) -> FidelityReport:
    """Export a model to GGUF files, each verified against the trained model.

    A file that the folder's report proves and that is gone is only written again where it comes out with the same bits.

    Files are called NAME-QUANT.gguf. Until they are verified they lie in a hidden staging folder inside `out`, which is
    always removed. The 16-bit file that the others are made from stays only where F16 (or BF16) is requested.

    Args:
        model: trained model, and what the files are compared with it on.
        out: folder for the files and fidelity.json.
        name: name of the model; made safe as a file name.
        quants: GGUF types.
        progress: callback given the current activity and the share done, 0 to 1.
        canceled: callback polled often; after a stop nothing is left under a final name.

    Returns:
        The report, also written to `out`/fidelity.json.

    Raises:
        UsageError: A type or family is unknown, or base or adapter cannot be exported.
        SetupError: A model file is missing or damaged, the quantizer failed, or llama.cpp crashes over the file.
        NoSpaceError: The files do not fit the disk; checked before anything is written.
        DoesNotFitError: Too little memory is free for a stage; checked before each.
        FidelityError: A file differs from the trained model; it was deleted, and so was an earlier file of its name.
            Files that passed stay.
        StoppedError: Canceled.
    """
    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

    wanted = checked_types(quants)
    source, adapter, options = model.source, model.adapter, model.options
    weights = MergedWeights(source, adapter, options.rounded, kind="gguf")
    tokenizer = load_tokenizer(source)
    expected = probe_texts(tokenizer)
    collect_as_usual()
    with staging_folder(out) as staging:
        plan = plan_gguf(source, weights, tokenizer, name, expected=expected, scratch=staging)
        check_space(plan, wanted, out, staging, importance=bool(options.training))
        others = [quant for quant in wanted if quant != base_type(wanted)]
        options = _for_quantizing(options, plan, others, staging / "hessians")
        answers: list[StageName] = ["run", "weigh", "answer"] if options.training else ["run", "answer"]
        each: list[StageName] = ["make", "check"]
        stages = StageBar(progress, ["write", *answers, "check", *each * len(others)])
        base = _write_base(plan, staging, wanted, stages.begin("write"), canceled)
        weights.check_all_used()
        try_file(base.path, is_own=True)
        file_name = safe_name(name, "model")
        digest = weights.adapter.digest if weights.adapter else source.trained_digest
        known = missing_proven(out, source.name, digest, {quant: f"{file_name}-{quant}.gguf" for quant in wanted})
        if known is not None:
            before, entries = known
            again = write_again(base.path, staging, entries, threads=model.threads, stages=stages, canceled=canceled)
            if again is not None:
                stop_if(canceled, "The export")
                stages.finish()
                progress(EXPORT_STAGES["done"], 1.0)
                found = before.model_copy(update={"files": list(entries.values())})
                return conclude(out, found, again, list(again))
        probes = render_probes(tokenizer, [*model.probe_chats, *PROBE_CHATS])
        reference = compute_reference(
            replace(model, options=options),
            tokenizer,
            probes,
            begin=stages.begin,
            canceled=canceled,
        )
        truth = _CheckInputs(tokenizer, expected, reference, Origin(source, adapter, options.rounded))
        matrix = _importance_file(reference, plan, staging, weights)
        run = _ExportRun(plan, staging, file_name, truth, model.threads, stages, canceled, matrix)
        checked = run.check_all(base, wanted)
        report = build_report(source, plan.architecture, digest, checked, reference)
        stop_if(canceled, "The export")
        stages.finish()
        progress(EXPORT_STAGES["done"], 1.0)
        proven = run.proven(checked)
        if matrix is not None and proven:
            proven[f"{file_name}.imatrix"] = matrix
        return conclude(out, report, proven, [run.file_name(quant) for quant in wanted])


@dataclass(frozen=True)
class _ExportRun:
    plan: GgufPlan
    staging: Path
    name: str
    truth: _CheckInputs
    threads: int
    stages: StageBar
    canceled: Canceled
    importance: Path | None

    def check_all(self, base: Quantized, wanted: list[GgufType]) -> CheckedFiles:
        """Check the 16-bit file, then make and check each type."""
        first, tokens = self._check(base, scored=base.quant in wanted)
        mismatches = list(tokens.mismatches)
        if not first.passed:
            # A fault of the 16-bit file would be in every file made from it.
            return CheckedFiles([first], tokens.strings, mismatches, first.mean_kl)
        results = {base.quant: first}
        for quant in wanted:
            if quant not in results:
                results[quant], tokens = self._check(self._make(base, quant))
                mismatches += tokens.mismatches
                if not results[quant].passed:
                    self._path(quant).unlink(missing_ok=True)
        return CheckedFiles([results[quant] for quant in wanted], tokens.strings, mismatches, first.mean_kl)

    def proven(self, checked: CheckedFiles) -> dict[str, Path]:
        """Map the final name of every file that passed to the finished file."""
        return {file.file: self.staging / f"{file.quant}.gguf" for file in checked.files if file.passed}

    def file_name(self, quant: str) -> str:
        """Return the final name of a type's file."""
        return f"{self.name}-{quant}.gguf"

    def _make(self, base: Quantized, quant: GgufType) -> Quantized:
        path, progress = self._path(quant), self.stages.begin("make")
        if quant in {"F16", "BF16"}:  # rounded once, from fp32
            write_gguf(self.plan, path, quant, progress=progress, canceled=self.canceled)
            return read_back(path, quant)
        return quantize(
            base.path,
            path,
            quant,
            importance=self.importance if quant in USE_IMPORTANCE else None,
            hessians=self.staging / "hessians",
            threads=self.threads,
            progress=lambda share: progress(EXPORT_STAGES["make"].format(quant=quant), share),
            canceled=self.canceled,
        )

    def _check(self, made: Quantized, *, scored: bool = True) -> tuple[QuantFidelity, Any]:
        stop_if(self.canceled, "The verification")
        progress = self.stages.begin("check")
        progress(EXPORT_STAGES["check"].format(quant=made.quant), 0.0)
        name, truth = self.file_name(made.quant), self.truth
        found, tokens = check_file(
            made,
            truth.tokenizer,
            truth.expected,
            truth.reference,
            origin=truth.origin,
            threads=self.threads,
            name=name,
            canceled=self.canceled,
        )
        if found.passed and scored:
            speed = generation_speed(made.path, threads=self.threads)
            found = found.model_copy(update={"tokens_per_s": speed})
        rows = truth.reference.task_rows if scored else None
        return add_score(
            found, made.path, rows, progress=progress, threads=self.threads, canceled=self.canceled
        ), tokens

    def _path(self, quant: GgufType) -> Path:
        return self.staging / f"{quant}.gguf"


def _for_quantizing(
    options: ReferenceOptions, plan: GgufPlan, quants: Sequence[GgufType], hessians: Path
) -> ReferenceOptions:
    """Add the names of the file's weights to the options; without the importance matrix where no type uses it."""
    if not set(quants) & set(USE_IMPORTANCE):
        return replace(options, training=())
    return replace(options, name_map=plan.name_map, hessians=hessians)


def _importance_file(reference: Reference, plan: GgufPlan, staging: Path, weights: MergedWeights) -> Path | None:
    if reference.importance is None:
        return None
    path = staging / "importance"
    shapes = {tensor.name: tensor.shape for tensor in plan.drafting}
    write_importance(with_unknown(reference.importance, shapes), path, [f"training rows of {weights.source.name}"])
    return path


def _write_base(
    plan: GgufPlan, staging: Path, wanted: list[GgufType], progress: Progress, canceled: Canceled
) -> Quantized:
    """Write the 16-bit file that the others are made from: F16, or BF16 where a weight is beyond F16."""
    kind = base_type(wanted)
    try:
        write_gguf(plan, staging / f"{kind}.gguf", kind, progress=progress, canceled=canceled)
    except BeyondRangeError:
        if kind == "BF16" or "F16" in wanted:
            raise
        (staging / f"{kind}.gguf").unlink(missing_ok=True)
        kind = "BF16"
        write_gguf(plan, staging / f"{kind}.gguf", kind, progress=progress, canceled=canceled)
    return read_back(staging / f"{kind}.gguf", kind)
