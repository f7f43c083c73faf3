"""A run that is being planned: what trains it, and on what. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.advise.engine_choice import EngineChoice
from burnish_engine.advise.workload import Pass
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
        """The GPU's facts; None on the CPU, and for one that torch sees and the driver's library does not tell of."""
        return next((gpu for gpu in machine.gpus if self.cuda and gpu.index == self.index), None)


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


@dataclass(frozen=True, eq=False)
class FastRun:
    """A run of the fast engine as its memory and its speed are predicted from. Equal only to itself.

    Attributes:
        recipe: Its recipe; what `memory` pins stays.
        spec: The base model's shape.
        largest: Its largest pass.
        cuda: An NVIDIA GPU; else the CPU.
        precision: What the base model computes in: "fp32", "bf16" or "fp16".
        nf4: Whether the frozen weights stand in 4 bits.
        gpu: Facts of the GPU; None where they are not known, or on the CPU.
        cpu_cores: Physical ones.
    """

    recipe: Recipe
    spec: DecoderSpec
    largest: Pass
    cuda: bool
    precision: str
    nf4: bool
    gpu: GpuFacts | None = None
    cpu_cores: int = 1
