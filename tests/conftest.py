"""Every test gets its own home, so that none sees another's runs or leases. What stays is not collected as garbage."""

import functools
import gc
import importlib.util
import itertools
import os
import shutil
import sys
from pathlib import Path

import pytest

from support.interpreter import keep_language_patched
from support.quick import mark_cases

gc.disable()  # until all tests are collected: nothing of that is garbage
HOMES = itertools.count()
FROZEN_AT = pytest.StashKey[int]()
"""Number of modules at the last freeze."""


def pytest_configure():
    """References on the CPU use transformers' own code where fla-core is installed too, whose kernels need a GPU."""
    if importlib.util.find_spec("fla") is None:
        return
    import torch
    from transformers import PreTrainedModel

    from burnish_engine.models.transformers_path.delta_kernels import switch_over

    built = PreTrainedModel.post_init

    def post_init(self):
        built(self)
        switch_over(self, torch.device("cpu"))

    PreTrainedModel.post_init = post_init


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Before -m leaves any out: cases that only the whole suite runs are marked as such."""
    mark_cases(items)


def pytest_collection_finish():
    gc.enable()


def pytest_sessionfinish():
    """Leave all objects to the end of the process: pytest would look through them for what was dropped, four times."""
    gc.freeze()


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not has_cuda():
        pytest.skip("needs an NVIDIA GPU")
    freeze_what_is_loaded(item)


@functools.cache
def has_cuda() -> bool:
    """Whether torch finds a GPU; tests that need none do not load torch for this."""
    import torch

    return torch.cuda.is_available()


def freeze_what_is_loaded(item):
    """Take modules and collected tests out of garbage collections: engines collect when they let go of memory."""
    if len(sys.modules) > item.config.stash.get(FROZEN_AT, 0) + 50:
        gc.collect()
        gc.freeze()
        item.config.stash[FROZEN_AT] = len(sys.modules)


@pytest.fixture(autouse=True)
def burnish_home(tmp_path_factory, monkeypatch):
    """Folder that BURNISH_HOME points to during the test."""
    home = tmp_path_factory.getbasetemp() / f"home{next(HOMES)}"  # `mktemp` would list all that tests left, each time
    home.mkdir()
    monkeypatch.setenv("BURNISH_HOME", str(home))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def no_fsync():
    """Files are not forced onto the disk in the tests' own processes: no test cuts the power, and each costs 6 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def fast_interpreter():
    """Triton's interpreter, where it is on, does nothing twice."""
    with pytest.MonkeyPatch.context() as patch:
        keep_language_patched(patch)
        yield


@pytest.fixture(scope="session")
def assets() -> Path:
    """The bundled assets of this checkout."""
    return Path(__file__).resolve().parents[1] / "assets"


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Path:
    """One folder for all processes that share the tests, for what is made once, under a lock."""
    mine = tmp_path_factory.getbasetemp()
    return mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
