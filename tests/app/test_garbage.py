"""Cyclic garbage is collected in the window's thread, between events: widgets in it are destroyed then."""

import gc
import threading
import weakref

import pytest
from PySide6.QtWidgets import QLabel, QWidget

pytestmark = pytest.mark.gui
MANY = 100_000


@pytest.fixture
def dropped(qapp):
    """Drops a widget in a cycle; gives the list of threads in which it was collected."""

    def drop():
        threads = []
        widget = QWidget()
        widget.itself = widget
        weakref.finalize(widget, lambda: threads.append(threading.get_ident()))
        return threads

    return drop


@pytest.fixture
def collections():
    """The collections that began meanwhile, by thread."""
    begun = []

    def note(phase, info):
        if phase == "start":
            begun.append(threading.get_ident())

    gc.callbacks.append(note)
    yield begun
    gc.callbacks.remove(note)


def allocate():
    return [[number] for number in range(MANY)]


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_thread_that_allocates_never_collects(dropped, collections):
    threads = dropped()
    in_a_thread(allocate)
    assert collections == []
    assert threads == []


def test_a_widget_in_a_cycle_goes_soon_after_the_event_loop_turns(qtbot, dropped):
    threads, kept = dropped(), []
    in_a_thread(lambda: kept.extend(allocate()))
    qtbot.waitUntil(lambda: threads == [threading.get_ident()])


def test_nothing_is_collected_while_the_look_changes(qapp, theme, dropped, collections):
    class Heavy(QLabel):
        def changeEvent(self, event):  # noqa: N802 Qt names it
            super().changeEvent(event)
            changes.append(allocate())

    changes = []
    label, threads = Heavy("x"), dropped()
    label.ensurePolished()
    theme.set_mode("dark")
    theme.set_mode("system")
    assert changes
    assert collections == []
    assert threads == []


@pytest.mark.full
def test_stopped_it_collects_what_is_left_and_leaves_it_to_python(collector, dropped):
    threads = dropped()
    collector.stop()
    try:
        assert threads == [threading.get_ident()]
        assert gc.isenabled()
    finally:
        gc.disable()
        collector.start()


def test_only_a_generation_that_has_grown_is_collected(collector, collections):
    gc.collect()
    collections.clear()
    collector.collect()
    assert collections == []
    kept = allocate()
    collector.collect()
    assert len(collections) == 1
    assert len(kept) == MANY
