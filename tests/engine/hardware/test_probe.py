"""The probe says what is there, and what is there but silent; it never fails."""

import sys
from types import SimpleNamespace

import pytest

from burnish_engine.hardware import probe as module
from burnish_engine.hardware.checkup import check_up
from burnish_engine.hardware.probe import probe


class NvmlError(Exception):
    """Stands for pynvml.NVMLError."""


def nvml(**changes):
    """A driver with one RTX 4060; `changes` replace its answers."""
    answers = {
        "NVMLError": NvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=8 * 2**30, free=7 * 2**30),
        "nvmlDeviceGetCudaComputeCapability": lambda _: (8, 9),
        "nvmlDeviceGetName": lambda _: b"NVIDIA GeForce RTX 4060",
        "nvmlDeviceGetUUID": lambda _: "GPU-1",
    }
    return SimpleNamespace(**{**answers, **changes})


def fails(message):
    def call(*_):
        raise NvmlError(message)

    return call


def test_a_gpu_is_described(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    machine = probe()
    gpu = machine.gpus[0]
    assert (gpu.name, gpu.compute_capability, gpu.vram_total_bytes) == ("NVIDIA GeForce RTX 4060", (8, 9), 8 * 2**30)
    assert (machine.driver, machine.driver_cuda, machine.gpu_problem) == ("580.95.05", "13.0", None)


@pytest.mark.parametrize("on_the_bus", [True, False])
def test_a_driver_that_does_not_answer_is_a_problem_only_where_there_is_a_card(monkeypatch, tmp_path, on_the_bus):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=fails("Driver Not Loaded")))
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n" if on_the_bus else "0x1022\n")
    (device / "class").write_text("0x030000\n")
    monkeypatch.setattr(module, "Path", lambda path: tmp_path if "pci" in str(path) else SimpleNamespace(
        read_text=lambda **_: "model name : Fast\n"))  # fmt: skip
    machine = probe()
    assert machine.gpu_problem == ("Driver Not Loaded" if on_the_bus else None)
    assert machine.cpu == "Fast"


def test_an_error_in_the_middle_is_a_problem_not_a_crash(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetMemoryInfo=fails("GPU is lost")))
    assert "GPU is lost" in probe().gpu_problem


def test_this_machine_has_numbers():
    machine = probe()
    assert machine.ram_total_bytes > machine.ram_free_bytes > 0
    assert machine.disk_free_bytes > 0
    assert machine.cpu_cores >= 1


def test_the_doctor_runs_a_kernel_and_believes_only_that(monkeypatch):
    monkeypatch.setattr("burnish_engine.hardware.checkup.probe", lambda: probe().model_copy(
        update={"gpus": [], "gpu_problem": None}))  # fmt: skip
    healthy = check_up()
    assert healthy.ready
    assert [check.passed for check in healthy.kernels] == [True]
    monkeypatch.setattr(
        "burnish_engine.hardware.checkup.sys",
        SimpleNamespace(executable="/bin/false" if sys.platform != "win32" else "x"),
    )
    sick = check_up()
    assert not sick.ready
    assert any("exit code 1" in problem for problem in sick.problems)


def test_a_silent_gpu_makes_the_machine_not_ready(monkeypatch):
    silent = probe().model_copy(update={"gpus": [], "gpu_problem": "Driver Not Loaded"})
    monkeypatch.setattr("burnish_engine.hardware.checkup.probe", lambda: silent)
    found = check_up()
    assert not found.ready
    assert any("Driver Not Loaded" in problem for problem in found.problems)
