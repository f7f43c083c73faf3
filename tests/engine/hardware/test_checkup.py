"""The doctor believes only a kernel that ran, names what is missing, and merges what it measured."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from burnish_engine.cli.machine import doctor
from burnish_engine.contract.facts.machine import HOST, KernelCheck, LinkFacts, PcieFacts
from burnish_engine.hardware import checkup as module
from burnish_engine.hardware.checkup import check_up
from burnish_engine.hardware.gpu.bandwidth import measure_links, merge_measurements
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.gpu.kept_links import with_kept_links
from burnish_engine.hardware.gpu.topology import topology
from burnish_engine.hardware.notes import notes
from burnish_engine.hardware.probe import probe

from support.machines.made_up import GIB, gpu_machine
from support.machines.replay import load, replay

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "machines"


def recorded(name):
    return replay(load(FOLDER / f"{name}.json"))


def answer(machine, *, copy_gb_s=20.0, generation=4, width=8, **changes):
    """What the measuring process prints, on a machine of two GPUs."""
    pcie = {"to_gpu_gb_s": 12.4, "from_gpu_gb_s": 12.9, "generation": generation, "width": width}
    pair = {
        "first": 0, "second": 1, "copy_gb_s": copy_gb_s, "both_ways_gb_s": 2 * copy_gb_s, "latency_us": 9.0,
        "peer_access": None, "intact": True,
    }  # fmt: skip
    return {
        "pcie": [{"gpu": gpu.index, **pcie} for gpu in machine.gpus],
        "links": [pair | changes.pop("pair", {})],
        "all_reduce_gb_s": None,
        "all_reduce_problem": "",
        "seconds": 4.0,
        **changes,
    }


@pytest.fixture
def no_kernels(monkeypatch):
    """A machine where the kernels pass, for tests of what stands beside them."""
    monkeypatch.setattr(module, "_run_kernels", lambda gpu: [KernelCheck(name="kernel", passed=True)])
    monkeypatch.setattr(module, "_missing_compiler", list)
    monkeypatch.setattr(module, "_missing_libraries", list)


@pytest.mark.full
def test_a_kernel_is_run_and_only_that_is_believed(monkeypatch):
    monkeypatch.setattr(module, "probe", lambda: probe().model_copy(update={"gpus": [], "gpu_problem": None}))
    healthy = check_up()
    assert healthy.ready
    assert [check.passed for check in healthy.kernels] == [True]
    fake = SimpleNamespace(executable="/bin/false" if sys.platform != "win32" else "x", platform=sys.platform)
    monkeypatch.setattr(module, "sys", fake)
    sick = check_up()
    assert not sick.ready
    assert any("exit code 1" in problem for problem in sick.problems)


def test_a_silent_gpu_makes_the_machine_not_ready(monkeypatch, no_kernels):
    monkeypatch.setattr(module, "probe", lambda: recorded("driver_not_loaded"))
    found = check_up()
    assert not found.ready
    assert any("Driver Not Loaded. Restart" in problem for problem in found.problems)
    assert found.settings.gpus == []


def test_nothing_is_measured_unless_asked(monkeypatch, no_kernels):
    monkeypatch.setattr(module, "probe", lambda: recorded("pair_4090"))
    monkeypatch.setattr(module, "measure_links", lambda *_: pytest.fail("measured"))
    found = check_up()
    assert found.ready
    assert found.settings.strategy == "data_parallel"
    assert any("--bandwidth" in note for note in found.notes)


NO_GPU = {"gpus": [], "links": []}


@pytest.mark.parametrize(
    ("changed", "where", "reason"),
    [({}, "here", ""), ({}, "slurm:office", "slurm:office"), (NO_GPU, "here", "one device")],
)
def test_of_a_recipe_without_a_command_for_torchrun_it_is_said_why(
    monkeypatch, tmp_path, no_kernels, changed, where, reason
):
    monkeypatch.setattr(module, "probe", lambda: recorded("pair_4090").model_copy(update=changed))
    file = tmp_path / "recipe.toml"
    file.write_text(f'[devices]\nwhere = "{where}"\n', encoding="utf-8")
    found = check_up(recipe=file)
    why = [note for note in found.notes if "torchrun" in note]
    assert bool(found.settings.torchrun) is not bool(reason)
    assert [reason in note for note in why] == ([True] if reason else [])


def test_links_that_are_not_there_are_not_silently_left_out(monkeypatch, no_kernels):
    monkeypatch.setattr(module, "probe", lambda: recorded("pair_4090").model_copy(update=NO_GPU))
    assert any("links" in note for note in check_up(bandwidth=True).notes)
    assert not any("links" in note for note in check_up().notes)


def test_what_was_measured_replaces_the_table_and_the_reason_says_so(monkeypatch, no_kernels):
    monkeypatch.setattr(module, "probe", lambda: recorded("pair_4090"))
    monkeypatch.setattr(
        module, "measure_links", lambda machine, _: merge_measurements(machine, answer(machine, all_reduce_gb_s=17.5))
    )
    found = check_up(bandwidth=True)
    assert found.machine.links[0].measured.copy_gb_s == 20.0
    assert found.settings.exchange_gb_s == 17.5
    assert any("20.0 GB/s where the table expects 6.0" in reason for reason in found.settings.reasons)
    assert with_kept_links(recorded("pair_4090")).all_reduce_gb_s == 17.5, "it counts from now on"
    assert not any("--bandwidth" in note for note in found.notes)


def test_pcie_is_read_under_load():
    machine = recorded("pair_4090")
    slow = merge_measurements(machine, answer(machine, generation=3, width=4)).machine
    assert slow.gpus[0].pcie == PcieFacts(
        generation=3, width=4, best_generation=4, best_width=8, card_generation=4, under_load=True,
        to_gpu_gb_s=12.4, from_gpu_gb_s=12.9,
    )  # fmt: skip
    assert topology(slow).between(0, HOST).gb_s == 12.4
    assert any("PCIe 3 x4 even under load" in note for note in notes(slow, parallel_settings(slow)))
    full = merge_measurements(machine, answer(machine)).machine
    assert not any("even under load" in note for note in notes(full, parallel_settings(full)))


def test_a_link_whose_generation_no_one_tells_is_not_called_slow():
    machine = recorded("pair_4090")
    quiet = merge_measurements(machine, answer(machine, generation=None, width=None)).machine
    assert not quiet.gpus[0].pcie.under_load
    assert not any("even under load" in note for note in notes(quiet, parallel_settings(quiet)))


def test_copies_that_arrive_broken_and_a_failed_all_reduce_are_told():
    machine = recorded("pair_4090")
    found = merge_measurements(
        machine, answer(machine, pair={"intact": False}, all_reduce_problem="NCCL hangs")
    ).problems
    assert len(found) == 2
    assert "does not arrive as it was sent" in found[0]
    assert "NCCL hangs" in found[1]


def test_the_measuring_process_runs_here_and_finds_what_there_is(monkeypatch):
    """Without a GPU it answers that there is nothing; a process that dies is told."""
    machine = recorded("no_gpu")
    assert measure_links(machine).problems == []
    monkeypatch.setattr("burnish_engine.hardware.gpu.bandwidth._MODULE", "burnish_engine.models.no_such_module")
    assert "exit code 1" in measure_links(machine).problems[0]


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_the_doctor_prints_every_machine(monkeypatch, no_kernels, capsys, name):
    monkeypatch.setattr(module, "probe", lambda: recorded(name))
    found = check_up()
    doctor.show(found)
    text = capsys.readouterr().out
    for gpu in found.machine.gpus:
        assert gpu.name in text
    for words in (*found.notes, *found.problems, "Ready" if found.ready else "Not ready"):
        assert words in text
    if len(found.machine.gpus) > 1:
        assert found.settings.reasons[0] in text


@pytest.mark.parametrize("nvlinks", [0, 4])
def test_a_base_that_no_gpu_has_room_for_is_shared_only_by_gpus_that_read_each_other(nvlinks):
    machine = gpu_machine("NVIDIA A100-SXM4-40GB", 40 * GIB, capability=(8, 0), count=2)
    link = LinkFacts(first=0, second=1, nvlinks=nvlinks, nvlink_gb_s=300.0 if nvlinks else None)
    machine = machine.model_copy(update={"links": [link]})
    settings = parallel_settings(machine, base_bytes=60 * GIB)
    assert settings.strategy == "sharded"
    told = " ".join(notes(machine, settings))
    assert ("they share the layers" in told) == bool(nvlinks)
    assert ('"host"' in told) == (not nvlinks)
