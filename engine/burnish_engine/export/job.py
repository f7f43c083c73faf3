"""The whole export to GGUF: write, quantize, prove, and only then give files their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from burnish_engine.advise.gguf_size import TensorShape, choose_types, file_bytes
from burnish_engine.chat.prompt import Messages
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.paths import safe_name
from burnish_engine.contract.recipe import GgufType
from burnish_engine.export.adapter import read_adapter
from burnish_engine.export.aside import Cancelled, never, partial_folder, require_space, stop_if
from burnish_engine.export.fidelity import check_file, probe_texts
from burnish_engine.export.folders import BeyondRangeError, Progress, no_progress
from burnish_engine.export.gguf.header import read_header
from burnish_engine.export.gguf.write import GgufPlan, plan_gguf, write_gguf
from burnish_engine.export.merge import MergedWeights
from burnish_engine.export.probe_strings import PROBE_CHATS
from burnish_engine.export.quantize import FILE_TYPES, Quantized, quantize, read_back
from burnish_engine.export.reference import Reference, compute_reference, render_probes
from burnish_engine.export.report import Checked, build_report, conclude
from burnish_engine.models.gguf_trial import try_file
from burnish_engine.models.source import ModelSource

if TYPE_CHECKING:
    import torch

_MAKE, _ASK, _CHECK = 1.0, 4.0, 2.0  # rough durations: making a file, asking the trained model, checking a file
_METADATA_BYTES = 64 * 1024 * 1024  # upper bound of what stands before the tensor data, for the disk check


@dataclass(frozen=True)
class _Truth:
    """What every file is held to."""

    tokenizer: Any
    expected: list[tuple[str, list[int]]]
    reference: Reference


def export_gguf(
    source: ModelSource,
    adapter: Path | None,
    out: Path,
    name: str,
    quants: Sequence[GgufType],
    *,
    held_out: Sequence[Sequence[int]] = (),
    probe_chats: Sequence[Messages] = (),
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
        FidelityError: A file is not the trained model; it was deleted, and so was an earlier file of its name. Files
            that passed stay.
        StoppedError: Cancelled.
    """
    from burnish_engine.models.tokenizer import load_tokenizer

    wanted = _checked_types(quants)
    tokenizer = load_tokenizer(source)
    expected = probe_texts(tokenizer)
    with partial_folder(out) as aside:
        weights = MergedWeights(source, adapter)
        plan = plan_gguf(source, weights, tokenizer, name, expected=expected, scratch=aside)
        _check_space(plan, wanted, out)
        others = [quant for quant in wanted if quant != _base_type(wanted)]
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
            device=device,
            progress=stages.begin(_ASK),
            cancelled=cancelled,
        )
        truth = _Truth(tokenizer, expected, reference)
        run = _Run(plan, aside, safe_name(name, "model"), truth, threads, stages, cancelled)
        checked = run.check_all(base, wanted)
        digest = weights.adapter.digest if weights.adapter else source.trained_digest
        report = build_report(source, plan.architecture, digest, checked, reference.probes)
        stop_if(cancelled, "The export")
        progress("Done", 1.0)
        return conclude(out, report, run.proven(checked), [run.file_name(quant) for quant in wanted])


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
            threads=self.threads,
            progress=lambda share: progress(f"Making {quant}", share),
            cancelled=self.cancelled,
        )

    def _check(self, made: Quantized) -> tuple[QuantFidelity, Any]:
        stop_if(self.cancelled, "The verification")
        self.stages.begin(_CHECK)(f"Checking {made.quant}", 0.0)
        name, truth = self.file_name(made.quant), self.truth
        return check_file(made, truth.tokenizer, truth.expected, truth.reference, threads=self.threads, name=name)

    def _path(self, quant: GgufType) -> Path:
        return self.aside / f"{quant}.gguf"


def verify_file(
    gguf: Path,
    source: ModelSource,
    adapter: Path | None,
    *,
    held_out: Sequence[Sequence[int]] = (),
    probe_chats: Sequence[Messages] = (),
    progress: Progress = no_progress,
    cancelled: Cancelled = never,
    device: torch.device | None = None,
    threads: int = 0,
) -> FidelityReport:
    """Compare any GGUF with the model it is said to be. Changes no file.

    Args:
        gguf: The file.
        source: The base model.
        adapter: The PEFT adapter's folder, or None.
        held_out: Token ids of rendered held-out rows.
        probe_chats: Conversations to compare and answer.
        progress: Told what is done.
        cancelled: Polled.
        device: Where the trained model computes.
        threads: CPU threads for llama.cpp.

    Returns:
        The report; `passed` says whether the file is the trained model.

    Raises:
        UsageError: The file is no GGUF, or there is nothing to compare on.
        SetupError: A file is damaged.
        StoppedError: Cancelled.
    """
    from burnish_engine.models.tokenizer import load_tokenizer

    header = read_header(gguf)
    ftypes = {number: quant for quant, number in FILE_TYPES.items()}
    quant = ftypes.get(header.metadata.get("general.file_type", -1), "Q4_0")
    made = read_back(gguf, quant)
    try_file(gguf)
    tokenizer = load_tokenizer(source)
    digest = read_adapter(adapter).digest if adapter is not None else source.trained_digest
    probes = render_probes(tokenizer, [*probe_chats, *PROBE_CHATS])
    reference = compute_reference(
        source, adapter, tokenizer, held_out, probes, device=device, progress=progress, cancelled=cancelled
    )
    progress(f"Checking {gguf.name}", 0.5)
    result, tokens = check_file(made, tokenizer, probe_texts(tokenizer), reference, threads=threads)
    checked = Checked([result], tokens.strings, tokens.mismatches, None)
    return build_report(source, header.architecture, digest, checked, reference.probes)


def _checked_types(quants: Sequence[GgufType]) -> list[GgufType]:
    known = get_args(GgufType)
    odd = [quant for quant in quants if quant not in known]
    if odd or not quants:
        raise UsageError(f"The GGUF types {list(quants)} were asked for.", f"Choose from {', '.join(known)}.")
    return list(dict.fromkeys(quants))


def _check_space(plan: GgufPlan, wanted: list[GgufType], out: Path) -> None:
    shapes = [TensorShape(one.name, one.shape, "F32" if one.full_precision else "F16") for one in plan.tensors]
    heads, keys = int(plan.metadata["attention.head_count"]), int(plan.metadata["attention.head_count_kv"])
    made: list[GgufType] = list(dict.fromkeys([*wanted, _base_type(wanted)]))
    needed = sum(file_bytes(choose_types(shapes, quant, gqa=heads // keys), _METADATA_BYTES) for quant in made)
    require_space(out, needed, f"The export ({', '.join(made)})")


def _base_type(wanted: list[GgufType]) -> GgufType:
    return "BF16" if "BF16" in wanted and "F16" not in wanted and len(wanted) == 1 else "F16"


def _write_base(
    plan: GgufPlan, aside: Path, wanted: list[GgufType], progress: Progress, cancelled: Cancelled
) -> Quantized:
    """The 16-bit file everything is made from: F16, whose numbers are finer, or BF16 where a weight is beyond F16."""
    kind = _base_type(wanted)
    try:
        write_gguf(plan, aside / f"{kind}.gguf", kind, progress=progress, cancelled=cancelled)
    except BeyondRangeError:
        if kind == "BF16" or "F16" in wanted:
            raise
        (aside / f"{kind}.gguf").unlink(missing_ok=True)
        kind = "BF16"
        write_gguf(plan, aside / f"{kind}.gguf", kind, progress=progress, cancelled=cancelled)
    return read_back(aside / f"{kind}.gguf", kind)
