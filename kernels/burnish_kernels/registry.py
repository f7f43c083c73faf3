"""All operations of this package: name -> cases and comparison with the reference. Loads Triton only when one runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

OPS = ("rms_norm",)
"""Folders of this package that hold an operation (op.py, kernel.py, reference.py, cases.py)."""


@dataclass(frozen=True)
class Case:
    """One input configuration of an operation.

    Attributes:
        name: Unique within the operation.
        tolerance: Largest relative L2 error allowed.
        options: Shapes, dtypes and switches, as the operation's `cases` module reads them.
    """

    name: str
    tolerance: float
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Op:
    """One operation.

    Attributes:
        name: Folder name.
        cases: All configurations it is tested on.
        compare: (case, device) -> worst relative error of outputs and gradients against the reference.
    """

    name: str
    cases: Callable[[], list[Case]]
    compare: Callable[..., float]


def ops() -> dict[str, Op]:
    """Every operation by name."""
    found = {}
    for name in OPS:
        module = importlib.import_module(f"burnish_kernels.{name}.cases")
        found[name] = Op(name, module.cases, module.compare)
    return found
