"""A GPU that is there but cannot be used is an error, never a silent CPU run."""

import pytest
import torch

from burnish_engine.advise.plan import choose_target
from burnish_engine.contract.errors import ExitCode, SetupError, UsageError
from burnish_engine.contract.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe import DevicesSection, Recipe
from burnish_engine.hardware.cpu import usable_cores
from burnish_engine.hardware.probe import probe
from burnish_engine.models.device import choose_device, choose_precision, choose_threads, lease_name

PLAIN = {
    "os": "Linux", "architecture": "x86_64", "python": "3.12", "cpu": "x", "cpu_cores": 8, "ram_total_bytes": 1,
    "ram_free_bytes": 1, "disk_free_bytes": 1,
}  # fmt: skip
WITH_GPU = MachineFacts(**PLAIN, gpus=[GpuFacts(index=0, name="GeForce RTX 4060")], driver="580.1")
SILENT_GPU = MachineFacts(**PLAIN, gpu_problem="Driver/library version mismatch")
NO_GPU = MachineFacts(**PLAIN)


@pytest.fixture
def torch_without_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("kind", ["auto", "cuda"])
@pytest.mark.parametrize(("machine", "words"), [(WITH_GPU, "RTX 4060"), (SILENT_GPU, "version mismatch")])
def test_an_unusable_gpu_is_an_error(torch_without_gpu, kind, machine, words):
    with pytest.raises(SetupError, match=words) as caught:
        choose_device(DevicesSection(kind=kind), machine)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert 'devices.kind = "cpu"' in caught.value.remedy


def test_the_cpu_is_taken_where_there_is_no_gpu_or_it_is_asked_for(torch_without_gpu):
    assert choose_device(DevicesSection(), NO_GPU).type == "cpu"
    assert choose_device(DevicesSection(kind="cpu"), WITH_GPU).type == "cpu"
    with pytest.raises(SetupError, match="there is none"):
        choose_device(DevicesSection(kind="cuda"), NO_GPU)


def test_a_gpu_that_does_not_exist_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    device = choose_device(DevicesSection(), WITH_GPU)
    assert (device.type, lease_name(device)) == ("cuda", "cuda-0")
    with pytest.raises(UsageError, match="names GPU 3; this machine has 1"):
        choose_device(DevicesSection(gpus=[3]), WITH_GPU)


def test_precision_follows_the_hardware(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    for names, expected in (({"amx_bf16": True}, "bf16"), ({"avx512_bf16": True}, "bf16"), ({}, "fp32")):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda names=names: names, raising=False)
        assert choose_precision("auto", cpu) == expected
    assert choose_precision("fp32", cpu) == "fp32"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "GeForce RTX 2060")
    assert choose_precision("auto", gpu) == "fp32"
    with pytest.raises(UsageError, match="RTX 2060 has no bf16"):
        choose_precision("bf16", gpu)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 9))
    assert choose_precision("auto", gpu) == "bf16"


def test_threads():
    assert choose_threads(3) == 3
    assert choose_threads(0) == usable_cores() >= 1


def test_a_plan_takes_the_precision_that_training_takes():
    """The plan reads the processor's instructions from the system, training asks torch."""
    recipe = Recipe(devices=DevicesSection(kind="cpu"))
    assert choose_target(recipe, probe()).precision == choose_precision("auto", torch.device("cpu"))
