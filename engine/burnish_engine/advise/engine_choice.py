"""Which engine a run would use, as `train.choose_engine` chooses with torch. Loads no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.machine import GpuFacts
from burnish_engine.contract.recipe import Recipe, why_plain
from burnish_engine.models.families import why_not_fast
from burnish_engine.models.spec import decoder_spec
from burnish_kernels.registry import CAPABILITIES

Config = Mapping[str, Any]
"""A checkpoint's config.json."""


@dataclass(frozen=True)
class EngineChoice:
    """Which engine trains a run.

    Attributes:
        fast: Burnish's own; else transformers and PEFT, the plain one.
        nf4: Whether the frozen weights stand in 4 bits.
        note: Why the plain one does although it was not asked for, as a sentence; else empty.
    """

    fast: bool
    nf4: bool = False
    note: str = ""


def choose_engine(
    recipe: Recipe, spec: DecoderSpec, gpu: GpuFacts | None, precision: str, config: Config | None = None
) -> EngineChoice:
    """The engine that would train.

    Args:
        recipe: The run.
        spec: The base model's shape.
        gpu: What it trains on; None for the processor.
        precision: What it would compute in.
        config: The model's config.json; None for one of the catalog, which is what its shape says.

    Raises:
        UsageError: The recipe asks for what the engine that it asks for, or is left with, does not do.
    """
    check_optimizer(recipe)
    asked = recipe.train.engine
    reason = "" if asked == "plain" else why_not(recipe, spec, gpu, config)
    if reason and asked == "fast":
        raise UsageError(f"{reason}.", 'Set train.engine = "plain" (or "auto") to train it with transformers and PEFT.')
    if asked == "plain" or reason:
        check_plain(recipe, precision, reason)
        return EngineChoice(fast=False, note=plain_note(reason))
    return EngineChoice(fast=True, nf4=in_4_bits(recipe, config))


def check_plain(recipe: Recipe, precision: str, reason: str) -> None:
    """Refuse what only the fast engine does, where the plain one trains.

    Args:
        recipe: The run.
        precision: What it computes in.
        reason: Why not the fast one, as the first half of a sentence; empty where the recipe asks for the plain one.

    Raises:
        UsageError: The recipe asks for it.
    """
    why = reason or 'The recipe asks for the plain engine (train.engine = "plain")'
    if recipe.model.quantize != "none":
        raise UsageError(
            f"{why}, and only the fast engine trains with model.quantize = {recipe.model.quantize!r}.",
            'Set model.quantize = "none".',
        )
    if precision == "fp16":
        raise UsageError(f"{why}, and only the fast engine trains in fp16.", 'Set train.precision to "bf16" or "fp32".')


def plain_note(reason: str) -> str:
    """What a person is told where the plain engine trains although it was not asked for.

    Args:
        reason: Why, as the first half of a sentence; empty where it was asked for.
    """
    return f"{reason}; the plain one trains this, more slowly." if reason else ""


def idle_pins(recipe: Recipe) -> str:
    """What a person is told where the plain engine trains and the recipe pins parts of a memory plan; else empty."""
    names = [pin.partition(" ")[0] for pin in recipe.memory.pins]
    return f"The plain engine keeps to no memory plan: it has no use for {', '.join(names)}." if names else ""


_PACKAGES = {
    "adamw8bit": "bitsandbytes", "paged_adamw8bit": "bitsandbytes", "lion": "lion_pytorch",
    "schedule_free": "schedulefree",
}  # fmt: skip
"""Packages that optimizers come from; those of the others are here for more than that."""


def check_optimizer(recipe: Recipe) -> None:
    """Refuse an optimizer whose library is not here.

    Raises:
        UsageError: It is not.
    """
    name = recipe.train.optimizer
    package = _PACKAGES.get(name)
    if package and importlib.util.find_spec(package) is None:
        raise UsageError(
            f'train.optimizer = "{name}" needs {package}, which is not installed.',
            'Set train.optimizer = "adamw", or set Burnish up again.',
        )


def in_4_bits(recipe: Recipe, config: Config | None) -> bool:
    """Whether the fast engine keeps the frozen weights in 4 bits: asked for, or stored so."""
    return recipe.model.quantize == "nf4" or bool(config and config.get("quantization_config"))


def why_not(recipe: Recipe, spec: DecoderSpec, gpu: GpuFacts | None, config: Config | None = None) -> str:
    """Why the fast engine does not train this, as the first half of a sentence; empty where it does."""
    known: DecoderSpec | None = spec
    if config is None:
        config = {"model_type": spec.family}
    else:
        known = decoder_spec(dict(config))  # the shape may be a rough one, of a family that is not known
    reason = why_not_fast(dict(config), known, nf4=True)
    if reason:
        return f"The model {reason}, which the fast engine does not do"
    return why_plain(recipe) or device_problem(gpu)


def device_problem(gpu: GpuFacts | None) -> str:
    """Why our kernels do not run there, as the first half of a sentence; empty where they do, or are not needed."""
    if gpu is None:
        return ""
    major, minor = gpu.compute_capability or (8, 0)
    if 10 * major + minor < min(CAPABILITIES):
        return f"{gpu.name} is older than Burnish's kernels are made for"
    return "" if importlib.util.find_spec("triton") else "Triton is not installed"
