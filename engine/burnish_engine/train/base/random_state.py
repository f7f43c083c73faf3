"""Seed, save and restore all random generators: Python's, numpy's and torch's."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def snapshot_random_state(device: torch.device) -> Callable[[], None]:
    """Save the state of all random generators, and return a function that restores it."""
    python, numbers, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(numbers)
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)

    return put_back
