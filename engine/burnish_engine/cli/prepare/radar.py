"""`burnish models radar`: which causal model types of the installed transformers work, tried on small models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from burnish_engine.cli.terminal import err, out, print_raw
from burnish_engine.contract.errors import ExitCode, UsageError


def radar(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="TYPE", help="Try this model_type alone; may be repeated.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="File of JSON lines that is added to; types that are in it already are not tried again."),
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Print the guide's page.")] = False,
) -> int:
    """Try every causal model type of transformers, each in small.

    Each is planned, trained, exported to GGUF and compared in llama.cpp, on the processor.
    """
    import transformers

    from burnish_engine.radar.radar import causal_types, scan
    from burnish_engine.radar.verdict import page

    known = causal_types()
    strange = sorted(set(only or []) - set(known))
    if strange:
        raise UsageError(
            f"transformers {transformers.__version__} knows no causal model type {', '.join(strange)}.",
            "Give a model_type as config.json has it.",
        )
    found = []
    for verdict in scan(only or known, results):
        found.append(verdict)
        (err if table else out).print(" ".join(verdict.row.replace("|", " ").split()), highlight=False, markup=False)
    if table:
        print_raw(page(found, transformers.__version__))
    return ExitCode.DONE
