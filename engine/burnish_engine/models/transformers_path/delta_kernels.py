"""Run the delta nets of transformers' models on the kernels of fla-core, within packed documents and on a GPU alone.

Where fla-core is installed, transformers calls its Triton kernels for tensors on any device, which those on a CPU end
in an error, and hands them no documents (`use_kernel_func_from_hub_with_fallback` in integrations/hub_kernels.py). Here
tensors on a CPU get transformers' own torch code, and inside `within` the kernels get the documents of a packed row.
The short convolution in front of them gets each document behind zeros. Whether a model then keeps documents apart is
measured on the loaded model (`train.plain.layout_choice`), not read from a list.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

_PACKAGE, _DOCUMENTS = "fla", "cu_seqlens"
_CONVOLUTION = "causal_conv1d_fn"
_MARK = "burnish_choice"  # attribute of the functions that replace transformers'
_WITHOUT_KERNELS = {"cpu", "meta"}  # kinds of devices whose tensors no Triton kernel takes
DeltaKernels = Literal["", "torch", "fla"]
"""Code of a model's delta nets on a GPU: it has none, transformers' own, or fla-core's."""

# Not a context variable: layers that are computed again in the backward pass run in a thread of autograd's.
_current: NDArray[np.integer] | None = None


@dataclass(frozen=True)
class _Choice:
    """One of transformers' functions that may run on the kernels of another package."""

    name: str  # name of the kernel
    package: str  # package that has it
    is_kernel: bool  # whether that package is installed
    torch_code: Callable[..., Any]  # transformers' own code
    parameters: tuple[str, ...]  # names of the parameters that the chosen code takes


@contextmanager
def within(boundaries: NDArray[np.integer] | None) -> Iterator[None]:
    """Set the documents of a packed row; the backward pass belongs inside the block too.

    Args:
        boundaries: first token of each document, then the number of tokens; None: the row is not packed.
    """
    global _current  # noqa: PLW0603
    before, _current = _current, boundaries
    try:
        yield
    finally:
        _current = before


def switch_over(model: Any, device: torch.device) -> DeltaKernels:
    """Make the functions of a model's modules choose by device and documents, and return what its delta nets run on.

    They are functions of transformers' modules, so that all models of the same architecture change.

    Args:
        model: model of transformers, with or without an adapter.
        device: device that the model computes on.
    """
    kinds: set[bool] = set()
    for name in sorted({type(module).__module__ for module in model.modules()}):
        held = vars(sys.modules[name]) if name in sys.modules else {}
        found = {key: choice for key, function in held.items() if (choice := _choice_of(function))}
        rules = [choice.is_kernel for choice in found.values() if choice.package == _PACKAGE]
        kinds.update(rules)
        for key, choice in found.items():
            if not hasattr(held[key], _MARK):
                held[key] = _chosen(held[key], choice, keeps_apart=any(rules))
    if not kinds:
        return ""
    return "fla" if all(kinds) and device.type not in _WITHOUT_KERNELS else "torch"


def _choice_of(function: Any) -> _Choice | None:
    if (known := getattr(function, _MARK, None)) is not None:
        return known if isinstance(known, _Choice) else None
    code = getattr(function, "__code__", None)
    if code is None or "is_new_implementation" not in code.co_freevars:
        return None
    held = inspect.getclosurevars(function).nonlocals
    return _Choice(
        held["func_name"],
        held["package"],
        held["is_new_implementation"],
        held["torch_function"],
        held["applicable_params"],
    )


def _chosen(function: Callable[..., Any], choice: _Choice, *, keeps_apart: bool) -> Callable[..., Any]:
    """Wrap one of transformers' functions, whose first argument is a tensor of its inputs.

    Args:
        function: the function.
        choice: what it chose when it was made.
        keeps_apart: whether delta nets of its module have kernels that keep documents apart.
    """

    @functools.wraps(function)
    def call(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        if x.device.type in _WITHOUT_KERNELS:
            return (choice.torch_code if choice.is_kernel else function)(x, *args, **options)
        if _current is None or not keeps_apart:
            return function(x, *args, **options)
        if choice.name == _CONVOLUTION:
            return convolve_apart(function, _current, x, *args, **options)
        if choice.is_kernel and _DOCUMENTS in choice.parameters:
            options[_DOCUMENTS] = torch.from_numpy(_current.astype(np.int64)).to(x.device)
        return function(x, *args, **options)

    setattr(call, _MARK, choice)
    return call


def convolve_apart(
    run: Callable[..., torch.Tensor],
    boundaries: NDArray[np.integer],
    x_BCT: torch.Tensor,
    weight_CW: torch.Tensor,
    *args: Any,
    **options: Any,
) -> torch.Tensor:
    """Convolve with as many zeros in front of each document as the kernel reaches back.

    Args:
        run: causal convolution of a row, whose first two arguments are those below.
        boundaries: first token of each document, then the number of tokens.
        x_BCT: the row.
        weight_CW: weights of each channel.
        args: further arguments of `run`.
        options: further arguments of `run`.
    """
    reach, lengths = weight_CW.shape[-1] - 1, torch.from_numpy(np.diff(boundaries).astype(np.int64))
    gaps = torch.repeat_interleave(torch.arange(len(lengths)) * reach, lengths)
    places = (torch.arange(x_BCT.shape[-1]) + gaps).to(x_BCT.device)
    spread = x_BCT.new_zeros(*x_BCT.shape[:-1], x_BCT.shape[-1] + reach * (len(lengths) - 1))
    spread = spread.index_copy(-1, places, x_BCT)
    return run(spread, weight_CW, *args, **options).index_select(-1, places)
