"""Parsers on recorded text, and detection on folders made for it."""

import sys
from pathlib import Path

import pytest

from burnish_engine.install.machine import machine_facts as mf
from burnish_engine.install.machine.pip_sources import PipSources, config_files, read_pip_sources

GIB = 2**30


def test_one_gpu() -> None:
    driver, gpus = mf.parse_gpu_query("580.65.06, 8.9, 24564, NVIDIA GeForce RTX 4090\n")
    assert driver == (580, 65, 6)
    assert gpus == (mf.Gpu("NVIDIA GeForce RTX 4090", (8, 9), 24564 * 2**20),)


def test_several_gpus_keep_their_order() -> None:
    text = "535.129.03, 8.6, 24576, NVIDIA GeForce RTX 3090\r\n535.129.03, 6.1, 8192, NVIDIA GeForce GTX 1080\r\n"
    assert [gpu.compute_capability for gpu in mf.parse_gpu_query(text)[1]] == [(8, 6), (6, 1)]


def test_fields_that_the_driver_does_not_know() -> None:
    assert mf.parse_gpu_query("580.95.05, 12.1, [N/A], NVIDIA GB10\n")[1] == (mf.Gpu("NVIDIA GB10", (12, 1), None),)
    assert mf.parse_gpu_query("570.1, [Not Supported], 100, X\n")[1] == (mf.Gpu("X", None, 100 * 2**20),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n",
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.65\n",
            "Failed to initialize NVML: Driver/library version mismatch NVML library version: 580",
        ),
        ("No devices were found\n", "No devices were found"),
        ('Field "compute_cap" is not a valid field to query.\n', ""),
        ("", ""),
    ],
)
def test_failures_are_no_gpus(text: str, says: str) -> None:
    assert mf.parse_gpu_query(text) == ((), ())
    assert mf.parse_failure(text) == says


def test_the_drivers_cuda_version() -> None:
    head = "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |"
    assert mf.parse_driver_cuda(head) == (13, 0)
    assert mf.parse_driver_cuda("| NVIDIA-SMI 610.1   KMD Version: 610.1   CUDA UMD Version: 13.4 |") == (13, 4)
    assert mf.parse_driver_cuda("| CUDA Version: N/A |") == ()


def test_kernel_modules() -> None:
    old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version: 12"
    new = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n"
    assert mf.parse_kernel_module(old) == (535, 129, 3)
    assert mf.parse_kernel_module(new) == (580, 65, 6)
    assert mf.parse_kernel_module("") == ()


def test_version_tuple() -> None:
    assert mf.version_tuple(" 2.36-9+deb12 ") == (2, 36)
    assert mf.version_tuple("[N/A]") == ()


def _device(folder: Path, name: str, vendor: str, kind: str, driver: str = "") -> None:
    device = folder / name
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(kind + "\n")
    if driver:
        target = folder.parent / "drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(target)


@pytest.mark.skipif(sys.platform == "win32", reason="Linux's PCI folder, with links")
def test_gpu_on_the_bus(tmp_path: Path) -> None:
    bus = tmp_path / "devices"
    assert mf.gpus_on_bus(bus) == ""
    _device(bus, "0000:00:02.0", "0x8086", "0x030000")
    _device(bus, "0000:01:00.1", "0x10de", "0x040300")  # a GPU's sound device
    _device(bus, "0000:02:00.0", "0x10de", "0x030000", driver="vfio-pci")  # given to a virtual machine
    assert mf.gpus_on_bus(bus) == ""
    _device(bus, "0000:03:00.0", "0x10de", "0x030200", driver="nouveau")
    assert mf.gpus_on_bus(bus) == "PCI device 0000:03:00.0, kernel driver: nouveau"


@pytest.mark.skipif(sys.platform == "win32", reason="makes a shell script")
@pytest.mark.parametrize("works", [True, False])
def test_asking_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    table = "| Driver Version: 580.65.06  CUDA Version: 13.0 |"
    answer = f'if [ $# -gt 0 ]; then echo "580.65.06, 9.0, 81559, NVIDIA H100"; else echo "{table}"; fi'
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n" + (answer if works else 'echo "NVIDIA-SMI has failed because of x."; exit 9') + "\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    facts = mf.detect(tmp_path, {"BURNISH_ALLOW_CPU": "1"}, (3, 12, 0))
    assert facts.python_bits == (64 if sys.maxsize > 2**32 else 32)
    assert facts.allow_cpu
    if works:
        assert (facts.driver, facts.driver_cuda) == ((580, 65, 6), (13, 0))
        assert facts.gpus == (mf.Gpu("NVIDIA H100", (9, 0), 81559 * 2**20),)
    else:
        assert facts.gpus == ()
        assert facts.driver_message == "NVIDIA-SMI has failed because of x"


def test_pip_settings_from_variables_and_files(tmp_path: Path) -> None:
    wheels = tmp_path / "a folder"
    wheels.mkdir()
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nextra-index-url =\n    http://one.example/simple\n    http://two.example/simple\n")
    env = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path)}
    clean = read_pip_sources(tmp_path, env | {"PIP_CONFIG_FILE": "/dev/null" if sys.platform != "win32" else "nul"})
    assert clean == PipSources()
    assert not clean.configured
    found = read_pip_sources(tmp_path, env | {"PIP_CONFIG_FILE": str(config), "BURNISH_WHEELHOUSE": str(wheels)})
    assert {"http://one.example/simple", "http://two.example/simple"} <= set(found.addresses)
    assert str(wheels) in found.folders


def test_pip_find_links_is_a_folder_or_an_address(tmp_path: Path) -> None:
    env = {"PIP_CONFIG_FILE": "/dev/null" if sys.platform != "win32" else "nul"}
    found = read_pip_sources(
        tmp_path, env | {"PIP_FIND_LINKS": f"{tmp_path} http://w.example/", "PIP_INDEX_URL": tmp_path.as_uri()}
    )
    assert found.addresses == ("http://w.example/",)
    assert found.folders == (str(tmp_path), str(tmp_path))


def test_cpu_wheel_in_a_folder_that_pip_looks_into(tmp_path: Path) -> None:
    env = {"BURNISH_WHEELHOUSE": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null" if sys.platform != "win32" else "nul"}
    assert not mf.detect(tmp_path, env, (3, 12, 0)).cpu_torch_at_hand
    (tmp_path / "torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl").touch()
    assert mf.detect(tmp_path, env, (3, 12, 0)).cpu_torch_at_hand


@pytest.mark.parametrize(("said", "allowed"), [("1", True), (" TRUE ", True), ("Yes", True), ("0", False), ("", False)])
def test_the_processor_alone_is_allowed_in_the_usual_words(tmp_path: Path, said: str, allowed: bool) -> None:
    env = {"HOME": str(tmp_path), "BURNISH_ALLOW_CPU": said}
    assert mf.detect(tmp_path, env, (3, 12, 3)).allow_cpu == allowed


@pytest.mark.parametrize(("section", "counts"), [("global", True), ("install", True), ("download", False)])
def test_only_what_pip_install_reads_of_its_configuration_counts(tmp_path: Path, section: str, counts: bool) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(f"[{section}]\nindex-url = http://one.example/simple\n")
    found = read_pip_sources(
        tmp_path, {"PIP_CONFIG_FILE": str(config), "HOME": str(tmp_path), "XDG_CONFIG_DIRS": "/none"}
    )
    assert ("http://one.example/simple" in found.addresses) == counts


def test_a_broken_pip_configuration_is_pips_to_report(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("no section\n")
    read_pip_sources(tmp_path, {"PIP_CONFIG_FILE": str(config)})
    assert config in config_files(tmp_path, {"PIP_CONFIG_FILE": str(config)})
