"""Options that describe the target device of a model, shared by `burnish models` and `burnish suggest`."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_export import GgufType, TargetSection

KindOption = Annotated[str, typer.Option("--target", help="Where it shall run: phone, laptop, desktop or server.")]
RamOption = Annotated[
    float,
    typer.Option(
        "--ram-gib", help="Memory of that device, GiB. 0: 6 (phone), 16 (laptop), 32 (desktop), 128 (server)."
    ),
]
ContextOption = Annotated[int, typer.Option("--context", help="Context it is used with there, tokens.")]
QuantOption = Annotated[str, typer.Option("--quant", help="File type, such as Q4_K_M. Empty: the best for the device.")]

DEFAULT_CONTEXT = 2048
_USUAL_RAM_GIB = {"phone": 6.0, "laptop": 16.0, "desktop": 32.0, "server": 128.0}


def target_section(kind: str, ram_gib: float, context: int = DEFAULT_CONTEXT, quant: str = "") -> TargetSection:
    """Make the target from the options; its quant is set only where one was requested.

    Raises:
        UsageError: A value is impossible.
    """
    if kind not in _USUAL_RAM_GIB:
        raise UsageError(f"There is no target {kind!r}.", f"Choose from {', '.join(_USUAL_RAM_GIB)}.")
    if not 0 <= ram_gib <= 16384:
        raise UsageError(f"--ram-gib {ram_gib:g} is not a device's memory.", "Give GiB, such as 6 or 16.")
    if quant and quant not in get_args(GgufType):
        raise UsageError(f"There is no file type {quant!r}.", f"Choose from {', '.join(get_args(GgufType))}.")
    if not 128 <= context <= 1_048_576:
        raise UsageError(f"--context {context} is out of range.", "Give 128 to 1048576 tokens.")
    values = {"kind": kind, "ram_gib": float(ram_gib or _USUAL_RAM_GIB[kind]), "context": context}
    return TargetSection.model_validate({**values, "quant": quant} if quant else values)
