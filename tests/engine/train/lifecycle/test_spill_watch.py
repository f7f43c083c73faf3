"""Memory that moved from the card to the system's is noticed, told once, and not seen where it is not."""

import pytest
import torch

from burnish_engine.hardware.gpu.process_memory import WindowsUsage
from burnish_engine.train.lifecycle import spill_watch
from burnish_engine.train.lifecycle.spill_watch import SpillWatch

GIB = 2**30
CUDA = torch.device("cuda", 0)


class Card:
    """A card of 8 GiB, what Windows counts in system memory, and a clock."""

    def __init__(self):
        self.free, self.shared, self.locked, self.now, self.reads = 0.1, 0.0, 0.0, 0.0, 0

    def watch(self, *, moves=True, counter=True):
        return SpillWatch(
            CUDA,
            locked=lambda: round(self.locked * GIB),
            shared=self._read if counter else lambda: None,
            memory=lambda: (round(self.free * GIB), 8 * GIB),
            moves=moves,
            clock=lambda: self.now,
        )

    def _read(self):
        self.reads += 1
        return round(self.shared * GIB)

    def steps(self, watch, *seconds, tokens=0):
        """What was told of steps that take so long."""
        told = []
        for each in seconds:
            self.now += each
            told.append(watch.step(each, tokens))
        return [text for text in told if text]


@pytest.fixture
def card():
    return Card()


def test_what_windows_counts_is_told_once_with_its_size(card):
    watch = card.watch()
    assert card.steps(watch, *[1.0] * 30) == []
    card.shared = 1.5
    (told,) = card.steps(watch, *[1.0] * 60)
    assert "1.5 GiB of this run in system memory" in told
    assert "train.micro_batch_tokens" in told
    assert "memory.budget_gib below 7.2" in told
    assert "Sysmem Fallback Policy" in told
    assert card.steps(watch, *[9.0] * 60) == []


def test_a_spill_from_the_first_step_on_is_seen(card):
    card.shared = 2.0
    assert len(card.steps(card.watch(), *[30.0] * 3)) == 1


def test_memory_that_the_run_locked_itself_is_no_spill(card):
    card.shared, card.locked = 6.2, 6.0
    assert card.steps(card.watch(), *[1.0] * 60) == []


def test_a_card_with_room_has_not_spilled(card):
    card.shared, card.free = 3.0, 2.0
    assert card.steps(card.watch(), *[1.0] * 60) == []


def test_a_moment_is_no_spill(card):
    watch = card.watch()
    card.shared = 3.0
    assert card.steps(watch, 1.0) == []
    card.shared = 0.0
    assert card.steps(watch, *[1.0] * 15) == []
    card.shared = 3.0
    assert card.steps(watch, *[1.0] * 5) == []


def test_the_slow_counters_are_read_seldom(card):
    card.steps(card.watch(), *[0.1] * 300)
    assert card.reads <= 4


def test_without_counters_a_lasting_slowdown_of_a_full_card_tells(card):
    watch = card.watch(counter=False)
    assert card.steps(watch, *[9.0] * 3, *[1.0] * 20) == []
    (told,) = card.steps(watch, *[4.0] * 12)
    assert "4.0 times slower" in told
    assert "has probably moved" in told


@pytest.mark.parametrize(
    ("free", "later"),
    [
        (0.1, [2.9] * 40),  # slower, but not that much
        (0.1, [4.0, 4.0, 1.0] * 10),  # not lasting
        (2.0, [4.0] * 40),  # with room left
    ],
)
def test_other_slowdowns_are_no_spill(card, free, later):
    watch = card.watch(counter=False)
    card.free = free
    assert card.steps(watch, *[1.0] * 20, *later) == []


def test_steps_of_many_tokens_are_not_slow(card):
    watch = card.watch(counter=False)
    card.steps(watch, *[1.0] * 20, tokens=1000)
    assert card.steps(watch, *[4.0] * 20, tokens=4000) == []
    assert card.steps(watch, *[4.0] * 20, tokens=1000)


def test_a_driver_that_moves_nothing_is_not_blamed(card):
    card.shared = 5.0
    watch = card.watch(moves=False)
    assert card.steps(watch, *[1.0] * 20) == []
    (told,) = card.steps(watch, *[4.0] * 20)
    assert "Fallback" not in told
    assert "nvidia-smi" in told
    assert card.reads == 0


def test_on_the_cpu_there_is_nothing_to_watch():
    watch = SpillWatch(torch.device("cpu"), memory=lambda: (0, 1), moves=True, shared=lambda: 9 * GIB)
    assert not any(watch.step(seconds) for seconds in [1.0] * 20 + [50.0] * 20)


def test_torchs_own_locked_memory_is_taken_off(monkeypatch):
    monkeypatch.setattr(spill_watch, "read_windows", lambda: WindowsUsage(dedicated=None, shared=3 * GIB))
    monkeypatch.setattr(torch.cuda, "host_memory_stats", lambda: {"allocated_bytes.current": GIB})
    assert spill_watch.shared_bytes() == 2 * GIB
    monkeypatch.setattr(spill_watch, "read_windows", lambda: None)
    assert spill_watch.shared_bytes() is None
