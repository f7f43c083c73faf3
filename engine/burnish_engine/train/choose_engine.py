"""Choose the engine of a run: the fast one wherever it supports model and adapter, else transformers and PEFT."""

from __future__ import annotations

from dataclasses import replace

from burnish_engine.advise.facts.engine_choice import (
    check_optimizer,
    check_plain_engine,
    check_stored,
    plain_note,
    refuse_sharing,
    unused_pins_note,
)
from burnish_engine.contract.errors import UsageError
from burnish_engine.models.generation.load_fast import device_problem
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.exchange.rank_exchange import RankExchange
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_support import why_not
from burnish_engine.train.parallel.leading_engine import LeadingEngine
from burnish_engine.train.parallel.link import Message
from burnish_engine.train.parallel.ranks import Ranks
from burnish_engine.train.parallel.sharded_engine import LeadingShardedEngine, refuse_sharded
from burnish_engine.train.plain.plain_engine import PlainEngine


def make_engine(spec: EngineSpec, ranks: Ranks | None = None, replica: Message | None = None) -> Engine:
    """Load the model into an engine.

    Args:
        spec: specification of the engine.
        ranks: other ranks that share the steps; None: this process makes them alone.
        replica: what their replicas are loaded from.

    Raises:
        UsageError: The recipe asks for something that its engine, named or left, does not support.
    """
    recipe = spec.recipe
    check_optimizer(recipe)
    if recipe.devices.strategy == "sharded":
        refuse_sharded(recipe, spec.device, spec.precision)
        if ranks:
            check_plain_engine(recipe, spec.precision, "", device_problem(spec.device))
            return LeadingShardedEngine(spec, ranks, replica or {})
    asked = spec.name or recipe.train.engine
    reason = "" if asked == "plain" else why_not(spec.source, recipe, spec.device)
    if reason and asked == "fast":
        remedy = 'Set train.engine = "plain" (or "auto") to train it with transformers and PEFT.'
        raise UsageError(f"{reason}.", "Start a new run; the fast engine began this one." if spec.name else remedy)
    in_order = recipe.devices.shares and recipe.devices.exact
    if asked != "plain" and not reason:
        if ranks:
            return LeadingEngine(spec, ranks, replica or {})
        exchange = RankExchange(0, 1, exact=True) if in_order else None
        return FastEngine(replace(spec, exchange=exchange))
    if ranks or in_order:
        refuse_sharing(recipe, reason)
    check_plain_engine(recipe, spec.precision, reason, device_problem(spec.device))
    check_stored(spec.source.config)
    plain = PlainEngine(spec)
    notes = [plain_note("" if spec.name else reason), unused_pins_note(recipe)]
    plain.notes[:0] = [note for note in notes if note]
    return plain
