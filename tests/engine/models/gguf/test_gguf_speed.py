"""The generation speed of a file is measured whatever its context, and the fastest part of the measurement counts."""

import pytest

from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.gguf import gguf_speed
from burnish_engine.models.gguf.gguf_speed import FedModel, generation_speed

from support.models.export import write_16_bit
from support.models.tiny import make_llama


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A small GGUF file."""
    folder = tmp_path_factory.mktemp("speed")
    return write_16_bit(open_model(str(make_llama(folder / "base"))), None, folder)


@pytest.mark.full
def test_a_speed_is_measured(file):
    assert generation_speed(file, threads=1) > 0


def test_a_part_that_was_held_up_does_not_count(file, monkeypatch):
    now, fed = [0.0], []

    def feed(self, ids):
        fed.append(len(ids))
        now[0] += 1.0 if len(fed) == 3 else 0.1  # one token of the first part takes long
        return 0

    monkeypatch.setattr(FedModel, "feed", feed)
    monkeypatch.setattr(gguf_speed.time, "perf_counter", lambda: now[0])
    assert generation_speed(file, threads=1) == pytest.approx(10)
    assert fed[0] == 8
    assert set(fed[1:]) == {1}
