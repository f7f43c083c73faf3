"""`burnish bundle`: makes one archive that sets an engine up on a PC without a network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from burnish_engine.cli.terminal import err
from burnish_engine.contract.errors import ExitCode, SetupError
from burnish_engine.contract.units import file_size
from burnish_engine.install.bundle import bundle_content, write_bundle
from burnish_engine.install.files.sources import open_source
from burnish_engine.install.offer import RELEASE_VARIABLE, read_offer, release_places, trusted_key


def bundle(
    output: Annotated[Path, typer.Argument(help="Archive to write, such as burnish.zip.")],
    target: Annotated[
        list[str] | None,
        typer.Option("--target", help="Kind of machine, such as linux-x86_64-cu130; repeatable. Default: all."),
    ] = None,
    release: Annotated[
        str, typer.Option("--release", help="Folder, address or bundle of the release. Default: BURNISH_RELEASE.")
    ] = "",
    add: Annotated[
        list[Path] | None, typer.Option("--add", help="File to put in, such as the window's package; repeatable.")
    ] = None,
) -> int:
    """Make one archive that sets up the engine on another PC.

    It needs no network there, and may have another card: name the kinds of machine with --target.
    """
    places = [release] if release else release_places(os.environ)
    if not places:
        raise SetupError("No release was named.", f"Name one with --release, or in {RELEASE_VARIABLE}.")
    sources = [open_source(place) for place in places]
    offer = read_offer(sources[0], trusted_key(os.environ))
    content = bundle_content(offer, target or sorted(offer.release.targets), add or [])
    err.print(f"{len(content.files)} files, {file_size(content.size_bytes)}, for {', '.join(content.targets)}.")
    write_bundle(offer, content, sources, output)
    err.print(f"Wrote {output}.", soft_wrap=True)
    return ExitCode.DONE
