import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from burnish_engine.data.tokens.pack import epoch_batches, micro_batch
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.fast.packed_batch import BucketLayout, fill_buffer
from burnish_engine.train.fast.prefetch import Prefetcher

LAYOUTS = [BucketLayout(rows, 32, 16) for rows in (64, 128)]


def documents(count=40):
    random = np.random.default_rng(0)
    lengths = random.integers(1, 100, count)
    return [
        Document(random.integers(1, 50, length).astype(np.int32), random.random(length) < 0.5, row, "file")
        for row, length in enumerate(lengths)
    ]


def stream():
    return epoch_batches(documents(), 128, True, 0, 0)


def prefetcher(source, **options):
    defaults = {"first": 0, "accumulation": 1, "learning_rate": lambda step: step / 10}
    if "total" not in options:
        defaults["total"] = len(source)
    return Prefetcher(source, LAYOUTS, **(defaults | options))


class Tape:
    """A device that copies when told to."""

    def __init__(self):
        self.passed = False
        self.queries = 0

    def query(self):
        self.queries += 1
        return self.passed


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_passes_come_in_order_and_as_laid_out_alone(depth, accumulation):
    source = stream()
    taken = []
    with prefetcher(source, depth=depth, accumulation=accumulation) as ring:
        for index, batch in enumerate(source):
            host = ring.next()
            expected = np.zeros(host.layout.size, dtype=np.int32)
            assert host.counts == fill_buffer(batch, host.layout, expected)
            fields, alone = host.layout.arrays(host.buffer.numpy()), host.layout.arrays(expected)
            for name in host.layout.spans:
                if name not in {"normalizer", "learning_rate"}:
                    assert (getattr(fields, name) == getattr(alone, name)).all()
            assert fields.learning_rate[0] == np.float32(host.step.number / 10)
            assert fields.normalizer[0] == np.float32(1 / host.step.supervised)
            assert (host.step.number, host.index) == (index // accumulation + 1, index % accumulation)
            taken.append(host)
            ring.release(host)
        with pytest.raises(IndexError, match="no micro-batches left"):
            ring.next()
    for step in {host.step for host in taken}:
        own = [host for host in taken if host.step is step]
        assert step.micro_batches == len(own)
        assert [host.is_last for host in own] == [False] * (len(own) - 1) + [True]
        assert step.supervised == sum(host.counts.supervised for host in own)
        assert step.tokens == sum(host.counts.tokens for host in own)
    assert {host.layout.capacity for host in taken} == {64, 128}


def test_a_resumed_run_gets_the_rest():
    source = stream()
    with prefetcher(source, first=4, total=9, accumulation=2) as ring:
        steps = []
        for _ in range(5):
            host = ring.next()
            steps.append((host.step.number, host.index, host.step.micro_batches))
            ring.release(host)
    assert steps == [(3, 0, 2), (3, 1, 2), (4, 0, 2), (4, 1, 2), (5, 0, 1)]


def test_upload_fills_the_shared_device_buffer():
    source = stream()
    device_buffer = torch.zeros(max(layout.size for layout in LAYOUTS), dtype=torch.int32)
    with prefetcher(source, depth=2) as ring:
        for batch in source:
            host = ring.next()
            ring.upload(host, device_buffer)
            fields = host.layout.views(device_buffer)
            assert fields.ids_T[: batch.tokens].tolist() == batch.input_ids.tolist()


def test_a_slot_is_not_overwritten_before_its_event():
    source = stream()
    with prefetcher(source, depth=2) as ring:
        first, tape = ring.next(), Tape()
        before = first.buffer.clone()
        ring.release(first, tape)
        second = ring.next()
        ring.release(second)
        third = ring.next()  # in the second's slot: the first's copy is still under way
        assert third.slot == second.slot
        assert (first.buffer == before).all()

        later = threading.Timer(0.1, lambda: setattr(tape, "passed", True))
        began = time.monotonic()
        later.start()
        fourth = ring.next()
        assert time.monotonic() - began > 0.05
        assert fourth.slot == first.slot
        assert tape.queries < 500  # asked now and then, not without pause


def test_events_are_asked_by_the_consumer_alone():
    asked = set()

    class Known(Tape):
        def query(self):
            asked.add(threading.current_thread())
            return True

    source = stream()
    with prefetcher(source, depth=1) as ring:
        for _ in source:
            ring.release(ring.next(), Known())
    assert asked == {threading.current_thread()}


def test_holding_every_slot_is_an_error_instead_of_a_hang():
    with prefetcher(stream(), depth=2) as ring:
        held = [ring.next(), ring.next()]
        with pytest.raises(RuntimeError, match="all 2 slots are held"):
            ring.next()
        ring.release(held[0])
        ring.next()
        with pytest.raises(ValueError, match="already released"):
            ring.release(held[0])


def test_an_error_in_the_thread_comes_with_its_traceback():
    class Broken:
        def __init__(self):
            self.documents = documents()

        def __getitem__(self, index):
            if index == 2:
                return self.fail()
            return micro_batch(self.documents, [index])

        def fail(self):
            raise OSError("the disk is gone")

    with prefetcher(Broken(), total=10) as ring:
        for _ in range(2):
            ring.release(ring.next())
        for _ in range(2):  # and again, should anyone ask again
            with pytest.raises(OSError, match="the disk is gone") as caught:
                ring.next()
            assert "fail" in [entry.name for entry in caught.traceback]


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_closing_ends_the_thread_wherever_it_is(taken):
    ring = prefetcher(stream(), depth=4)
    for _ in range(taken):
        ring.next()
    thread = ring._thread
    ring.close()
    ring.close()
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        ring.next()


def test_closing_does_not_wait_for_a_long_step():
    source = stream()

    class Slow:
        read = 0

        def __getitem__(self, index):
            self.read += 1
            time.sleep(0.02)
            return source[index % len(source)]

    slow = Slow()
    ring = prefetcher(slow, total=1000, accumulation=1000)
    ring.close()
    assert slow.read <= 2


def test_a_run_begins_where_a_step_does():
    with pytest.raises(ValueError, match="where an optimizer step does"):
        prefetcher(stream(), first=3, accumulation=2)


@pytest.mark.gpu
def test_pinned_slots_on_a_gpu():
    source = stream()
    device_buffer = torch.zeros(max(layout.size for layout in LAYOUTS), dtype=torch.int32, device="cuda")
    with prefetcher(source, depth=2, pinned=True) as ring:
        for batch in source:
            host = ring.next()
            assert host.buffer.is_pinned()
            ring.upload(host, device_buffer)
            fields = host.layout.views(device_buffer)
            assert fields.ids_T[: batch.tokens].tolist() == batch.input_ids.tolist()


def test_mismatched_documents_of_a_whole_step_come_before_its_first_row():
    plain = stream()
    source = [replace(plain[number], mismatched=(plain[number + 4], plain[number + 8])) for number in range(4)]
    layouts = [replace(layout, content="labels") for layout in LAYOUTS]
    with Prefetcher(source, layouts, first=0, total=4, accumulation=2, learning_rate=lambda _step: 0.1) as ring:
        taken = []
        for _ in range(12):
            host = ring.next()
            taken.append((host.step.number, host.index, host.estimates_kl, host.is_last, host.counts.tokens))
            rows = sum(len(plain[2 * host.step.number - 2 + number].rows) for number in range(2))
            assert host.step.scalars.normalizer == 1 / rows  # of the rows alone
            ring.release(host)
        with pytest.raises(IndexError):
            ring.next()
    tokens = [plain[number].tokens for number in range(12)]
    assert taken == [
        (1, -1, True, False, tokens[4]), (1, -1, True, False, tokens[8]), (1, -1, True, False, tokens[5]),
        (1, -1, True, False, tokens[9]), (1, 0, False, False, tokens[0]), (1, 1, False, True, tokens[1]),
        (2, -1, True, False, tokens[6]), (2, -1, True, False, tokens[10]), (2, -1, True, False, tokens[7]),
        (2, -1, True, False, tokens[11]), (2, 0, False, False, tokens[2]), (2, 1, False, True, tokens[3]),
    ]  # fmt: skip
