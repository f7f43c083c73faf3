"""Threads of Qt objects: the object outlives its thread, whoever else lets it go."""

import gc
import threading
import weakref

from PySide6.QtCore import QObject

from burnish_app.engine.threads import start_thread


class Worker(QObject):
    def work(self, may_end):
        may_end.wait(60)


def nothing():
    """Does nothing."""


def test_an_object_is_destroyed_where_it_was_made_not_in_its_thread(qapp):
    may_end, destroyed_in = threading.Event(), []
    worker = Worker()
    weakref.finalize(worker, lambda: destroyed_in.append(threading.current_thread()))
    thread = start_thread(worker, worker.work, may_end, name="worker")
    del worker
    gc.collect()
    may_end.set()
    thread.join()
    assert not destroyed_in
    start_thread(QObject(), nothing, name="next").join()
    assert destroyed_in == [threading.main_thread()]


def test_a_thread_has_its_name_and_may_outlast_the_program_only_if_asked(qapp):
    may_end, owner = threading.Event(), QObject()
    threads = [start_thread(owner, may_end.wait, name=f"of {daemon}", daemon=daemon) for daemon in (True, False)]
    assert [(thread.name, thread.daemon) for thread in threads] == [("of True", True), ("of False", False)]
    may_end.set()
    for thread in threads:
        thread.join()
