"""Choose the guard's probe for an engine."""

from __future__ import annotations

from burnish_engine.train.base.engine import Engine
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.guard.engine_probe import EngineProbe
from burnish_engine.train.guard.fast_probe import FastProbe
from burnish_engine.train.guard.plain_probe import PlainProbe
from burnish_engine.train.plain.plain_engine import PlainEngine


def probe_for(engine: Engine) -> EngineProbe:
    """Return the probe that fits an engine.

    Args:
        engine: the engine itself, not its wrapper.
    """
    if isinstance(engine, FastEngine):
        return FastProbe(engine)
    assert isinstance(engine, PlainEngine)
    return PlainProbe(engine)
