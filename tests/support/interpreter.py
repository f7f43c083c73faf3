"""Makes Triton's interpreter faster where it does the same over and over."""

import os
from importlib.util import find_spec
from types import SimpleNamespace

import pytest


def keep_language_patched(patch: pytest.MonkeyPatch) -> None:
    """Replace the language's functions once for each module of kernels, and let that stay.

    The interpreter replaces all of them by NumPy's at each launch, and again whenever a kernel calls a function: more
    than a third of a case's time. It undoes that after a launch, for programs that compile as well; where
    TRITON_INTERPRET is set, nothing is compiled.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or find_spec("triton") is None:
        return
    from triton.runtime import interpreter

    replace, done = interpreter._patch_lang, set()

    def replace_once(function):
        if function.__module__ not in done:
            replace(function)
            done.add(function.__module__)
        return SimpleNamespace(restore=lambda: None)

    patch.setattr(interpreter, "_patch_lang", replace_once)
