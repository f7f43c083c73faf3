"""Tells whether a check-up is still one of the machine as it is now."""

from __future__ import annotations

from burnish_engine.contract.facts.machine import Checkup, MachineFacts


def is_checked(checkup: Checkup | None, machine: MachineFacts | None) -> bool:
    """Whether a check-up was of this hardware: processor, driver and GPUs; free memory may be another.

    Args:
        checkup: newest check-up; None: there is none.
        machine: machine as it is now; None: not known, so that nothing speaks against it.
    """
    return checkup is not None and (machine is None or _hardware(machine) == _hardware(checkup.machine))


def _hardware(machine: MachineFacts) -> tuple[object, ...]:
    return machine.cpu, machine.driver, [(gpu.name, gpu.vram_total_bytes) for gpu in machine.gpus]
