"""Runs that scenes show beside the usual ones: with long names, on several GPUs, and what was recorded of those."""

import math
import random

from app.facts.run_events import NOW
from app.facts.run_summaries import LONG_MODEL, LONG_NAME

from burnish_engine.contract.facts.hardware import GpuSample, HardwareSample, HardwareStart, SampledGpu
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.events import StepDone


def long_names(runs):
    """Return runs with names as people type them who do not think of tables, some of them in Chinese."""
    names = [LONG_NAME, "客服问答模型第二次训练", f"{LONG_NAME} again", "ラベル分類", "a-name-without-any-space-" * 3]
    return [
        run.model_copy(update={"state": run.state.model_copy(update={"name": name}), "model": LONG_MODEL})
        for run, name in zip(runs, names * 3, strict=False)
    ]


def several_gpus(started):
    """Return the start of a run on four GPUs."""
    return started.model_copy(update={"device": "4 x NVIDIA GeForce RTX 4090"})


def write_hardware(folder, lines, count=4):
    """Write what was recorded of GPUs while a run made its steps."""
    gib, chance = 2**30, random.Random(9)
    gpus = [SampledGpu(index=at, name="NVIDIA GeForce RTX 4090", memory_total_bytes=24 * gib) for at in range(count)]
    made = [HardwareStart(t=NOW - 400, gpus=gpus)]
    for event in lines:
        if isinstance(event, StepDone):
            samples = [
                GpuSample(
                    index=at, used_bytes=int(7.2 * gib), ours_bytes=int(6.1 * gib), load=0.93 + chance.random() * 0.05,
                    temperature_c=58 + 3 * at + 14 * (1 - math.exp(-event.step / 80)),
                    power_w=330 + chance.random() * 30, clock_mhz=2520 + chance.random() * 40, fan=0.55,
                )
                for at in range(count)
            ]  # fmt: skip
            made.append(HardwareSample(t=event.t, seconds=1, gpus=samples))
    RunPaths(folder).hardware.write_text("".join(one.model_dump_json() + "\n" for one in made), encoding="utf-8")
