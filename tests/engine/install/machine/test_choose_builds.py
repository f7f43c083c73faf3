"""One row a machine: what gets installed there, or which words its error must have."""

from dataclasses import replace

import pytest

from burnish_engine.install.machine.choose_builds import CUDA_LINES, BuildChoice, choose, torch_index_for
from burnish_engine.install.machine.machine_facts import Gpu, SetupFacts

GIB = 2**30
RTX_3090 = Gpu("NVIDIA GeForce RTX 3090", (8, 6), 24 * GIB)
RTX_4060 = Gpu("NVIDIA GeForce RTX 4060", (8, 9), 8 * GIB)
RTX_4090 = Gpu("NVIDIA GeForce RTX 4090", (8, 9), 24 * GIB)
RTX_5090 = Gpu("NVIDIA GeForce RTX 5090", (12, 0), 32 * GIB)
A100 = Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 40 * GIB)
RTX_2080 = Gpu("NVIDIA GeForce RTX 2080", (7, 5), 8 * GIB)
GTX_1080 = Gpu("NVIDIA GeForce GTX 1080", (6, 1), 8 * GIB)
GTX_680 = Gpu("NVIDIA GeForce GTX 680", (3, 0), 2 * GIB)
V100 = Gpu("Tesla V100-SXM2-16GB", (7, 0), 16 * GIB)
H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 * GIB)
GB10 = Gpu("NVIDIA GB10", (12, 1), None)

LINUX = SetupFacts("Linux", "x86_64", (3, 12, 3), libc="glibc", libc_version=(2, 39))
ARM = replace(LINUX, machine="aarch64")
WINDOWS = SetupFacts("Windows", "x86_64", (3, 12, 3))
WSL = replace(LINUX, wsl=True)
MAC = SetupFacts("Darwin", "aarch64", (3, 12, 3))
INDEX = "http://mirror.example/whl"


def on(facts, gpu, driver, cuda=(), **changes):
    gpus = gpu if isinstance(gpu, tuple) else (gpu,)
    return replace(facts, gpus=gpus, driver=driver, driver_cuda=cuda, **changes)


LINUX_TRITON, WINDOWS_TRITON = "triton==3.7.1", "triton-windows==3.7.1.post27"

WORKS = [
    ("Linux, CPU only, CPU wheel at hand", replace(LINUX, cpu_torch_at_hand=True), "cpu", LINUX_TRITON, ""),
    ("Linux, CPU only, default index", LINUX, "cpu", LINUX_TRITON, "2.7 GB"),
    ("Linux, CPU only, own index", replace(LINUX, torch_index=INDEX), "cpu", LINUX_TRITON, ""),
    ("Linux, 4090, driver 580", on(LINUX, RTX_4090, (580, 65, 6), (13, 0)), "cu130", LINUX_TRITON, ""),
    ("Linux, A100, oldest driver of 13.0", on(LINUX, A100, (580,)), "cu130", LINUX_TRITON, ""),
    ("Linux, oldest driver of 12.6", on(LINUX, H100, (525, 60), torch_index=INDEX), "cu126", LINUX_TRITON, ""),
    ("Linux, oldest card of 13.0", on(LINUX, RTX_2080, (580, 1)), "cu130", LINUX_TRITON, "older than"),
    ("Linux, oldest glibc", replace(LINUX, libc_version=(2, 28), cpu_torch_at_hand=True), "cpu", LINUX_TRITON, ""),
    ("Linux, 5090, driver 580", on(LINUX, RTX_5090, (580, 95, 5)), "cu130", LINUX_TRITON, ""),
    ("Linux, 5090, driver 610", on(LINUX, RTX_5090, (610, 12)), "cu130", LINUX_TRITON, ""),
    (
        "Linux, 3090, driver 535, index",
        on(LINUX, RTX_3090, (535, 129, 3), torch_index=INDEX),
        "cu126",
        LINUX_TRITON,
        "",
    ),
    (
        "Linux, 3090, 535, pip's index",
        on(LINUX, RTX_3090, (535, 129, 3), pip_index_configured=True),
        "cu126",
        LINUX_TRITON,
        "",
    ),
    (
        "Linux, H100, 535 and NVIDIA's compatibility package",
        on(LINUX, H100, (535, 5), (13, 0)),
        "cu130",
        LINUX_TRITON,
        "",
    ),
    (
        "Linux, GTX 1080, 580, index",
        on(LINUX, GTX_1080, (580, 65, 6), torch_index=INDEX),
        "cu126",
        LINUX_TRITON,
        "older than",
    ),
    ("Linux, V100, 580, index", on(LINUX, V100, (580, 65, 6), torch_index=INDEX), "cu126", LINUX_TRITON, "older than"),
    (
        "Linux, 4090 beside a 1080",
        on(LINUX, (GTX_1080, RTX_4090), (580, 65, 6)),
        "cu130",
        LINUX_TRITON,
        "GTX 1080 (compute capability 6.1) stays unused",
    ),
    ("WSL2, 4060, Windows driver 581", on(WSL, RTX_4060, (581, 15), (13, 0)), "cu130", LINUX_TRITON, ""),
    ("WSL2, no GPU seen", replace(WSL, cpu_torch_at_hand=True), "cpu", LINUX_TRITON, "in Windows"),
    (
        "a GPU image on a machine without one",
        replace(LINUX, driver_message="NVIDIA-SMI has failed", cpu_torch_at_hand=True),
        "cpu",
        LINUX_TRITON,
        "No NVIDIA GPU was found",
    ),
    ("aarch64, DGX Spark", on(ARM, GB10, (580, 95, 5), (13, 0)), "cu130", LINUX_TRITON, ""),
    (
        "Windows, 4060, driver 581, index",
        on(WINDOWS, RTX_4060, (581, 15), torch_index=INDEX),
        "cu130",
        WINDOWS_TRITON,
        "",
    ),
    (
        "Windows, 3090, driver 551, index",
        on(WINDOWS, RTX_3090, (551, 86), torch_index=INDEX),
        "cu126",
        WINDOWS_TRITON,
        "",
    ),
    ("Windows, no GPU", WINDOWS, "cpu", WINDOWS_TRITON, ""),
    ("Python 3.14", on(replace(LINUX, python=(3, 14, 0)), RTX_4090, (580, 65, 6)), "cu130", LINUX_TRITON, ""),
    (
        "GPU that tells no capability",
        on(LINUX, Gpu("NVIDIA Graphics Device", None, None), (580, 1)),
        "cu130",
        LINUX_TRITON,
        "",
    ),
    ("macOS, knowingly on the CPU", replace(MAC, allow_cpu=True), "cpu", None, ""),
    (
        "dead driver, knowingly on the CPU",
        replace(LINUX, gpu_without_driver="PCI device", allow_cpu=True, cpu_torch_at_hand=True),
        "cpu",
        LINUX_TRITON,
        "BURNISH_ALLOW_CPU is set",
    ),
    (
        "old driver, knowingly on the CPU",
        on(LINUX, RTX_5090, (550, 54), allow_cpu=True, torch_index=INDEX),
        "cpu",
        LINUX_TRITON,
        "too old",
    ),
]

FAILS = [
    ("Linux, 5090, driver 570", on(LINUX, RTX_5090, (570, 86, 10), (12, 8)), ["RTX 5090", "570.86.10", "580 or newer"]),
    ("Linux, 5090, driver 550", on(LINUX, RTX_5090, (550, 54, 14), (12, 4)), ["RTX 5090", "550.54.14", "580 or newer"]),
    ("Windows, 5090, driver 566", on(WINDOWS, RTX_5090, (566, 36), torch_index=INDEX), ["566.36", "580 or newer"]),
    ("Linux, 3090, driver 470", on(LINUX, RTX_3090, (470, 223, 2), (11, 4)), ["470.223.2", "580 or newer"]),
    ("WSL2, 3090, driver 516", on(WSL, RTX_3090, (516, 94)), ["in Windows (not inside WSL)"]),
    ("WSL2, 3090, driver 527", on(WSL, RTX_3090, (527, 56), torch_index=INDEX), ["527.56", "in Windows"]),
    ("Windows, 3090, driver 527", on(WINDOWS, RTX_3090, (527, 56), torch_index=INDEX), ["527.56"]),
    ("Linux, 3090, 535, no index", on(LINUX, RTX_3090, (535, 129, 3)), ["cu126", "BURNISH_TORCH_INDEX", "Or update"]),
    ("Linux, GTX 1080, 580, no index", on(LINUX, GTX_1080, (580, 65, 6)), ["cu126", "BURNISH_TORCH_INDEX"]),
    ("Windows, 4060, 581, no index", on(WINDOWS, RTX_4060, (581, 15)), ["cu130", "BURNISH_TORCH_INDEX", "Get started"]),
    ("Linux, GTX 680", on(LINUX, GTX_680, (470, 256, 2)), ["too old", "compute capability 3.0"]),
    (
        "Linux, GPU without driver",
        replace(LINUX, gpu_without_driver="PCI device 0000:01:00.0"),
        ["0000:01:00.0", "nvidia-driver"],
    ),
    (
        "Linux, driver that does not answer",
        replace(LINUX, driver=(580, 65, 6), driver_message="NVIDIA-SMI has failed"),
        ["NVIDIA-SMI has failed", "Restart", "--gpus all"],
    ),
    (
        "Windows, GPU without driver",
        replace(WINDOWS, gpu_without_driver="VEN_10DE NVIDIA GeForce RTX 4060"),
        ["RTX 4060", "in Windows"],
    ),
    ("WSL2, driver that does not answer", replace(WSL, driver_message="Failed to initialize NVML"), ["in Windows"]),
    ("no C compiler for Triton", on(LINUX, RTX_4090, (580, 65, 6), c_compiler=False), ["gcc", "No CUDA toolkit"]),
    ("no Python headers for Triton", on(LINUX, RTX_4090, (580, 65, 6), python_headers=False), ["python3.12-dev"]),
    ("Windows on ARM64", replace(WINDOWS, machine="aarch64"), ["Windows on aarch64", "x86-64"]),
    ("Linux on RISC-V", replace(LINUX, machine="riscv64"), ["riscv64"]),
    ("macOS", MAC, ["macOS", "Linux or Windows"]),
    ("FreeBSD", replace(LINUX, system="FreeBSD"), ["FreeBSD"]),
    ("Alpine", replace(LINUX, libc="musl", libc_version=()), ["musl", "Debian"]),
    ("old glibc", replace(LINUX, libc_version=(2, 27)), ["2.27", "2.28"]),
    ("Python 3.10", replace(LINUX, python=(3, 10, 13)), ["3.10.13", "3.11"]),
    ("Python 3.15", replace(LINUX, python=(3, 15, 0)), ["3.15.0", "3.13"]),
    ("32-bit Python", replace(WINDOWS, python_bits=32), ["32-bit"]),
    ("free-threaded Python", replace(LINUX, free_threaded=True), ["free-threaded"]),
]


@pytest.mark.parametrize(
    ("facts", "build", "triton", "warning"), [row[1:] for row in WORKS], ids=[row[0] for row in WORKS]
)
def test_machines_that_work(facts: SetupFacts, build: str, triton: str | None, warning: str) -> None:
    choice = choose(facts)
    assert choice.error == ""
    assert (choice.build, choice.triton, choice.torch) == (build, triton, "torch==2.13.0")
    assert warning in " ".join(choice.warnings)
    assert bool(warning) == bool(choice.warnings)


@pytest.mark.parametrize(("facts", "words"), [row[1:] for row in FAILS], ids=[row[0] for row in FAILS])
def test_machines_that_do_not(facts: SetupFacts, words: list[str]) -> None:
    choice = choose(facts)
    assert [word for word in words if word not in choice.error] == []
    assert "\n" not in choice.error, "an error is one paragraph"
    assert not choice.uses_gpu


def test_a_cpu_run_beside_a_gpu_never_comes_unasked() -> None:
    for name, facts, build, *_ in WORKS:
        if facts.gpus or facts.gpu_without_driver:
            assert build != "cpu" or facts.allow_cpu, name


def test_cpu_build_is_sure_only_when_it_is_known_to_be_found() -> None:
    assert not choose(LINUX).cpu_build_sure
    assert choose(replace(LINUX, cpu_torch_at_hand=True)).cpu_build_sure
    assert choose(WINDOWS).cpu_build_sure, "Windows' default index has CPU builds only"


def test_compiler_decides_whether_llama_may_be_compiled() -> None:
    assert choose(LINUX).llama_may_compile
    assert not choose(replace(LINUX, cxx_compiler=False)).llama_may_compile


def test_fingerprint_ignores_what_installs_the_same() -> None:
    assert BuildChoice(warnings=("a",), llama_may_compile=False).fingerprint() == BuildChoice().fingerprint()
    assert BuildChoice(build="cu130").fingerprint() != BuildChoice().fingerprint()


def test_lines_are_ordered_newest_first() -> None:
    assert [line.cuda for line in CUDA_LINES] == sorted((line.cuda for line in CUDA_LINES), reverse=True)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("", ""),
        ("http://mirror.example/whl", "http://mirror.example/whl/cu130"),
        ("http://mirror.example/whl/", "http://mirror.example/whl/cu130"),
        ("http://mirror.example/whl/cu130", "http://mirror.example/whl/cu130"),
        ("http://mirror.example/whl/cu126/", "http://mirror.example/whl/cu126"),
        ("http://mirror.example/whl/cpu", "http://mirror.example/whl/cpu"),
        ("http://mirror.example/root/simple/", "http://mirror.example/root/simple"),
        ("http://mirror.example/custom", "http://mirror.example/custom/cu130"),
    ],
)
def test_index_address(address: str, expected: str) -> None:
    assert torch_index_for(address, "cu130") == expected
