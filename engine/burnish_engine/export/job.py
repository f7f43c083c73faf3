"""The whole export to GGUF: write, quantize, prove, and only then give files their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish_engine.chat.prompt import Messages
from burnish_engine.contract.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.paths import safe_name
from burnish_engine.contract.recipe_export import GgufType
from burnish_engine.export.aside import Cancelled, never, partial_folder, stop_if
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.fidelity import check_file, probe_texts
from burnish_engine.export.folders import BeyondRangeError, Progress, no_progress
from burnish_engine.export.gguf.write import GgufPlan, plan_gguf, write_gguf
from burnish_engine.export.importance_file import write_importance
from burnish_engine.export.merge import MergedWeights
from burnish_engine.export.preflight import base_type, check_kind, check_space, checked_types
from burnish_engine.export.probe_strings import PROBE_CHATS
from burnish_engine.export.quantize import USE_IMPORTANCE, Quantized, quantize, read_back
from burnish_engine.export.reference import Asked, Reference, compute_reference, render_probes
from burnish_engine.export.report import Checked, build_report, conclude
from burnish_engine.models.source import ModelSource

if TYPE_CHECKING:
    import torch

_MAKE, _ASK, _CHECK = 1.0, 4.0, 2.0  # rough durations: making a file, asking the trained model, checking a file


@dataclass(frozen=True)
class _Truth:
    """What every file is held to."""

    tokenizer: Any
    expected: list[tuple[str, list[int]]]
    reference: Reference
    origin: Origin


def export_gguf(
    source: ModelSource,
    adapter: Path | None,
    out: Path,
    name: str,
    quants: Sequence[GgufType],
    *,
    held_out: Sequence[Sequence[int]] = (),
    probe_chats: Sequence[Messages] = (),
    asked: Asked | None = None,
    progress: Progress = no_progress,
    cancelled: Cancelled = never,
    device: torch.device | None = None,
    threads: int = 0,
) -> FidelityReport:
    """Export a model to GGUF files, each verified against the trained model.

    Files are called NAME-QUANT.gguf. Until they are proven they lie in a hidden folder inside `out`, which is removed
    whatever happens. The 16-bit file everything is made from stays only where F16 (or BF16) is asked for.

    Args:
        source: The base model.
        adapter: The PEFT adapter's folder; None exports the base.
        out: Where files and fidelity.json go.
        name: What to call the model; made safe as a file name.
        quants: GGUF types.
        held_out: Token ids of rendered held-out rows to compare on; without them, rendered chats.
        probe_chats: Conversations to compare and answer, before some of our own.
        asked: Training rows for the importance matrix, which tokens count for the loss, and the model before training.
        progress: Told what is done and the share of it, 0 to 1.
        cancelled: Polled often; nothing is left under a final name.
        device: Where the trained model computes; the CPU where not given.
        threads: CPU threads for llama.cpp; 0 is one per core.

    Returns:
        The report, also written to `out`/fidelity.json.

    Raises:
        UsageError: A type or family is unknown, or base or adapter cannot be exported.
        SetupError: A model file is missing or damaged, or the quantizer failed.
        NoSpaceError: It does not fit the disk; checked before anything is written.
        DoesNotFitError: Too little memory is free for a stage; checked before each.
        FidelityError: A file is not the trained model; it was deleted, and so was an earlier file of its name. Files
            that passed stay.
        StoppedError: Cancelled.
    """
    from burnish_engine.models.tokenizer import load_tokenizer

    wanted = checked_types(quants)
    check_kind("gguf", source, adapter)
    asked = asked or Asked()
    tokenizer = load_tokenizer(source)
    expected = probe_texts(tokenizer)
    with partial_folder(out) as aside:
        weights = MergedWeights(source, adapter, asked.rounded)
        plan = plan_gguf(source, weights, tokenizer, name, expected=expected, scratch=aside)
        check_space(plan, wanted, out, aside, importance=bool(asked.training))
        others = [quant for quant in wanted if quant != base_type(wanted)]
        stages = _Stages(progress, 2 * _MAKE + _ASK + _CHECK + len(others) * (_MAKE + _CHECK))
        base = _write_base(plan, aside, wanted, stages.begin(2 * _MAKE), cancelled)
        weights.check_all_used()
        probes = render_probes(tokenizer, [*probe_chats, *PROBE_CHATS])
        reference = compute_reference(
            source,
            adapter,
            tokenizer,
            held_out,
            probes,
            asked=_for_quantizing(asked, plan, others, aside / "moments"),
            device=device,
            progress=stages.begin(_ASK),
            cancelled=cancelled,
        )
        truth = _Truth(tokenizer, expected, reference, Origin(source, adapter, asked.rounded))
        file_name = safe_name(name, "model")
        matrix = _importance_file(reference, aside, weights)
        run = _Run(plan, aside, file_name, truth, threads, stages, cancelled, matrix)
        checked = run.check_all(base, wanted)
        digest = weights.adapter.digest if weights.adapter else source.trained_digest
        report = build_report(source, plan.architecture, digest, checked, reference)
        stop_if(cancelled, "The export")
        progress("Done", 1.0)
        proven = run.proven(checked)
        if matrix is not None and proven:
            proven[f"{file_name}.imatrix"] = matrix
        return conclude(out, report, proven, [run.file_name(quant) for quant in wanted])


class _Stages:
    """One progress bar over stages of known weight."""

    def __init__(self, progress: Progress, total: float) -> None:
        self._progress = progress
        self._total = total
        self._begun = 0.0

    def begin(self, weight: float) -> Progress:
        """The next stage; what it reports as its share becomes a share of the whole."""
        start = self._begun
        self._begun += weight
        return lambda what, share: self._progress(what, min((start + weight * share) / self._total, 1.0))


@dataclass(frozen=True)
class _Run:
    plan: GgufPlan
    aside: Path
    name: str
    truth: _Truth
    threads: int
    stages: _Stages
    cancelled: Cancelled
    importance: Path | None

    def check_all(self, base: Quantized, wanted: list[GgufType]) -> Checked:
        """Check the 16-bit file, then make and check each type."""
        first, tokens = self._check(base)
        mismatches = list(tokens.mismatches)
        if not first.passed:
            # What is wrong with the 16-bit file is wrong with all that would be made of it.
            return Checked([first], tokens.strings, mismatches, first.mean_kl)
        results = {base.quant: first}
        for quant in wanted:
            if quant not in results:
                results[quant], tokens = self._check(self._make(base, quant))
                mismatches += tokens.mismatches
                if not results[quant].passed:
                    self._path(quant).unlink(missing_ok=True)
        return Checked([results[quant] for quant in wanted], tokens.strings, mismatches, first.mean_kl)

    def proven(self, checked: Checked) -> dict[str, Path]:
        """Final name to finished file, of every file that passed."""
        return {file.file: self.aside / f"{file.quant}.gguf" for file in checked.files if file.passed}

    def file_name(self, quant: GgufType) -> str:
        """The final name of a type's file."""
        return f"{self.name}-{quant}.gguf"

    def _make(self, base: Quantized, quant: GgufType) -> Quantized:
        path, progress = self._path(quant), self.stages.begin(_MAKE)
        if quant in {"F16", "BF16"}:  # rounded once, from fp32
            write_gguf(self.plan, path, quant, progress=progress, cancelled=self.cancelled)
            return read_back(path, quant)
        return quantize(
            base.path,
            path,
            quant,
            importance=self.importance if quant in USE_IMPORTANCE else None,
            moments=self.aside / "moments",
            threads=self.threads,
            progress=lambda share: progress(f"Making {quant}", share),
            cancelled=self.cancelled,
        )

    def _check(self, made: Quantized) -> tuple[QuantFidelity, Any]:
        stop_if(self.cancelled, "The verification")
        self.stages.begin(_CHECK)(f"Checking {made.quant}", 0.0)
        name, truth = self.file_name(made.quant), self.truth
        return check_file(
            made,
            truth.tokenizer,
            truth.expected,
            truth.reference,
            origin=truth.origin,
            threads=self.threads,
            name=name,
            cancelled=self.cancelled,
        )

    def _path(self, quant: GgufType) -> Path:
        return self.aside / f"{quant}.gguf"


def _for_quantizing(asked: Asked, plan: GgufPlan, quants: Sequence[GgufType], moments: Path) -> Asked:
    """What is asked, with the names of the file's weights; no importance matrix where no type has a use for it."""
    if not set(quants) & set(USE_IMPORTANCE):
        return replace(asked, training=())
    return replace(asked, name_map=plan.name_map, moments=moments)


def _importance_file(reference: Reference, aside: Path, weights: MergedWeights) -> Path | None:
    if reference.importance is None:
        return None
    path = aside / "importance"
    write_importance(reference.importance, path, [f"training rows of {weights.source.name}"])
    return path


def _write_base(
    plan: GgufPlan, aside: Path, wanted: list[GgufType], progress: Progress, cancelled: Cancelled
) -> Quantized:
    """The 16-bit file everything is made from: F16, whose numbers are finer, or BF16 where a weight is beyond F16."""
    kind = base_type(wanted)
    try:
        write_gguf(plan, aside / f"{kind}.gguf", kind, progress=progress, cancelled=cancelled)
    except BeyondRangeError:
        if kind == "BF16" or "F16" in wanted:
            raise
        (aside / f"{kind}.gguf").unlink(missing_ok=True)
        kind = "BF16"
        write_gguf(plan, aside / f"{kind}.gguf", kind, progress=progress, cancelled=cancelled)
    return read_back(aside / f"{kind}.gguf", kind)
