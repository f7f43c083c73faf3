"""`burnish serve`: answers a program's requests on standard input and output, as JSON lines."""

from __future__ import annotations

from typing import Annotated

import typer

from burnish_engine.cli.terminal import print_raw
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.recipe.place import parse_place


def serve(
    protocol: Annotated[bool, typer.Option("--protocol", help="Print the description of the protocol.")] = False,
    on: Annotated[
        str, typer.Option(help="Let a machine that ssh reaches answer: ssh:HOST. Its models and runs are meant then.")
    ] = "",
) -> int:
    """Answer the desktop app, or a program of yours.

    Requests in on standard input, progress and results out on standard output, one JSON object a line.
    """
    if protocol:
        from burnish_engine.contract.serve.protocol_page import protocol_page

        print_raw(protocol_page())
        return ExitCode.DONE
    if on:
        from burnish_engine.remote.serve_there import serve_there

        try:
            place = parse_place(on)
        except ValueError as error:
            raise UsageError(f"--on {error}.", "Name a machine, such as --on ssh:HOST.") from None
        return serve_there(place)
    from burnish_engine.service.serve import serve as serve_lines

    serve_lines()
    return ExitCode.DONE
