"""Switches the adapter of a model that is being trained: off, or to that of a folder, and back to the trained one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from burnish_engine.train.fast.fast_model import TrainableDecoder

OnStream = Callable[[], AbstractContextManager[object]]
"""Makes a context whose work on the device comes after all queued steps."""


@contextmanager
def other_adapter(model: TrainableDecoder, adapter: Path | bool, on_stream: OnStream) -> Iterator[None]:
    """Use the adapter of a folder inside, or none (False); True: the trained one."""
    if adapter is True:
        yield
    elif adapter is False:
        with without_adapter(model, on_stream):
            yield
    else:
        param = model.optimizer.param
        with on_stream():
            trained = param.clone()
        try:
            with on_stream():
                model.adapter.load(adapter)
                model.write_compute_copies()
            yield
        finally:
            with on_stream():
                param.copy_(trained)
                model.write_compute_copies()


@contextmanager
def without_adapter(model: TrainableDecoder, on_stream: OnStream) -> Iterator[None]:
    """Switch the adapter off inside."""
    optimizer, decoder = model.optimizer, model.loaded.decoder
    with on_stream():
        # The compute copies of the Bs: without them the As do nothing. And DoRA's factors.
        names = model.adapter.named()
        copies = zip(names, optimizer.layout.compute_copies(optimizer.compute_buffer), strict=True)
        away = [compute_copy for name, compute_copy in copies if ".lora_B." in name]
        kept = [compute_copy.clone() for compute_copy in away]
        for compute_copy in away:
            compute_copy.zero_()
        for magnitudes in decoder.magnitudes:
            magnitudes.neutralize()
    try:
        yield
    finally:
        with on_stream():
            for compute_copy, value in zip(away, kept, strict=True):
                compute_copy.copy_(value)
        decoder.expire_magnitudes()
