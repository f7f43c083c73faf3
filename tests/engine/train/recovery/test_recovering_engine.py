"""An engine that continues with less memory, over one that only counts: what it does again, and what it lets go of."""

import weakref

import pytest
import torch

from burnish_engine.train.recovery.recovery import RecoveringEngine

from support.memory.scarce import out_of_memory


class Queue:
    """An engine that is up to three steps ahead, and out of memory when asked for `lacks`."""

    notes, loading_plan = (), ""

    def __init__(self, lacks=(), plans=3, shrinks=()):
        self.lacks, self.shrinks, self.plan, self.plans = list(lacks), list(shrinks), 0, plans
        self.ahead, self.trained, self.starts = [], [], []

    def start(self, step, total_steps, total_micro_batches, source=None):
        assert not self.ahead, "a step was begun and is lost"
        self.step = step
        self.starts.append(step)

    def queue_step(self):
        if self.lacks and self.lacks[0] == self.step + 1:
            self.lacks.pop(0)
            raise out_of_memory()
        self.step += 1
        self.ahead.append(self.step)

    def results(self, *, wait=False):
        done = self.ahead[: len(self.ahead) if wait else max(len(self.ahead) - 3, 0)]
        del self.ahead[: len(done)]
        self.trained += [(step, self.plan) for step in done]
        yield from done

    def shrink(self):
        if self.plan == self.plans:
            return ""
        self.plan += 1
        if self.shrinks and self.shrinks.pop(0):
            raise out_of_memory()
        return f"plan {self.plan}"


@pytest.mark.parametrize("lacks", [[1], [5], [5, 5], [4, 9], [10]])
def test_steps_under_way_are_taken_in_and_none_is_made_twice(lacks):
    inner, told, given = Queue(lacks), [], []
    engine = RecoveringEngine(inner, torch.device("cpu"), told.append)
    engine.start(0, 10, 10)
    for _ in range(10):
        engine.queue_step()
        given += engine.results()
    given += engine.results(wait=True)
    assert given == list(range(1, 11))
    assert inner.trained == [(step, sum(lack <= step for lack in lacks)) for step in range(1, 11)]
    assert inner.starts == [0, *[lack - 1 for lack in lacks]]
    assert len(told) == len(lacks)


@pytest.mark.parametrize("shrinks", [[], [True]])
def test_a_smaller_plan_on_request_takes_in_the_steps_under_way(shrinks):
    inner, told, given = Queue(shrinks=shrinks), [], []
    engine = RecoveringEngine(inner, torch.device("cpu"), told.append)
    engine.start(0, 10, 10)
    for step in range(10):
        if step == 5:
            assert engine.shrink() == f"plan {1 + len(shrinks)}"  # one that runs out of memory is passed over
        engine.queue_step()
        given += engine.results()
    given += engine.results(wait=True)
    assert given == list(range(1, 11))
    assert inner.trained == [(step, 0 if step <= 5 else 1 + len(shrinks)) for step in range(1, 11)]
    assert inner.starts == [0, 5]
    assert len(told) == 1


def test_where_no_plan_is_smaller_a_request_changes_nothing():
    inner, told = Queue(plans=0), []
    engine = RecoveringEngine(inner, torch.device("cpu"), told.append)
    engine.start(0, 3, 3)
    engine.queue_step()
    assert engine.shrink() == ""
    engine.queue_step()
    assert list(engine.results(wait=True)) == [1, 2]
    assert (inner.starts, told) == ([0], [])


def test_no_frame_of_what_ran_out_of_memory_stays():
    """Its variables would hold on to the memory that the smaller plan needs."""
    held = []

    def greedy():
        tensor = torch.zeros(1)
        held.append(weakref.ref(tensor))
        if len(held) == 1:
            raise out_of_memory()

    inner = Queue()
    inner.queue_step = greedy
    shrink = inner.shrink
    inner.shrink = lambda: shrink() if held[0]() is None else pytest.fail("still held")
    engine = RecoveringEngine(inner, torch.device("cpu"), lambda _: None)
    engine.start(0, 10, 10)
    engine.queue_step()
    assert len(held) == 2


def test_the_last_plan_that_cannot_be_taken_up_ends_it():
    engine = RecoveringEngine(Queue([1], plans=1, shrinks=[True]), torch.device("cpu"), lambda _: None)
    engine.start(0, 10, 10)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 20\.00 GiB"):
        engine.queue_step()


def test_an_engine_whose_copy_is_held_is_gone_before_another_is_loaded():
    """In the dry run, which is undone at its end: what undoes it holds the engine."""
    alive, gone = [], []

    class Loadable(Queue):
        loading_plan = "smaller"

        def __init__(self, *args, **settings):
            super().__init__(*args, **settings)
            self.undone = 0

        def snapshot(self):
            return self.undo

        def undo(self):
            self.undone += 1

        def save_adapter(self, folder):
            pass

        def optimizer_tensors(self):
            return {}

        def restore_optimizer(self, tensors):
            pass

        def close(self):
            pass

    def load(plan, _trained):
        gone.append(alive.pop()() is None)
        other = Loadable()
        alive.append(weakref.ref(other))
        return other

    first = Loadable([1], plans=0)
    alive.append(weakref.ref(first))
    engine = RecoveringEngine(first, torch.device("cpu"), lambda _: None, load)
    del first
    engine.start(0, 10, 10)
    put_back = engine.snapshot()
    engine.queue_step()
    assert gone == [True]
    put_back()
    assert alive[0]().undone == 1
