"""Where a chat or an export computes without disturbing a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from burnish_engine.contract.recipe import DevicesSection
from burnish_engine.runs.lease import holder_of

if TYPE_CHECKING:
    import torch


def undisturbing_device(devices: DevicesSection) -> tuple[torch.device, bool]:
    """The device to use beside runs: as the recipe says, but the CPU where a run holds that GPU.

    A GPU that is full would fail one of the two, and the run is worth more.

    Args:
        devices: The recipe's section.

    Returns:
        The device, and whether it is the CPU because a run holds the GPU.

    Raises:
        SetupError: A GPU is there and cannot be used.
        UsageError: The recipe names a GPU that does not exist.
    """
    import torch

    from burnish_engine.models.device import choose_device, lease_name

    device = choose_device(devices)
    if device.type != "cpu" and holder_of(lease_name(device)) is not None:
        return torch.device("cpu"), True
    return device, False
