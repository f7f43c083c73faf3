"""`burnish serve`: answers a program's requests on standard input and output, as JSON lines."""

from __future__ import annotations

from typing import Annotated

import typer

from burnish_engine.cli.terminal import print_raw


def serve(
    protocol: Annotated[bool, typer.Option("--protocol", help="Print the description of the protocol.")] = False,
) -> None:
    """Answer the desktop app, or a program of yours.

    Requests in on standard input, progress and results out on standard output, one JSON object a line.
    """
    if protocol:
        from burnish_engine.contract.serve.protocol_page import protocol_page

        print_raw(protocol_page())
        return
    from burnish_engine.service.serve import serve as serve_lines

    serve_lines()
