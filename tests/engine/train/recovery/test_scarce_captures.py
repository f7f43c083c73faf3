"""A lack of memory while CUDA graphs are captured."""

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.run import run_training

from support.memory.scarce import scarce
from support.runs.recovered import assert_like
from support.runs.tiny_runs import WATCHED

pytestmark = pytest.mark.usefixtures("unplanned")


@pytest.mark.full
def test_graphs_that_there_is_no_memory_for_are_no_reason_to_go_on_without(made, smaller):
    paths = made(extra=WATCHED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastTrainer, "wants_graphs", property(lambda _: True, lambda *_: None), raising=False)
        patch.setattr(FastTrainer, "_capture", lambda *_, **_kind: None)
        with scarce((FastTrainer, "_capture"), calls=[2]):
            assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller)


@pytest.mark.parametrize("said", ["CUDA out of memory", "operation not permitted when stream is capturing"])
def test_a_capture_tells_a_lack_of_memory_from_what_cannot_be_captured(monkeypatch, said):
    """Whatever ends a capture after an error raises one of its own."""

    class Program:
        def capture(self, *_, **_kind):
            try:
                raise (torch.OutOfMemoryError if "memory" in said else RuntimeError)(said)
            finally:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    trainer = object.__new__(FastTrainer)
    trainer._pool, trainer.stream, trainer.problem = None, object(), ""
    if "memory" in said:
        with pytest.raises(RuntimeError):
            trainer._capture(Program())
        return
    trainer._capture(Program())
    assert "training continues without them" in trainer.problem
