"""Writes the command with which plain torchrun starts a run that several processes share."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from burnish_engine.contract.facts.machine import ParallelSettings
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import DevicesSection

RECIPE = "recipe.toml"


def torchrun_command(settings: ParallelSettings, recipe: str = RECIPE, devices: DevicesSection | None = None) -> str:
    """Return a line for this system's shell that trains as `burnish train` would; empty where there is none.

    It names this Python by its path, so that it works from any folder, whatever is on the search path.

    Args:
        settings: settings with which a run would best use the GPUs.
        recipe: path of the recipe that the line names.
        devices: what that recipe says; None, or one that shares nothing: as the settings say.
    """
    shares = devices is not None and devices.shares
    gpus = devices.gpus if devices is not None and shares else settings.gpus
    if devices is not None and devices.where != HERE:
        return ""
    if len(gpus) < 2 or (settings.strategy == "single" and not shares):
        return ""
    variables: dict[str, str] = {}
    if devices is None or devices.kind != "cpu":
        if gpus != list(range(len(gpus))):
            variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        variables |= settings.environment
    count = str(len(gpus))
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, "--no-python"]
    words += [sys.executable, "-P", "-m", "burnish_engine.cli.main", "train", recipe, "--gpus", count]
    line = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), line])
