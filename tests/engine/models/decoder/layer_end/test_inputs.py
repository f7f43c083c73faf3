"""Rows for inputs of the layers' own may come as late as their layer needs them, and as often."""

import pytest
import torch

from support.memory.late_copies import LateCopies
from support.models import parity, tiny_models

CPU, LAYERS = torch.device("cpu"), 6
BATCH = parity.micro_batch()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tiny_models.make("gemma4-lent", tmp_path_factory.mktemp("gemma4") / "base")
    return base, tiny_models.lora(base, base.with_name("adapter"))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("chunk", [0, 48])
@pytest.mark.parametrize(("level", "times"), [("products", 1), ("narrow", 1), ("attention", 2), ("input", 2)])
def test_rows_that_come_late_give_the_same(folders, level, times, chunk):
    """Layers that are recomputed gather them a second time."""
    found = []
    for late in (False, True):
        ours = parity.fast(*folders)
        decoder = ours.loaded.decoder
        decoder.chunk_feed_forward(chunk)
        if late:
            decoder._gathers = LateCopies(CPU)
        found.append(ours.gradients(BATCH, level))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(gradient, found[1][1][name]) for name, gradient in found[0][1].items())
    assert decoder._gathers.begun == times * LAYERS
