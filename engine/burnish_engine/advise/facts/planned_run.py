"""Describes a run that is being planned: its recipe, model, device and engine. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.advise.facts.engine_choice import EngineChoice
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS, EightBitUse
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.hardware.gpu.topology import beside_others, peer_gb_s


@dataclass(frozen=True)
class PlannedDevice:
    """The device that a run would compute on."""

    cuda: bool  # whether an NVIDIA GPU trains; otherwise the CPU does
    index: int  # index of the GPU
    precision: str  # precision of the base model's computation: "fp32", "bf16" or "fp16"

    def gpu(self, machine: MachineFacts) -> GpuFacts | None:
        """The facts of the GPU; None on the CPU, and for a GPU that NVML does not list."""
        return next((gpu for gpu in machine.gpus if self.cuda and gpu.index == self.index), None)


@dataclass(frozen=True)
class PlannedRun:
    """A run that is being planned."""

    recipe: Recipe  # recipe of the run
    spec: DecoderSpec  # shape of the base model
    machine: MachineFacts  # facts of the machine as it is now
    device: PlannedDevice  # device that computes
    engine: EngineChoice  # engine that trains
    dataset: DatasetFacts | None  # facts that `inspect` found about the data; None where it was not inspected
    ranks: int | None = None
    """Number of processes that can share layers' weights; None: as many as the recipe lets share the run."""

    def on_fast_engine(self, largest: MicroBatchSize) -> FastRun:
        """Return the inputs of predictions for the fast engine.

        Args:
            largest: size of the largest micro-batch.
        """
        ranks, peer = sharing(self.recipe, self.machine, self.ranks)
        return FastRun(
            recipe=self.recipe,
            spec=self.spec,
            largest=largest,
            cuda=self.device.cuda,
            precision=self.device.precision,
            nf4=self.engine.nf4,
            eight_bits=self.engine.eight_bits,
            gpu=beside_others(self.machine, self.device.gpu(self.machine), ranks),
            cpu_cores=self.machine.cpu_cores,
            ranks=ranks,
            peer_gb_s=peer,
        )


@dataclass(frozen=True, eq=False)
class FastRun:
    """The inputs of memory and speed predictions for a run of the fast engine. Equal only to itself."""

    recipe: Recipe  # recipe of the run; parts of the plan that its `memory` section pins stay as they are
    spec: DecoderSpec  # shape of the base model
    largest: MicroBatchSize  # size of the largest micro-batch
    cuda: bool  # whether an NVIDIA GPU trains; otherwise the CPU does
    precision: str  # precision of the base model's computation: "fp32", "bf16" or "fp16"
    nf4: bool  # whether the frozen weights are kept in 4 bits (NF4)
    eight_bits: EightBitUse = NO_EIGHT_BITS  # what is kept and multiplied in 8 bits
    gpu: GpuFacts | None = None
    """Facts of the GPU, with the rates of copies that it reaches while the other processes copy; None where they are
    not known, and on the CPU."""
    cpu_cores: int = 1  # number of physical CPU cores
    ranks: int = 1  # number of processes that can share layers' weights
    peer_gb_s: float = 0.0  # rate at which each of their GPUs reads another's memory, 10^9 bytes/s; 0: they cannot


def sharing(recipe: Recipe, machine: MachineFacts, ranks: int | None = None) -> tuple[int, float]:
    """Return how many processes can share layers' weights, and how fast they read them; see `FastRun`.

    Args:
        recipe: recipe of the run.
        machine: facts of the machine.
        ranks: number of processes; None: as many as the recipe lets share the run.
    """
    devices = recipe.devices
    if ranks is None:
        ranks = len(devices.gpus) if devices.strategy == "data_parallel" else 1
    return ranks, peer_gb_s(machine, devices.first_gpus(ranks)) if ranks > 1 else 0.0
