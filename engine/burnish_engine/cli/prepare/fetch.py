"""`burnish models fetch`: downloads a model by name; the only command that downloads a model."""

from __future__ import annotations

import os
import threading
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from burnish_engine.cli.stop_signals import set_on_stop
from burnish_engine.cli.terminal import out, print_json, styled
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.facts.advice import CatalogModel
from burnish_engine.contract.units import file_size
from burnish_engine.contract.wording.tables import DOWNLOAD_STAGES, recognize
from burnish_engine.hub.files import ModelListing
from burnish_engine.hub.manifest import read_manifest

_TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105  the name of the variable that huggingface_hub reads too
_WAITING = {stage: DOWNLOAD_STAGES[stage] for stage in ("wait", "resume", "retry")}


def fetch(
    name: Annotated[
        str, typer.Argument(help="Such as Qwen/Qwen3-0.6B. For what `burnish models` lists, qwen3-0.6b is enough.")
    ],
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    token_from_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Environment variable with the access token, for gated models.")
    ] = _TOKEN_VARIABLE,
    json: Annotated[bool, typer.Option("--json", help="Print what was fetched as JSON.")] = False,
) -> int:
    """Download a model by name.

    An interrupted download resumes where it was; every file is checked; only what training needs is fetched.
    """
    from burnish_engine.hub.fetch import fetch as fetch_model

    entry = _catalog_entry(name)
    with _Display(quiet=json) as display:
        folder = fetch_model(
            entry.name if entry else name,
            revision=revision,
            token=_token(token_from_env),
            progress=display.show,
            canceled=display.canceled,
            catalog_entry=entry,
            listed=display.announce,
        )
    manifest = read_manifest(folder)
    if json and manifest:
        print_json(manifest.model_dump_json(indent=2))
        return ExitCode.DONE
    out.print(f"{'Checked and ready' if display.announced else 'Already here'}: {folder}")
    out.print(f'Use it: path = "{entry.name if entry else name}" under [model] in a recipe')
    return ExitCode.DONE


def _token(variable: str) -> str:
    """Read the token from an environment variable, never from an argument, which everyone on the machine can see."""
    value = os.environ.get(variable, "")
    if not value and variable != _TOKEN_VARIABLE:
        raise UsageError(
            f"The environment variable {variable!r} is not set, so it holds no access token.",
            "Give the variable's name, not the token itself.",
        )
    return value


def _catalog_entry(name: str) -> CatalogModel | None:
    from burnish_engine.advise.facts.catalog import find_model

    return find_model(name)


class _Display:
    """Print the download's files, then a bar on a terminal or a line every tenth in a log; Ctrl-C stops cleanly."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=out,
            disable=quiet or not out.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._interrupted = threading.Event()
        self._signals = set_on_stop(self._interrupted)
        self._tenths = 0
        self._waiting = ""
        self.announced = False

    def __enter__(self) -> _Display:
        self._signals.__enter__()
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.__exit__(None, None, None)
        self._bar.stop()

    def announce(self, listing: ModelListing) -> None:
        """Print the files to download: the `listed` callback."""
        self.announced = True
        if self._quiet:
            return
        here = f", {file_size(listing.downloaded_bytes)} of them here" if listing.downloaded_bytes else ""
        what = f" at {listing.commit[:12]}: {len(listing.files)} files, {file_size(listing.total_bytes)}{here}"
        out.print(styled("[bold]{}[/]{}", listing.name, what))
        out.print(f"License: {listing.license or 'not named on its page; read it before you use the model'}")
        if listing.license_note:
            out.print(listing.license_note)
        if listing.gated:
            out.print("Gated: the terms you accepted on its page apply.")

    def show(self, what: str, done: int, total: int) -> None:
        """Show the progress: the `progress` callback."""
        self._bar.update(self._task, description=what, completed=done, total=total or None)
        if self._quiet or out.is_terminal:
            return
        if recognize(what, _WAITING) and what != self._waiting:
            self._waiting = what
            out.print(what)
        tenths = done * 10 // total if total else 0
        if tenths > self._tenths:
            self._tenths = tenths
            out.print(f"{tenths * 10} %  {file_size(done)} of {file_size(total)}")

    def canceled(self) -> bool:
        """Whether to stop: the `canceled` callback."""
        return self._interrupted.is_set()
