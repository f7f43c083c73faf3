"""pytest plugin of `record`: which lines each test executes, and how much processor time it takes.

Coverage.py runs in every process of the tests (`sitecustomize.py` that `record` writes starts it). In pytest's own
processes this plugin names the running test as coverage's context; a child process takes it from PYTEST_CURRENT_TEST,
which it inherits.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FOLDER = "BURNISH_RECORD_FOLDER"
"""Variable that names the folder of the record."""


def processor_s() -> float:
    """Return the processor time of this process and of its children that have ended, in seconds."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    import coverage

    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
    before = processor_s()
    try:
        return (yield)
    finally:
        line = json.dumps([item.nodeid, round(processor_s() - before, 4)])
        with Path(os.environ[FOLDER], f"seconds-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        if current is not None:
            current.switch_context("")


def pytest_sessionfinish():
    """Save in time: processes of pytest-xdist end without what runs at a normal exit."""
    import coverage

    current = coverage.Coverage.current()
    if current is not None:
        current.stop()
        current.save()
