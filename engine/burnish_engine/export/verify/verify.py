"""Verify again that a GGUF file is the model that was trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.staging import Canceled, never
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.quantize.quantize import file_type, read_back
from burnish_engine.export.verify.fidelity import add_score, check_file, probe_texts
from burnish_engine.export.verify.made_from import MadeFrom, record_problems
from burnish_engine.export.verify.probe_strings import PROBE_CHATS
from burnish_engine.export.verify.provenance import FileHashes, find_provenance
from burnish_engine.export.verify.reference import (
    ExportedModel,
    ReferenceOptions,
    compute_reference,
    render_probes,
)
from burnish_engine.export.verify.report import CheckedFiles, build_report, read_report
from burnish_engine.export.verify.stage_bar import StageBar, StageName
from burnish_engine.export.weights.adapter import read_adapter
from burnish_engine.export.weights.folders import Progress, no_progress
from burnish_engine.models.checkpoint.gguf_file.header import DEQUANTIZED, MERGED_ONTO, read_header
from burnish_engine.models.gguf.gguf_trial import try_file


def verify_file(
    gguf: Path,
    model: ExportedModel,
    *,
    exports: Sequence[Path] = (),
    progress: Progress = no_progress,
    canceled: Canceled = never,
) -> FidelityReport:
    """Compare any GGUF with the model it claims to be, without changing it.

    A file in which nothing is wrong has passed only if something shows that it is not one of the base model: its 16-bit
    numbers, training's change of the weights, or the record of an export in it. Else it is `unproven`. A file that an
    export proved and that was changed since is refused, whatever was changed.

    Args:
        gguf: file to verify.
        model: trained model that the file claims to be, and what the two are compared on.
        exports: folders whose reports may name the file, beside its own folder.
        progress: callback given the current activity and the share done.
        canceled: callback; True stops the work.

    Returns:
        Report; `passed` says whether the file is the trained model.

    Raises:
        UsageError: The file is no GGUF, or there is nothing to compare on.
        SetupError: A file is damaged.
        StoppedError: Canceled.
    """
    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

    header = read_header(gguf)
    made = read_back(gguf, file_type(header))
    try_file(gguf)
    if not any(".nextn." in tensor.name for tensor in header.tensors):  # as `--leave-out mtp` writes it
        model = replace(model, source=model.source.without_drafts())
    source, adapter, options = model.source, model.adapter, model.options
    if "burnish.version" in header.metadata:  # the file's own record overrides the recipe
        options = replace(options, onto_rounded=header.metadata.get(MERGED_ONTO) == DEQUANTIZED)
    tokenizer = load_tokenizer(source)
    digest = read_adapter(adapter).digest if adapter is not None else source.trained_digest
    probes = render_probes(tokenizer, [*model.probe_chats, *PROBE_CHATS])
    weighs: list[StageName] = ["weigh"] if options.training else []
    stages = StageBar(progress, ["run", *weighs, "answer", "check"])
    reference = compute_reference(
        replace(model, options=options), tokenizer, probes, begin=stages.begin, canceled=canceled
    )
    checking = stages.begin("check")
    checking(EXPORT_STAGES["check"].format(quant=gguf.name), 0.0)
    origin = Origin(source, adapter, options.rounded)
    result, tokens = check_file(
        made,
        tokenizer,
        probe_texts(tokenizer),
        reference,
        origin=origin,
        threads=model.threads,
        canceled=canceled,
    )
    hashes = FileHashes(result.sha256, result.tensor_sha256)
    reports = [report for folder in (gguf.parent, *exports) if (report := read_report(folder))]
    own = [report for report in reports if report.adapter_sha256 == digest]  # others prove files of another model
    known = find_provenance(gguf.name, hashes, own)
    result = result.model_copy(update={"provenance": known.state})
    if problems := record_problems(gguf, header.metadata, result.sha256, digest, known):
        result = result.model_copy(update={"problems": [*result.problems, *problems], "passed": False})
    if result.passed:
        before = _before(origin, options)
        result = MadeFrom.of(gguf, header, origin, before, canceled).judge(result)
    result = add_score(
        result,
        gguf,
        reference.task_rows,
        progress=lambda what, share: checking(what, 0.5 + 0.5 * share),
        threads=model.threads,
        canceled=canceled,
    )
    checked = CheckedFiles([result], tokens.strings, tokens.mismatches, None)
    return build_report(source, header.architecture, digest, checked, reference)


def _before(trained: Origin, options: ReferenceOptions) -> Origin | None:
    """Return the model before training; None where it is not known."""
    if trained.adapter is not None:
        return replace(trained, adapter=None)
    return Origin(options.base, None) if options.base is not None else None
