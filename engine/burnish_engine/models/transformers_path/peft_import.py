"""PEFT, imported without bitsandbytes, which would add a quarter to the time that the import takes."""

from __future__ import annotations

import importlib
import sys
import warnings
from types import ModuleType

_UNUSED = "bitsandbytes"


def import_peft() -> ModuleType:
    """Import PEFT; a later import of bitsandbytes, as its optimizers need, works as usual.

    PEFT imports bitsandbytes wherever it is installed, to wrap layers that bitsandbytes has quantized. Burnish has no
    such layers: its NF4 weights are its own. bitsandbytes in turn imports torch's compiler.

    PEFT's warnings are for programmers; plans and refusals say what a person should know of an adapter.
    """
    warnings.filterwarnings("ignore", module=r"peft\.")
    if "peft" in sys.modules or _UNUSED in sys.modules:
        return importlib.import_module("peft")
    sys.modules[_UNUSED] = None  # type: ignore[assignment]  # Python's way to say that a module cannot be imported
    try:
        return importlib.import_module("peft")
    finally:
        del sys.modules[_UNUSED]
