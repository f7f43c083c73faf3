"""A run that is being planned: what trains it, and on what. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.advise.engine_choice import EngineChoice
from burnish_engine.contract.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe import Recipe


@dataclass(frozen=True)
class Device:
    """What a run would compute on.

    Attributes:
        cuda: An NVIDIA GPU; else the CPU.
        index: Of the GPU.
        precision: What the base model computes in: "fp32", "bf16" or "fp16".
    """

    cuda: bool
    index: int
    precision: str

    def gpu(self, machine: MachineFacts) -> GpuFacts | None:
        """The GPU's facts; None on the CPU."""
        return next(gpu for gpu in machine.gpus if gpu.index == self.index) if self.cuda else None


@dataclass(frozen=True)
class PlannedRun:
    """A run that is being planned.

    Attributes:
        recipe: Its recipe.
        spec: The base model's shape.
        machine: As it is now.
        device: What it computes on.
        engine: What trains it.
        dataset: What `inspect` found, where that is known.
    """

    recipe: Recipe
    spec: DecoderSpec
    machine: MachineFacts
    device: Device
    engine: EngineChoice
    dataset: DatasetFacts | None
