"""The system beside its GPUs: sleep, memory within a container's limit, processor, names of processes."""

import os

import psutil
import pytest

from burnish_engine.hardware.host import sleep, system
from burnish_engine.hardware.host.sleep import seconds_of, windows_sleep

POWERCFG = """
Power Scheme GUID: 381b4222-f694-41f0-9685-ff5bb260df2e  (Ausbalanciert)
  Untergruppen-GUID: 238c9fa8-0aad-41ed-83f4-97be242c8f20  (Energie sparen)
    GUID der Energieeinstellung: 29f6c1db-86da-48c5-9fdb-f2b67b1f44da  (Deaktivierung nach)
      Kleinstmögliche Einstellung: 0x00000000
      Größtmögliche Einstellung: 0xffffffff
      Inkrement: 0x00000001
    Index der aktuellen Wechselstromeinstellung: 0x00000708
    Index der aktuellen Gleichstromeinstellung: 0x00000258
"""


def test_windows_answers_in_its_own_language():
    assert windows_sleep(POWERCFG, on_battery=False)[0] == 1800
    assert windows_sleep(POWERCFG, on_battery=True)[0] == 600
    assert windows_sleep("", on_battery=False)[0] is None


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("30min", 1800), ("1h 30min", 5400), ("90", 90), ("2 h", 7200), ("", None), ("soon", None), ("3 weeks", None)],
)
def test_time_spans(span, seconds):
    assert seconds_of(span) == seconds


@pytest.fixture
def linux(monkeypatch, tmp_path):
    """A Linux with systemd's files in a folder and a desktop of choice: settings -> seconds until sleep."""
    monkeypatch.setattr(sleep, "_SYSTEMD", tmp_path)
    monkeypatch.setattr(sleep.platform, "system", lambda: "Linux")

    def ask(desktop="", files=None, answers=None):
        for name, text in (files or {}).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.setenv("XDG_CURRENT_DESKTOP", desktop)
        monkeypatch.setattr(sleep, "_ask", lambda *words: (answers or {}).get(words[-1], ""))
        sleep._read_sleep.cache_clear()
        return sleep.read_sleep(on_battery=False)[0]

    return ask


def test_a_server_does_not_sleep_unless_told(linux):
    assert linux() == 0
    assert linux(files={"logind.conf": "[Login]\nIdleAction=suspend\n"}) == 1800
    assert linux(files={"logind.conf.d/9.conf": "[Login]\nIdleActionSec=10min\n"}) == 600
    assert linux(files={"sleep.conf": "[Sleep]\nAllowSuspend=no\n"}) == 0


def test_a_desktop_is_asked(linux):
    sleepy = {"sleep-inactive-ac-type": "'suspend'\n", "sleep-inactive-ac-timeout": "1200\n"}
    assert linux("ubuntu:GNOME", answers=sleepy) == 1200
    assert linux("ubuntu:GNOME", answers={**sleepy, "sleep-inactive-ac-type": "'nothing'\n"}) == 0
    assert linux("ubuntu:GNOME") is None
    assert linux("sway") is None


@pytest.mark.skipif(os.name == "nt", reason="links to the null device are systemd's")
def test_masked_sleep_is_off(linux, tmp_path):
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "sleep.target").symlink_to(os.devnull)
    sleepy = {"sleep-inactive-ac-type": "'suspend'\n", "sleep-inactive-ac-timeout": "1200\n"}
    assert linux("GNOME", answers=sleepy) == 0


def test_memory_is_what_a_containers_limit_leaves(monkeypatch):
    monkeypatch.setattr(system, "host_memory", lambda: (10**9, 5 * 10**8))
    limited = system.read_system()
    assert (limited.ram_total_bytes, limited.ram_free_bytes) == (10**9, 5 * 10**8)


@pytest.mark.parametrize(
    ("cpuinfo", "name", "bf16"),
    [
        ("model name\t: AMD Ryzen 9 7950X\nflags\t\t: fpu avx512_bf16 sse\n", "AMD Ryzen 9 7950X", True),
        ("model name\t: Intel i5\nflags\t\t: fpu avx2\n", "Intel i5", False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", None, True),
    ],
)
def test_the_processor_is_read_from_the_kernels_list(monkeypatch, tmp_path, cpuinfo, name, bf16):
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(system, "_CPUINFO", tmp_path / "cpuinfo")
    facts = system.read_system()
    assert facts.bf16_cpu is bf16
    assert facts.cpu == name if name else facts.cpu


def test_a_system_without_that_list_leaves_it_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(system, "_CPUINFO", tmp_path / "none")
    assert system.read_system().bf16_cpu is None


def test_a_system_that_shows_no_batteries_has_none(monkeypatch):
    def fails():
        raise FileNotFoundError("/sys/class/power_supply")

    monkeypatch.setattr(system, "in_container", lambda: False)
    monkeypatch.setattr(system, "read_sleep", lambda *, on_battery: (int(on_battery), ""))
    monkeypatch.setattr(psutil, "sensors_battery", fails, raising=False)
    assert system.read_system().sleep_after_s == 0


def test_a_card_on_the_bus_is_seen_and_a_bus_that_cannot_be_read_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(system, "_PCI_DEVICES", tmp_path / "none")
    assert system.read_system().nvidia_on_bus is None
    for vendor, kind, seen in (
        ("0x1002", "0x030000", False),
        ("0x10de", "0x040300", False),
        ("0x10de", "0x030000", True),
    ):
        device = tmp_path / "pci" / "0000:01:00.0"
        device.mkdir(parents=True, exist_ok=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
        monkeypatch.setattr(system, "_PCI_DEVICES", tmp_path / "pci")
        assert system.read_system().nvidia_on_bus is seen


def test_processes_are_named_only_where_the_drivers_ids_are_ours(monkeypatch):
    monkeypatch.setattr(system, "in_container", lambda: False)
    assert system.process_name(os.getpid()) == psutil.Process().name()
    assert system.process_name(2**30) == ""
    monkeypatch.setattr(system, "in_container", lambda: True)
    assert system.process_name(os.getpid()) == ""


def test_a_container_leaves_sleep_to_its_host(monkeypatch):
    monkeypatch.setattr(system, "in_container", lambda: True)
    facts = system.read_system()
    assert (facts.container, facts.sleep_after_s) == (True, None)
    assert facts.sleep_note
