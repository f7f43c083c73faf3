"""The command for plain torchrun: which processes, GPUs and variables it names, and when there is none."""

import shlex
import sys

import pytest

from burnish_engine.contract.facts.machine import ParallelSettings
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.hardware.gpu.torchrun import torchrun_command

NCCL = {"NCCL_P2P_DISABLE": "1"}
PAIR = ParallelSettings(strategy="data_parallel", gpus=[0, 1], environment=NCCL, reasons=[])
ALONE = ParallelSettings(strategy="single", gpus=[1], reasons=[])
CPU = DevicesSection(kind="cpu", gpus=[0, 1], strategy="data_parallel")


def split(line):
    """(variables, words after them)"""
    words = shlex.split(line)
    first = next(n for n, word in enumerate(words) if "=" not in word)
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def test_it_names_the_processes_the_module_the_recipe_and_what_nccl_needs():
    variables, words = split(torchrun_command(PAIR, "my recipe.toml"))
    assert variables == NCCL
    assert words[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert words[words.index("--nproc-per-node") + 1] == "2"
    assert words[-5:] == ["burnish_engine.cli.main", "train", "my recipe.toml", "--gpus", "2"]


def test_other_gpus_than_the_first_are_the_only_visible_ones():
    variables, _ = split(torchrun_command(PAIR.model_copy(update={"gpus": [1, 3]})))
    assert variables == NCCL | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,3"}


def test_a_recipe_that_names_its_gpus_has_the_last_word():
    named = DevicesSection(gpus=[2, 0, 1], strategy="data_parallel")
    variables, words = split(torchrun_command(ALONE, devices=named))
    assert variables["CUDA_VISIBLE_DEVICES"] == "2,0,1"
    assert words[-1] == "3"
    assert split(torchrun_command(PAIR, devices=CPU))[0] == {}


def test_a_recipe_for_another_machine_has_no_command_here():
    assert not torchrun_command(PAIR, devices=CPU.model_copy(update={"where": "ssh:office"}))


@pytest.mark.parametrize("devices", [None, DevicesSection(gpus=[1])])
def test_a_machine_that_trains_in_one_process_gets_none(devices):
    assert not torchrun_command(ALONE, devices=devices)
