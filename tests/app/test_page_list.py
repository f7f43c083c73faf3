"""The pages' imports: one thread at a time, the wanted page first, and no type of Qt's made by two threads."""

import subprocess
import sys
import threading
from types import ModuleType

import pytest
from PySide6.QtCore import QObject

from burnish_app.page_list import IMPORTING, PageEntry, PageImports, lazy_types

PAGES = [PageEntry(key, key, f"pages_of_a_test.{key}", "Page") for key in ("start", "model", "train", "runs")]


class Importer:
    """Stands in for the import of the pages' modules."""

    def __init__(self):
        self.asked, self.free = [], threading.Event()
        self.free.set()

    def find_spec(self, name, _path=None, _target=None):
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True) if name.startswith("pages_of_a_test") else None

    def create_module(self, spec):
        return ModuleType(spec.name)

    def exec_module(self, module):
        self.asked.append((module.__name__.rpartition(".")[2], threading.current_thread().name))
        assert self.free.wait(30)


@pytest.fixture
def importer(monkeypatch):
    made = Importer()
    monkeypatch.setattr(sys, "meta_path", [made, *sys.meta_path])
    yield made
    for name in [one for one in sys.modules if one.startswith("pages_of_a_test")]:
        del sys.modules[name]


@pytest.fixture
def imports(qapp, importer):
    parent = QObject()
    made = PageImports(PAGES, parent)
    yield made
    importer.free.set()
    made.close()
    parent.deleteLater()


def test_all_pages_are_imported_by_one_thread_the_wanted_one_first(qtbot, importer, imports):
    ready = []
    imports.page_imported.connect(ready.append)
    assert imports.is_ready("runs"), "nothing is imported elsewhere yet"
    with qtbot.waitSignal(imports.ended):
        imports.start("model")
        assert not imports.is_ready("runs")
        imports.want("runs")
    asked = [key for key, _ in importer.asked if key != "pages_of_a_test"]
    assert asked == ["model", "runs", "start", "train"]
    assert {thread for _, thread in importer.asked} == {"import-pages"}
    assert sorted(ready) == sorted(asked)


def test_who_cannot_wait_for_an_event_waits_for_the_thread(importer, imports):
    imports.start("start")
    imports.wait_for("runs")
    assert imports.is_ready("runs")
    assert {thread for _, thread in importer.asked} == {"import-pages"}


def test_while_a_page_is_imported_nobody_else_imports(qtbot, importer, imports):
    importer.free.clear()
    imports.start("start")
    qtbot.waitUntil(lambda: importer.asked != [])
    assert not IMPORTING.acquire(blocking=False)
    importer.free.set()
    imports.wait_for("start")


def test_a_page_that_cannot_be_imported_holds_nobody_up(importer, imports, monkeypatch):
    def broken(_module):
        raise ImportError("broken")

    monkeypatch.setattr(importer, "exec_module", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    imports.start("start")
    imports.wait_for("runs")


def test_a_window_that_closes_waits_for_no_import_that_hangs_and_hears_nothing_more(qtbot, qapp, importer, imports):
    importer.free.clear()
    sent = []
    for signal in (imports.core_imported, imports.page_imported, imports.ended):
        signal.connect(lambda *key: sent.append(key))
    imports.start("model")
    qtbot.waitUntil(lambda: importer.asked != [])
    imports.close(wait_s=0.0)
    importer.free.set()
    imports.close()
    qapp.processEvents()
    assert imports.is_ready("runs"), "nobody waits for it any more"
    assert [key for key, _ in importer.asked] == ["pages_of_a_test", "model"]
    assert sent == []


RACE = """
import sys, threading
from PySide6 import QtCore, QtGui, QtWidgets
from burnish_app.page_list import lazy_types
sys.setswitchinterval(1e-6)
for _ in lazy_types():
    pass
start = threading.Barrier(2)
def use_all():
    start.wait()
    for module in (QtCore, QtGui, QtWidgets):
        for name in dir(module):
            getattr(module, name, None)
threads = [threading.Thread(target=use_all) for _ in range(2)]
[one.start() for one in threads]
[one.join() for one in threads]
"""


def test_two_threads_may_use_types_once_all_are_made():
    """Without `lazy_types` this process dies of a segmentation fault."""
    subprocess.run([sys.executable, "-c", RACE], check=True, timeout=300)


def test_types_of_loaded_modules_are_made():
    names = set(dir(sys.modules["PySide6.QtCore"]))
    assert sum(1 for _ in lazy_types()) >= len(names)
    assert names <= set(vars(sys.modules["PySide6.QtCore"]))
