"""What the doctor prints: figures where they belong, and a command for torchrun that trains as it is pasted."""

import os
import subprocess
import sys

import pytest

from burnish_engine.cli.machine.doctor import pcie_text, show, write_report
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.machine import (
    Checkup,
    HostCopiesFacts,
    LinkFacts,
    LinkMeasurement,
    ParallelSettings,
    PcieFacts,
)
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import StepDone
from burnish_engine.runs.store import list_runs, read_recipe, read_state

from support.machines.made_up import GIB, cpu_machine, gpu_machine
from support.machines.remote_jobs import UNWATCHED
from support.runs.tiny_runs import of_kind, tiny_recipe


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "PCIe 4 x16"), ({"generation": 1}, "PCIe 1 x16 when idle, up to PCIe 4 x16"),
        (
            {"to_gpu_gb_s": 25.0, "from_gpu_gb_s": 26.5},
            "PCIe 4 x16 under load: 25.0 GB/s to the GPU, 26.5 GB/s from it",
        ),
        ({"width": None, "best_generation": None, "best_width": None}, "PCIe 4 x?"),
    ],
)  # fmt: skip
def test_a_connection_to_the_host_has_its_speed_now_and_at_best(changes, words):
    usual = {"generation": 4, "width": 16, "best_generation": 4, "best_width": 16}
    assert pcie_text(PcieFacts(**usual | changes)) == words


def test_figures_of_cards_and_links_stand_where_they_belong(capsys):
    machine = gpu_machine("Lamp 9000", 24 * GIB, free=20 * GIB, count=2)
    first, second = machine.gpus
    warm = first.model_copy(
        update={
            "power_w": 318.0,
            "power_limit_w": 450.0,
            "temperature_c": 67,
            "clock_mhz": 2520,
            "best_clock_mhz": 3105,
        }
    )
    link = LinkFacts(
        first=0, second=1, p2p_read=True, p2p_write=False, p2p_problem="chipset", common_ancestor="hostbridge",
        measured=LinkMeasurement(copy_gb_s=13.0, both_ways_gb_s=20.5),
    )  # fmt: skip
    copies = HostCopiesFacts(gpus=2, to_gpus_gb_s=50.0, from_gpus_gb_s=40.0, both_ways_gb_s=60.0)
    machine = machine.model_copy(update={"gpus": [warm, second], "links": [link], "host_copies": copies})
    settings = ParallelSettings(strategy="data_parallel", gpus=[0, 1], reasons=["They are alike."])
    show(Checkup(machine=machine, torch=None, llama_cpp=None, kernels=[], problems=[], ready=True, settings=settings))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "20.0 GiB free of 24.0 GiB", "318 of 450 W, 67 °C, 2520 of 3105 MHz",
        "0 and 1 no peer-to-peer (chipset), common ancestor: hostbridge, measured 13.0 GB/s, 20.5 both ways",
        "host memory 25.0 GB/s to each of 2 GPUs at once, 20.0 GB/s from each, measured",
        "best use data-parallel, GPU 0, 1", "They are alike.",
    ):  # fmt: skip
        assert line in lines


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="torch for Windows has no torchrun of several processes")
def test_the_printed_command_trains_on_two_ranks(tmp_path, capsys, monkeypatch):
    """The recipe names GPUs of other numbers than the ranks have, as on a machine that uses its last two."""
    recipe = tiny_recipe(tmp_path, rows=24, extra=UNWATCHED, accumulation=2, max_steps=2)
    devices = DevicesSection(kind="cpu", threads=1, gpus=[2, 3], strategy="data_parallel")
    file = tmp_path / "two ranks.toml"
    file.write_text(dump_recipe(recipe.model_copy(update={"devices": devices})), encoding="utf-8")
    main(["doctor", str(file)])
    line = next(line for line in capsys.readouterr().out.splitlines() if "torch.distributed.run" in line)
    command = line.partition("torchrun ")[2].strip()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.DONE, done.stderr[-2000:]
    paths = list_runs()[0].paths
    assert read_state(paths).status == "finished"
    assert len(of_kind(paths, StepDone)) == 2
    assert read_recipe(paths).devices.gpus == [0, 1]


@pytest.mark.parametrize(("version", "words"), [("0.6.0", "0.6.0"), (None, "not installed")])
def test_it_says_whether_kernels_for_delta_nets_are_there_where_they_help(capsys, version, words):
    there = {"torch": "2", "llama_cpp": "0", "fla_core": version, "kernels": [], "problems": [], "ready": True}
    show(Checkup(machine=gpu_machine("NVIDIA L4", 24 * GIB), **there))
    assert any(line.startswith("fla-core") and words in line for line in capsys.readouterr().out.splitlines())
    show(Checkup(machine=cpu_machine(), **there))
    assert "fla-core" not in capsys.readouterr().out


def test_a_report_holds_the_check_up_the_last_bug_and_the_windows_log(burnish_home):
    (burnish_home / "last-error.log").write_text("KeyError: /home/jo/acme.jsonl", encoding="utf-8")
    (burnish_home / "studio").mkdir()
    (burnish_home / "studio" / "serve.log").write_text("the engine's last words", encoding="utf-8")
    (burnish_home / "engine").mkdir()
    (burnish_home / "engine" / "set-up.log").write_text("error: what uv said", encoding="utf-8")
    machine = gpu_machine("Lamp 9000", 24 * GIB, free=20 * GIB, count=1)
    problems = ["No C compiler was found."]
    result = Checkup(machine=machine, torch="2.13.0", llama_cpp="0.3.36", kernels=[], problems=problems, ready=False)
    path = write_report(result, None)
    text = path.read_text(encoding="utf-8")
    for part in (
        "Lamp 9000",
        "No C compiler",
        "KeyError: <path>.jsonl",
        "the engine's last words",
        "what uv said",
        "llama.cpp: 0.3.36",
    ):
        assert part in text
    assert "acme" not in text
