"""A GPU that is there but cannot be used is an error, never a silent CPU run."""

import pytest
import torch

from burnish_engine.advise.plan.plan import planned_device
from burnish_engine.contract.errors import ExitCode, SetupError, UsageError
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe
from burnish_engine.hardware.host.cpu import usable_cores
from burnish_engine.hardware.probe import probe
from burnish_engine.models.device.device import (
    allocator_limit,
    cap_memory,
    choose_device,
    choose_precision,
    choose_threads,
    is_out_of_memory,
    lease_name,
)

GIB = 2**30

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
    with pytest.raises(UsageError, match=r"GPU 3.*GeForce RTX 4060"):
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
    assert planned_device(recipe, probe()).precision == choose_precision("auto", torch.device("cpu"))


def test_the_allocator_stays_below_the_card():
    """What is loaded outside of it later needs room as well; what others hold now they may give back."""
    card = 8 * GIB
    assert card - GIB < allocator_limit(7 * GIB, card, spills=False) < card
    assert allocator_limit(2 * GIB, card, spills=False) == allocator_limit(7 * GIB, card, spills=False)


def test_where_the_driver_spills_what_is_free_now_counts():
    """Windows moves memory instead of failing, so the cap has to be where others begin."""
    card, free = 8 * GIB, 6 * GIB
    assert free - GIB < allocator_limit(free, card, spills=True) < free
    assert allocator_limit(card, card, spills=True) < allocator_limit(card, card, spills=False)


def test_a_card_that_is_full_is_left_to_the_plan():
    assert allocator_limit(0, 8 * GIB, spills=True) > 0


def test_a_budget_is_of_the_whole_process():
    within = allocator_limit(20 * GIB, 24 * GIB, budget=6 * GIB, beside=GIB // 2, spills=False)
    assert 5 * GIB < within < 6 * GIB - GIB // 2
    assert allocator_limit(20 * GIB, 24 * GIB, budget=6 * GIB, beside=GIB, spills=False) == within - GIB // 2
    assert allocator_limit(20 * GIB, 24 * GIB, budget=6 * GIB, later=GIB // 2, beside=0, spills=False) == within
    assert allocator_limit(20 * GIB, 24 * GIB, budget=99 * GIB, spills=False) < 24 * GIB
    assert allocator_limit(20 * GIB, 24 * GIB, budget=GIB // 4, spills=False) <= 0


def test_shared_memory_leaves_the_system_a_tenth():
    assert allocator_limit(100 * GIB, 120 * GIB, spills=False, integrated=True) == 108 * GIB
    assert allocator_limit(10 * GIB, 16 * GIB, spills=False, integrated=True) == 12 * GIB


@pytest.fixture
def card(monkeypatch):
    """A card of 8 GiB, 7 of them free, and the share that torch was told to stay below."""
    told = {}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (7 * GIB, 8 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: object())
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: told.update({device: share})
    )
    return told


def test_torch_is_told_the_cap(card):
    device = torch.device("cuda", 0)
    most = cap_memory(device)
    assert card[device] == most / (8 * GIB) < 1
    assert cap_memory(device, 4.0) < 4 * GIB
    assert card[device] < 0.5


def test_a_budget_without_room_for_tensors_is_refused(card):
    with pytest.raises(UsageError, match=r"budget_gib = 0\.5 leaves nothing") as caught:
        cap_memory(torch.device("cuda", 0), 0.5)
    assert "memory.budget_gib" in caught.value.remedy
    assert not card


def test_the_cpu_has_no_cap(card):
    assert cap_memory(torch.device("cpu"), 4.0) == 0
    assert not card


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (OSError(12, "out of memory"), False),
    ],
)
def test_every_library_says_in_its_own_words_that_memory_ran_out(error, is_one):
    assert is_out_of_memory(error) is is_one


@pytest.mark.gpu
def test_the_cap_holds_on_a_real_card():
    device = torch.device("cuda", 0)
    torch.cuda.empty_cache()
    try:
        most, left_by_others = cap_memory(device, 3.0), torch.cuda.memory_reserved(device)
        pieces = []
        with pytest.raises(torch.OutOfMemoryError):
            while torch.cuda.memory_reserved(device) <= 2 * most:
                pieces.append(torch.empty(most // 4, dtype=torch.uint8, device=device))
        assert left_by_others > most // 2 or len(pieces) in (2, 3, 4)
        assert torch.cuda.memory_reserved(device) <= max(most, left_by_others)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
