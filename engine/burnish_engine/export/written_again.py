"""Writes a proven file again that is gone, such as of the example that ships: the same bits need no new proof."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.recipe.recipe_export import USE_IMPORTANCE, GgufType
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.staging import Canceled
from burnish_engine.export.quantize.quantize import quantize
from burnish_engine.export.verify.report import read_report
from burnish_engine.export.verify.stage_bar import StageBar
from burnish_engine.runs.file_hashes import sha256_file


def missing_proven(
    out: Path, model: str, digest: str, names: Mapping[GgufType, str]
) -> tuple[FidelityReport, dict[GgufType, QuantFidelity]] | None:
    """Return the folder's report and its entries of the wanted files, if all were proven and are gone.

    None also where one has 16 bits or uses an importance matrix: the first is no copy of another file, and the second
    needs the trained model to run.

    Args:
        out: folder of the export.
        model: name of the base model.
        digest: SHA-256 of the trained weights.
        names: final name of the file of each wanted type.
    """
    report = read_report(out)
    if report is None or (report.model, report.adapter_sha256) != (model, digest):
        return None
    if set(names) & {"F16", "BF16", *USE_IMPORTANCE}:
        return None
    proven = {file.file: file for file in report.files if file.passed and not (out / file.file).exists()}
    found = {quant: proven[name] for quant, name in names.items() if name in proven}
    return (report, found) if len(found) == len(names) > 0 else None


def write_again(
    base: Path,
    staging: Path,
    entries: Mapping[GgufType, QuantFidelity],
    *,
    threads: int,
    stages: StageBar,
    canceled: Canceled,
) -> dict[str, Path] | None:
    """Make the files, and compare them with those that were proven.

    Args:
        base: 16-bit file.
        staging: folder for the files.
        entries: what the report says of each type's file.
        threads: number of threads; 0: the quantizer's own.
        stages: bar of the export.
        canceled: callback polled often.

    Returns:
        Finished file of every final name; None where one has other bits, as another processor rounds otherwise.
    """
    made = {}
    for quant, entry in entries.items():
        progress = partial(stages.begin("make"), EXPORT_STAGES["make"].format(quant=quant))
        path = staging / f"{quant}.gguf"
        quantize(base, path, quant, threads=threads, canceled=canceled, progress=progress)
        made[entry.file] = path
        if sha256_file(path) != entry.sha256:
            for one in made.values():
                one.unlink()
            return None
    return made
