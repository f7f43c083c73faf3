"""Memory that runs out at chosen moments."""

from contextlib import contextmanager

import pytest
import torch


def out_of_memory():
    """What torch raises."""
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")


@contextmanager
def scarce(*places, calls, after=False, error=out_of_memory):
    """Inside, memory runs out in some of the calls of a function (from 1), before or after it did its work."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in places:
            patch.setattr(owner, name, _scarce(getattr(owner, name), set(calls), after, error))
        yield


@contextmanager
def counted(places):
    """Inside, calls of functions are counted: a dictionary by the places' names."""
    counts = dict.fromkeys(places, 0)

    def counting(name, real):
        def called(*args, **settings):
            counts[name] += 1
            return real(*args, **settings)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name, (owner, function) in places.items():
            patch.setattr(owner, function, counting(name, getattr(owner, function)))
        yield counts


def _scarce(real, calls, after, error):
    count = 0

    def called(*args, **settings):
        nonlocal count
        count += 1
        if count not in calls:
            return real(*args, **settings)
        if after:
            real(*args, **settings)
        raise error()

    return called
