"""The probe says what is there, and what is there but silent; it neither fails nor hangs."""

import sys
import threading
from types import SimpleNamespace

import pytest

from burnish_engine.hardware.host.system import read_system
from burnish_engine.hardware.probe import probe
from burnish_engine.hardware.recording import record

from support.machines.replay import replay


class NvmlError(Exception):
    """Stands for pynvml.NVMLError."""

    def __init__(self, message, value=999):
        super().__init__(message)
        self.value = value


def nvml(**changes):
    """A driver with one RTX 4060; `changes` replace its answers. It has only the functions named here."""
    answers = {
        "NVMLError": NvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: SimpleNamespace(index=index),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=8 * 2**30, free=7 * 2**30),
        "nvmlDeviceGetCudaComputeCapability": lambda _: (8, 9),
        "nvmlDeviceGetName": lambda _: b"NVIDIA GeForce RTX 4060",
        "nvmlDeviceGetUUID": lambda _: "GPU-5f3a-secret",
    }
    return SimpleNamespace(**{**answers, **changes})


def fails(message, value=999):
    def call(*_):
        raise NvmlError(message, value)

    return call


@pytest.fixture(scope="module")
def system():
    return read_system()


def test_a_gpu_is_described_and_what_the_driver_lacks_is_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    machine = probe()
    gpu = machine.gpus[0]
    assert (gpu.name, gpu.compute_capability, gpu.vram_total_bytes) == ("NVIDIA GeForce RTX 4060", (8, 9), 8 * 2**30)
    assert (machine.driver, machine.driver_cuda, machine.gpu_problem) == ("580.95.05", "13.0", None)
    unknown = ("power_w", "temperature_c", "clock_mhz", "multiprocessors", "memory_bus_bits", "display", "mig", "pcie")
    assert [getattr(gpu, name) for name in unknown] == [None] * len(unknown)
    assert (gpu.users, gpu.unified_memory) == ([], False)


@pytest.mark.parametrize(
    ("on_bus", "value", "problem"),
    [
        (True, 9, "Driver Not Loaded"),
        (True, 12, "Driver Not Loaded"),
        (False, 9, None),
        (None, 9, "Driver Not Loaded"),
        (None, 12, None),
    ],
)
def test_a_driver_that_does_not_answer_is_a_problem_only_where_there_is_a_card(system, on_bus, value, problem):
    silent = nvml(nvmlInit=fails("Driver Not Loaded", value))
    machine = probe(silent, system=system.model_copy(update={"nvidia_on_bus": on_bus}))
    assert machine.gpu_problem == problem
    assert machine.gpus == []


def test_a_driver_without_gpus_is_a_problem_where_there_is_a_card(system):
    empty = nvml(nvmlDeviceGetCount=lambda: 0)
    assert "lists no GPU" in probe(empty, system=system.model_copy(update={"nvidia_on_bus": True})).gpu_problem
    assert probe(empty, system=system.model_copy(update={"nvidia_on_bus": False})).gpu_problem is None


def test_a_lost_gpu_is_named_and_the_others_stay(system):
    def memory(handle):
        if handle.index == 1:
            raise NvmlError("GPU is lost", 15)
        return SimpleNamespace(total=8 * 2**30, free=7 * 2**30)

    machine = probe(nvml(nvmlDeviceGetCount=lambda: 3, nvmlDeviceGetMemoryInfo=memory), system=system)
    assert [gpu.index for gpu in machine.gpus] == [0, 2]
    assert machine.gpu_problem == "GPU 1: GPU is lost"
    assert [(link.first, link.second) for link in machine.links] == [(0, 2)]


def test_a_gpu_without_memory_of_its_own_uses_the_systems(system):
    gpu = probe(nvml(nvmlDeviceGetMemoryInfo=fails("Not Supported", 3)), system=system).gpus[0]
    assert gpu.unified_memory
    assert (gpu.vram_total_bytes, gpu.vram_free_bytes) == (system.ram_total_bytes, system.ram_free_bytes)


def test_a_driver_that_hangs_is_given_up(system):
    release = threading.Event()
    machine = probe(nvml(nvmlInit=lambda: release.wait(30)), system=system, timeout_s=0.2)
    assert "did not answer within 0.2 s" in machine.gpu_problem
    release.set()


def test_an_unexpected_error_is_a_problem_not_a_crash(system):
    def broken():
        raise OSError("invalid ELF header")

    assert "invalid ELF header" in probe(nvml(nvmlInit=broken), system=system).gpu_problem


def test_a_process_that_computes_and_draws_is_listed_once_largest_first(system):
    def process(pid, count):
        return SimpleNamespace(pid=pid, usedGpuMemory=count)

    driver = nvml(
        nvmlDeviceGetComputeRunningProcesses=lambda _: [process(7, 300), process(8, 900)],
        nvmlDeviceGetGraphicsRunningProcesses=lambda _: [process(7, 500), process(9, None)],
    )
    users = probe(driver, system=system, name_of={7: "chrome", 8: "python", 9: ""}.get).gpus[0].users
    assert [(user.name, user.bytes) for user in users] == [("python", 900), ("chrome", 500), ("", None)]


def link_driver(state, kind, remote, p2p=None):
    """Two GPUs; link functions as given, by (index, link)."""

    def pick(table):
        def call(handle, link):
            if (answer := table(handle.index, link)) is None:
                raise NvmlError("Invalid Argument", 2)
            return answer

        return call

    return nvml(
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetCudaComputeCapability=lambda _: (9, 0),
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"00000000:0{handle.index + 1}:00.0".encode()),
        nvmlDeviceGetNvLinkState=pick(state),
        nvmlDeviceGetNvLinkRemoteDeviceType=pick(kind),
        nvmlDeviceGetNvLinkRemotePciInfo=pick(remote),
        nvmlDeviceGetP2PStatus=lambda *_: 0 if p2p is None else p2p,
    )


@pytest.mark.parametrize(
    ("case", "links"),
    [
        pytest.param({"kind": lambda *_: 2, "remote": lambda *_: None}, 17, id="switch, one link down on one side"),
        pytest.param(
            {"kind": lambda *_: 0, "remote": lambda i, link: SimpleNamespace(busId=f"0000:0{2 - i}:00.0")}, 18,
            id="bridge, short spelling of the bus id",
        ),
        pytest.param({"kind": lambda *_: 0, "remote": lambda *_: SimpleNamespace(busId="0000:99:00.0")}, 17,
                     id="virtual machine: other ends are the host's; the peer-to-peer table says linked"),
        pytest.param({"kind": lambda *_: 0, "remote": lambda *_: SimpleNamespace(busId="0000:99:00.0"), "p2p": 5}, 0,
                     id="linked to someone else"),
    ],
)  # fmt: skip
def test_nvlinks_are_counted(system, case, links):
    def state(index, link):
        return None if link >= 18 else int(not (index == 1 and link == 3))

    facts = probe(link_driver(state, **case), system=system).links[0]
    assert facts.nvlinks == links
    assert facts.nvlink_gb_s == (links * 25 or None)


def test_a_recording_replays_to_the_same_facts_and_keeps_no_secrets(system):
    driver = link_driver(lambda i, link: 1 if link < 4 else None, lambda *_: 2, lambda *_: None)
    driver.nvmlDeviceGetComputeRunningProcesses = lambda _: [SimpleNamespace(pid=7, usedGpuMemory=300)]
    before = probe(driver, system=system, name_of=lambda _: "")
    recording = record(driver, system)
    after = replay(recording)
    assert after.model_copy(update={"gpus": []}) == before.model_copy(update={"gpus": []})
    for one, other in zip(before.gpus, after.gpus, strict=True):
        assert one.model_copy(update={"uuid": ""}) == other.model_copy(update={"uuid": ""})
    assert before.links[0].nvlinks == 4
    assert "secret" not in str(recording)


def test_a_recorded_failure_replays(system):
    recording = record(nvml(nvmlInit=fails("Driver Not Loaded", 9)), system.model_copy(update={"nvidia_on_bus": True}))
    assert replay(recording).gpu_problem == "Driver Not Loaded"


def test_this_machine_has_numbers():
    machine = probe()
    assert machine.ram_total_bytes > machine.ram_free_bytes > 0
    assert machine.disk_free_bytes > 0
    assert machine.cpu_cores >= 1
