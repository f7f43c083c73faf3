"""Choose the device of a chat or an export so that it does not disturb a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.runs.jobs.lease import holder_of

if TYPE_CHECKING:
    import torch


def chat_device(devices: DevicesSection) -> tuple[torch.device, bool]:
    """Choose the device to use beside runs: the recipe's, but the CPU where a run holds that GPU.

    A full GPU would make one of the two fail, and the run is worth more.

    Args:
        devices: section of the recipe.

    Returns:
        Device, and whether it is the CPU because a run holds the GPU.

    Raises:
        SetupError: A GPU exists and cannot be used.
        UsageError: The recipe names a GPU that does not exist.
    """
    import torch

    from burnish_engine.models.device.device import choose_device, lease_name

    device = choose_device(devices)
    if device.type != "cpu" and holder_of(lease_name(device)) is not None:
        return torch.device("cpu"), True
    return device, False
