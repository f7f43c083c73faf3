"""`burnish verify`: verifies again that a file is the model that a run trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from burnish_engine.chat.run_model import base_of_whole, trained_model
from burnish_engine.cli.results.export_bar import ExportBar
from burnish_engine.contract.errors import ExitCode, FidelityError
from burnish_engine.runs.store import open_run, read_recipe, with_own_template


def verify(
    file: Annotated[Path, typer.Argument(help="A GGUF file.")],
    against: Annotated[str, typer.Option(help='Name or folder of the run it was made from; "last" is the newest.')],
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Prove again that a GGUF file is the model that a run trained."""
    from burnish_engine.chat.device import chat_device
    from burnish_engine.cli.results.export_report import show_report
    from burnish_engine.export.run_rows import export_rows, reference_options
    from burnish_engine.export.verify.reference import ExportedModel
    from burnish_engine.export.verify.verify import verify_file

    paths = open_run(against)
    recipe = with_own_template(paths, read_recipe(paths))
    source, adapter = trained_model(paths, recipe)
    rows = export_rows(paths, recipe, source)
    base = None if adapter else base_of_whole(recipe)[0]
    with ExportBar(quiet=json) as bar:
        report = verify_file(
            file,
            ExportedModel(
                source,
                adapter,
                rows.held_out,
                rows.chats[:3],
                reference_options(paths, recipe, source, rows, base=base),
                chat_device(recipe.devices)[0],
            ),
            exports=[paths.export],
            progress=bar.show,
            canceled=bar.canceled,
        )
    show_report(report, file.parent, json=json)
    unproven = " ".join(entry.unproven for entry in report.files)
    if unproven:
        raise FidelityError(
            f"{file} could not be shown to be the model that {paths.root.name} trained. {unproven}",
            "Export the run again: such a file names the weights that it was made from.",
        )
    if not report.passed:
        problems = " ".join(problem for entry in report.files for problem in entry.problems)
        raise FidelityError(f"{file} is not the model that {paths.root.name} trained. {problems}", "Export it again.")
    return ExitCode.DONE
