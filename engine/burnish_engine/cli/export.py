"""`burnish export` and `burnish verify`: files from a run, each with its proof."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from burnish_engine.cli.terminal import out, print_json, size, typed, typed_run
from burnish_engine.contract.errors import ExitCode, FidelityError, UsageError
from burnish_engine.contract.facts import FidelityReport
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import GgufType, Recipe
from burnish_engine.models.source import ModelSource, open_model, open_trained
from burnish_engine.runs.export_job import ExportReporter
from burnish_engine.runs.held_out import load_held_out
from burnish_engine.runs.store import adapter_of, open_run, read_recipe, trained_of

Kind = Literal["gguf", "safetensors", "adapter", "ollama"]


def export(
    run: Annotated[str, typer.Argument(help='Name or folder of the run; "last" is the newest.')],
    to: Annotated[
        Kind,
        typer.Option(
            metavar="KIND", help="gguf, safetensors (adapter merged into the base), adapter (PEFT) or ollama."
        ),
    ] = "gguf",
    quant: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="GGUF type, such as Q4_K_M; may be repeated. Default: the recipe's."),
    ] = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Folder for the files. Default: the run's.")] = None,
    name: Annotated[str, typer.Option(help="What to call the model and its files.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the fidelity report as JSON.")] = False,
) -> int:
    """Make files of a trained model.

    A GGUF is called done only after it was compared, token by token, with the model that was trained.
    """
    if json and to not in ("gguf", "ollama"):
        raise UsageError(f"--json prints the fidelity report, which --to {to} has none of.", "Leave --json out.")
    paths = open_run(run)
    (adapter_of if to == "adapter" else trained_of)(paths)
    recipe = read_recipe(paths)
    quants = _types(quant, recipe) if to in ("gguf", "ollama") else []
    folder = out_dir or paths.export
    with ExportReporter(paths, to, quants) as reporter, _ProgressBar(quiet=json, reporter=reporter) as bar:
        if to in ("adapter", "safetensors"):
            written = _export_folder(paths, recipe, folder / to, bar)
            report = None
        else:
            report = _export_files(paths, recipe, folder, name, quants, bar, reporter)
            written = folder
        if to == "ollama" and report is not None:
            _write_modelfiles(report, folder, quiet=json)
        reporter.finished(str(written.absolute()), report)
        bar.stop()
    if report is None:
        out.print(f"Wrote {escape(str(written.absolute()))}")
    else:
        show_report(report, folder, json=json)
    if not json and (trial := _trial(paths, to, written, report)):
        out.print(f"Try it: {escape(trial)}")
    return ExitCode.DONE


def _trial(paths: RunPaths, to: Kind, written: Path, report: FidelityReport | None) -> str:
    """The command that talks to what was exported."""
    if to == "ollama":
        return ""  # the notes beside the Modelfile say how
    if report is None:
        return f"burnish chat {typed(written.absolute()) if to == 'safetensors' else typed_run(paths)}"
    if written == paths.export:
        return f"burnish chat {typed_run(paths)} --exported"
    return f"burnish chat {typed((written / report.files[0].file).absolute())}"


def _export_folder(paths: RunPaths, recipe: Recipe, target: Path, bar: _ProgressBar) -> Path:
    """The adapter, or the trained model (with an adapter: merged into the base), as a folder."""
    from burnish_engine.export.folders import export_adapter, export_safetensors

    if target.name == "adapter":
        return export_adapter(adapter_of(paths), target)
    source, adapter = _trained(paths, recipe)
    return export_safetensors(source, adapter, target, progress=bar.show, cancelled=bar.cancelled)


def _trained(paths: RunPaths, recipe: Recipe) -> tuple[ModelSource, Path | None]:
    """What the run trained: base and adapter, or a model and no adapter."""
    trained = trained_of(paths)
    if trained == paths.model:
        return open_trained(trained, recipe.model.path), None
    return open_model(recipe.model.path), trained


def _export_files(
    paths: RunPaths,
    recipe: Recipe,
    folder: Path,
    name: str,
    quants: list[GgufType],
    bar: _ProgressBar,
    reporter: ExportReporter,
) -> FidelityReport:
    from burnish_engine.chat.device import undisturbing_device
    from burnish_engine.export.job import export_gguf
    from burnish_engine.export.report import read_report

    source, adapter = _trained(paths, recipe)
    ids, chats = load_held_out(paths)
    try:
        return export_gguf(
            source,
            adapter,
            folder,
            name or recipe.name or f"{source.name}-tuned",
            quants,
            held_out=ids,
            probe_chats=chats[:3],
            progress=bar.show,
            cancelled=bar.cancelled,
            device=undisturbing_device(recipe.devices)[0],
        )
    except FidelityError:
        reporter.attach(read_report(folder))
        raise


def _write_modelfiles(report: FidelityReport, folder: Path, *, quiet: bool) -> None:
    from burnish_engine.export.ollama import export_ollama

    for entry in report.files:
        result = export_ollama(folder / entry.file, folder / f"ollama-{entry.quant}")
        if not quiet:
            out.print(f"Wrote {escape(str(result.modelfile))}")
            for note in result.notes:
                out.print(f"note: {escape(note)}")


def verify(
    file: Annotated[Path, typer.Argument(help="A GGUF file.")],
    against: Annotated[str, typer.Option(help="The run it was made from.")],
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Prove again that a GGUF file is the model that a run trained."""
    from burnish_engine.chat.device import undisturbing_device
    from burnish_engine.export.job import verify_file

    paths = open_run(against)
    recipe = read_recipe(paths)
    source, adapter = _trained(paths, recipe)
    ids, chats = load_held_out(paths)
    with _ProgressBar(quiet=json) as bar:
        report = verify_file(
            file,
            source,
            adapter,
            held_out=ids,
            probe_chats=chats[:3],
            progress=bar.show,
            cancelled=bar.cancelled,
            device=undisturbing_device(recipe.devices)[0],
        )
    show_report(report, file.parent, json=json)
    if not report.passed:
        problems = "; ".join(problem for entry in report.files for problem in entry.problems)
        raise FidelityError(f"{file} is not the model that {paths.root.name} trained: {problems}.", "Export it again.")
    return ExitCode.DONE


def show_report(report: FidelityReport, folder: Path, *, json: bool) -> None:
    """Print a fidelity report."""
    if json:
        print_json(report.model_dump_json(indent=2))
        return
    same = report.token_strings - report.token_mismatches
    out.print(f"Token ids: {same} of {report.token_strings} comparisons equal the model's own tokenizer.")
    if report.conversion_kl is not None:
        out.print(f"16-bit file against the trained model: mean KL {report.conversion_kl:.1e}.")
    table = Table(box=None, pad_edge=False)
    for title in ("type", "size", "mean KL", "99 % KL", "same top token", "reply", ""):
        table.add_column(title)
    for entry in report.files:
        table.add_row(
            entry.quant,
            size(entry.bytes),
            f"{entry.mean_kl:.6f}",
            f"{entry.p99_kl:.4f}",
            f"{entry.top1_agreement:.1%}",
            "ends" if entry.reply_stopped else "does not end",
            "[green]verified[/]" if entry.passed else "[red]refused[/]",
        )
    out.print(table)
    for entry in report.files:
        for note in entry.fallbacks:
            out.print(f"[dim]{entry.quant}: {note}[/]")
    for entry in report.files:
        out.print(escape(str((folder / entry.file).absolute())))


def _types(asked: list[str] | None, recipe: Recipe) -> list[GgufType]:
    known: dict[str, GgufType] = {name: name for name in get_args(GgufType)}
    odd = [name for name in asked or () if name.upper() not in known]
    if odd:
        raise UsageError(f"{odd[0]!r} is no GGUF type that can be made.", f"Choose from {', '.join(known)}.")
    return [known[name.upper()] for name in asked] if asked else recipe.export.quants


class _ProgressBar:
    """Shows (what, share) on a terminal and to the reporter; Ctrl-C, or its cancel, asks the work to stop cleanly."""

    def __init__(self, *, quiet: bool, reporter: ExportReporter | None = None) -> None:
        self._reporter = reporter
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            console=out,
            disable=quiet or not out.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=1.0)
        self._quiet = quiet
        self._stage = ""
        self._interrupted = threading.Event()

    def __enter__(self) -> _ProgressBar:
        import signal

        self._before = signal.signal(signal.SIGINT, lambda *_: self._interrupted.set())
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        import signal

        signal.signal(signal.SIGINT, self._before)
        self.stop()

    def stop(self) -> None:
        """Take the bar off the screen."""
        self._bar.stop()

    def show(self, what: str, share: float) -> None:
        """The `progress` callback."""
        self._bar.update(self._task, description=what, completed=share)
        if what != self._stage and share < 1.0 and not self._quiet and not out.is_terminal:
            out.print(f"{escape(what)}...")
        self._stage = what
        if self._reporter:
            self._reporter.progress(what, share)

    def cancelled(self) -> bool:
        """The `cancelled` callback."""
        return self._interrupted.is_set() or (self._reporter is not None and self._reporter.cancelled())
