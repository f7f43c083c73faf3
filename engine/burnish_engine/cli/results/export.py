"""`burnish export`: makes verified files from a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, get_args

import typer
from pydantic import ValidationError

from burnish_engine.chat.run_model import base_of_whole, trained_model
from burnish_engine.cli.results.export_adapters import (
    export_adapter_file,
    export_adapter_folder,
    why_merged_instead,
)
from burnish_engine.cli.results.export_bar import ExportBar
from burnish_engine.cli.terminal import out, typed_run
from burnish_engine.contract.errors import ExitCode, FidelityError, SetupError, UsageError
from burnish_engine.contract.facts.exports import GGUF_KINDS, ExportKind
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_export import (
    COARSE_TYPES,
    USE_IMPORTANCE,
    ExportSection,
    GgufType,
    MergeOnto,
)
from burnish_engine.contract.units import file_size
from burnish_engine.export.base.kind_check import check_kind
from burnish_engine.export.base.staging import require_folder, require_space
from burnish_engine.hardware.host.awake import kept_awake
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.runs.jobs.export_job import ExportReporter
from burnish_engine.runs.store import adapter_of, open_run, read_recipe, trained_of, with_own_template
from burnish_engine.scoring.rows_file import scored_tokens

_MTP = "mtp"
"""The part of a model that files can be made without."""


def export(
    run: Annotated[str, typer.Argument(help='Name or folder of the run; "last" is the newest.')],
    to: Annotated[
        ExportKind,
        typer.Option(
            metavar="KIND",
            help="gguf, safetensors (adapter merged into the base), adapter (PEFT), lora-gguf (the adapter alone, for "
            "llama.cpp), ollama, or lmstudio (its folder layout).",
        ),
    ] = "gguf",
    quant: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="GGUF type, such as Q4_K_M; may be repeated. Default: the recipe's."),
    ] = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Folder for the files. Default: the run's.")] = None,
    name: Annotated[str, typer.Option(help="What to call the model and its files.")] = "",
    importance: Annotated[
        bool | None,
        typer.Option(
            "--importance/--no-importance",
            help="Round least what the training rows use most. Default: the recipe's, which is yes.",
        ),
    ] = None,
    merge_onto: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="Of a run on 4-bit weights: add the adapter to the 16-bit `base`, or to the `dequantized` weights it "
            "was trained on. Default: the recipe's.",
        ),
    ] = "",
    leave_out: Annotated[
        str,
        typer.Option(
            metavar="PART",
            help="Leave a part of the model out of the files: `mtp`, the layer for multi-token prediction (Qwen3.5).",
        ),
    ] = "",
    size_limit: Annotated[
        float | None,
        typer.Option(metavar="MB", min=0.0, help="Largest file wanted; the best below it is suggested."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what it would take: exact sizes, disk, memory, time.")
    ] = False,
    push: Annotated[
        str,
        typer.Option(
            metavar="OWNER/NAME",
            help="Make nothing, but send the verified files made before to a model hub (HF_TOKEN, HF_ENDPOINT).",
        ),
    ] = "",
    each_expert: Annotated[
        bool,
        typer.Option(
            "--each-expert",
            help="With --to adapter, of a mixture: the matrices of every expert apart, for programs that do not know "
            "PEFT's fused experts.",
        ),
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="With --push: a new repository is public.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the fidelity report as JSON.")] = False,
) -> int:
    """Make files of a trained model.

    A GGUF is called done only after it was compared, token by token, with the model that was trained.
    """
    _check_options(to, json=json, each_expert=each_expert, leave_out=leave_out)
    paths = open_run(run)
    if push:
        return _push(out_dir or paths.export, push, private=not public)
    (adapter_of if to in ("adapter", "lora-gguf") else trained_of)(paths)
    recipe = _with_options(with_own_template(paths, read_recipe(paths)), importance, merge_onto, size_limit)
    # An adapter is written even where the base no longer exists.
    trained = None if to == "adapter" else _TrainedModel.open(paths, recipe, to, name, leave_out=leave_out)
    if to == "lora-gguf" and (why := why_merged_instead(paths)):
        out.note(f"{why} It is merged into the model instead.")
        to = "gguf"
    quants = _types(quant, recipe) if to in GGUF_KINDS else []
    folder = out_dir or paths.export
    require_folder(folder)
    if plan:
        return _show_plan(trained, folder, quants)
    for coarse in (one for one in quants if one in COARSE_TYPES and not json):
        out.note(f"{coarse} has less than four bits a weight and loses much; compare its figures.")
    with (
        kept_awake(f"Exporting {paths.root.name}"),
        ExportReporter(paths, to, quants) as reporter,
        ExportBar(quiet=json, reporter=reporter) as bar,
    ):
        report: FidelityReport | None = None
        written, best, why = folder, "", ""
        if trained is None:
            written = export_adapter_folder(paths, recipe, folder / to, each_expert=each_expert)
        elif to in GGUF_KINDS:
            report = _export_files(trained, folder, quants, bar, reporter)
            if to != "gguf":
                _place_files(report, trained, folder, to, quiet=json)
            best, why = _suggested(report, trained)
        else:
            written = _export_other(trained, folder, to, bar)
        reporter.finished(str(written.absolute()), report, suggested=best, why=why)
        bar.stop()
    if report is None:
        out.print(f"Wrote {written.absolute()}")
    else:
        _show(report, why, folder, json=json)
    if not json and (trial := _chat_command(paths, to, written, report)):
        out.print(f"Try it: {trial}")
    return ExitCode.DONE


@dataclass(frozen=True)
class _TrainedModel:
    """The model or adapter that a run trained, opened once for all that an export does with it."""

    paths: RunPaths
    recipe: Recipe
    source: ModelSource
    adapter: Path | None
    name: str

    @classmethod
    def open(cls, paths: RunPaths, recipe: Recipe, to: ExportKind, name: str, *, leave_out: str) -> Self:
        """Open it without a part that is to be left out, and refuse a kind of export that does not work for it."""
        source, adapter = trained_model(paths, recipe)
        check_kind(to, source, adapter)
        if leave_out:
            source = _without_drafts(source)
        return cls(paths, recipe, source, adapter, name or recipe.name or f"{source.name}-tuned")


def _without_drafts(source: ModelSource) -> ModelSource:
    if source.spec is None or not source.spec.mtp_layers:
        raise UsageError(f"{source.name} has no layer for multi-token prediction.", "Start again without --leave-out.")
    out.note("The layer for multi-token prediction (mtp) is left out.")
    return source.without_drafts()


def _check_options(to: ExportKind, *, json: bool, each_expert: bool, leave_out: str) -> None:
    if leave_out not in ("", _MTP):
        raise UsageError(f"--leave-out is {leave_out!r}.", f"The only part that can be left out is {_MTP}.")
    if leave_out and to in ("adapter", "lora-gguf"):
        raise UsageError(f"--leave-out is for whole models; --to {to} holds the adapter alone.", "Leave it out.")
    if json and to not in GGUF_KINDS:
        raise UsageError(f"--json prints the fidelity report, which --to {to} has none of.", "Leave --json out.")
    if each_expert and to != "adapter":
        raise UsageError("--each-expert is for adapters.", "Add --to adapter.")


def _chat_command(paths: RunPaths, to: ExportKind, written: Path, report: FidelityReport | None) -> str:
    """Make the command that chats with the exported model."""
    if to in ("ollama", "lmstudio", "lora-gguf"):
        return ""  # the notes beside the files explain it
    if report is None:
        return f"burnish chat {typed(written.absolute()) if to == 'safetensors' else typed_run(paths)}"
    if written == paths.export:
        return f"burnish chat {typed_run(paths)} --exported"
    return f"burnish chat {typed((written / report.files[0].file).absolute())}"


def _push(folder: Path, repository: str, *, private: bool) -> int:
    from burnish_engine.export.destinations.push import push
    from burnish_engine.hub.offline import GO_ONLINE, is_offline

    if is_offline():
        raise SetupError(f"{repository} is not pushed: the environment asks for no network.", GO_ONLINE)
    with ExportBar(quiet=False) as bar:
        url = push(folder, repository, private=private, progress=bar.show, canceled=bar.canceled)
    out.print(f"Pushed: {url}")
    return ExitCode.DONE


def _show_plan(trained: _TrainedModel | None, folder: Path, quants: list[GgufType]) -> int:
    from burnish_engine.cli.results.export_report import show_forecast
    from burnish_engine.export.preflight import forecast_gguf

    if trained is None or not quants:
        raise UsageError("--plan is for GGUF files.", "Give --to gguf, ollama or lmstudio.")
    weighing = trained.recipe.export
    cost = forecast_gguf(
        trained.source,
        trained.adapter,
        trained.name,
        quants,
        importance_tokens=weighing.importance_tokens if weighing.importance else 0,
        scored_tokens=scored_tokens(trained.paths),
    )
    show_forecast(cost)
    require_space(folder, cost.disk_bytes, f"The export ({', '.join(quants)})")
    return ExitCode.DONE


def _export_other(trained: _TrainedModel, folder: Path, to: ExportKind, bar: ExportBar) -> Path:
    """Export the adapter as a GGUF, or the trained model (with an adapter: merged) as a folder."""
    from burnish_engine.chat.device import chat_device
    from burnish_engine.export.proven_folder import export_proven_safetensors
    from burnish_engine.export.run_rows import kept_in_4_bits
    from burnish_engine.runs.held_out import load_held_out

    paths, recipe, source = trained.paths, trained.recipe, trained.source
    if to == "lora-gguf" and trained.adapter is not None:
        return export_adapter_file(paths, recipe, source, trained.name, trained.adapter, folder, bar)
    onto_rounded = recipe.export.merge_onto == "dequantized"
    rounded = kept_in_4_bits(paths, recipe, source) if onto_rounded else frozenset[str]()
    found = export_proven_safetensors(
        source,
        trained.adapter,
        folder / to,
        held_out=load_held_out(paths)[0],
        rounded=rounded,
        device=chat_device(recipe.devices)[0],
        progress=bar.show,
        canceled=bar.canceled,
    )
    bar.say(
        f"transformers loads the files, and on {found.positions:,} held-out tokens they are the trained model: mean KL "
        f"divergence {max(found.mean_kl, 0.0):.2g}."
    )
    return folder / to


def _export_files(
    trained: _TrainedModel,
    folder: Path,
    quants: list[GgufType],
    bar: ExportBar,
    reporter: ExportReporter,
) -> FidelityReport:
    from burnish_engine.chat.device import chat_device
    from burnish_engine.export.job import export_gguf
    from burnish_engine.export.model_card import write_card
    from burnish_engine.export.report_page import write_page
    from burnish_engine.export.run_rows import export_rows, reference_options
    from burnish_engine.export.verify.reference import ExportedModel
    from burnish_engine.export.verify.report import read_report

    paths, recipe, source = trained.paths, trained.recipe, trained.source
    rows, importance = export_rows(paths, recipe, source), recipe.export.importance
    if rows.note and importance and set(quants) & set(USE_IMPORTANCE):
        bar.say(f"note: {rows.note}")
    base, without_base = (None, "") if trained.adapter else base_of_whole(recipe)
    if without_base:
        bar.say(f"note: {without_base}")
    model = ExportedModel(
        source,
        trained.adapter,
        rows.held_out,
        rows.chats[:3],
        reference_options(paths, recipe, source, rows, base=base, importance=importance),
        chat_device(recipe.devices)[0],
    )
    try:
        report = export_gguf(model, folder, trained.name, quants, progress=bar.show, canceled=bar.canceled)
    except FidelityError:
        reporter.attach(read_report(folder))
        raise
    data = [Path(file).name for file in recipe.data.files]
    whole = read_report(folder) or report
    write_card(folder, whole, run=paths.root.name, data=data)
    write_page(folder, whole, run=recipe.name or paths.root.name, data=data)
    return report


def _place_files(report: FidelityReport, trained: _TrainedModel, folder: Path, to: ExportKind, *, quiet: bool) -> None:
    """Place the files for Ollama or LM Studio."""
    from burnish_engine.export.destinations.lm_studio import export_lm_studio
    from burnish_engine.export.destinations.ollama import export_ollama, model_sampling

    for entry in report.files:
        if to == "lmstudio":
            written = export_lm_studio(folder / entry.file, folder / "lmstudio", trained.name)
            lines = [f"Wrote {written}", "Copy what is in the folder lmstudio into LM Studio's models folder."]
        else:
            made, sampling = folder / entry.file, model_sampling(trained.source.folder)
            result = export_ollama(made, folder / f"ollama-{entry.quant}", sampling=sampling)
            lines = [f"Wrote {result.modelfile}", *(f"note: {note}" for note in result.notes)]
        for line in () if quiet else lines:
            out.print(line)


def _with_options(recipe: Recipe, importance: bool | None, merge_onto: str, size_limit: float | None) -> Recipe:
    """Apply the command line's options to the recipe."""
    onto: dict[str, MergeOnto] = {name: name for name in get_args(MergeOnto)}
    if merge_onto and merge_onto not in onto:
        raise UsageError(f"--merge-onto is {merge_onto!r}.", f"Choose {' or '.join(onto)}.")
    said = {
        "importance": importance,
        "merge_onto": onto.get(merge_onto),
        "size_limit_mb": size_limit,
    }
    changed = {name: value for name, value in said.items() if value is not None}
    try:
        chosen = ExportSection.model_validate({**recipe.export.model_dump(), **changed})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"--size-limit is {first['input']}: {first['msg']}.", "Give megabytes, such as 400.") from None
    return recipe.model_copy(update={"export": chosen})


def _suggested(report: FidelityReport, trained: _TrainedModel) -> tuple[str, str]:
    """Choose the best of several files for the limit or the target, with the reason; an empty name where none fits."""
    from burnish_engine.export.verify.verdict import suggest

    if len(report.files) < 2:
        return "", ""
    limit = int(trained.recipe.export.size_limit_mb * 1e6)
    spec, target = trained.source.spec, trained.recipe.target
    best = suggest(report, size_limit_bytes=limit, spec=spec, target=target)
    if best is None:
        return (
            "",
            f"None of the files is below {file_size(limit)}." if limit else "None of the files fits the target.",
        )
    return best.file.file, best.why


def _show(report: FidelityReport, why: str, folder: Path, *, json: bool) -> None:
    from burnish_engine.cli.results.export_report import show_report

    show_report(report, folder, json=json)
    if not json and why:
        out.print(why)


def _types(asked: list[str] | None, recipe: Recipe) -> list[GgufType]:
    known: dict[str, GgufType] = {name: name for name in get_args(GgufType)}
    odd = [name for name in asked or () if name.upper() not in known]
    if odd:
        raise UsageError(f"{odd[0]!r} is no GGUF type that can be made.", f"Choose from {', '.join(known)}.")
    return [known[name.upper()] for name in asked] if asked else recipe.export.quants
