"""GPUs are numbered as torch numbers them."""

import pytest

from burnish_engine.contract.facts.machine import LinkFacts
from burnish_engine.hardware.gpu.visible import VARIABLE, lease_name_of, only_visible

from support.machines.made_up import gpu_machine

GIB = 2**30


@pytest.fixture
def machine():
    made = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, count=3)
    gpus = [gpu.model_copy(update={"uuid": f"GPU-{gpu.index}{gpu.index}ab"}) for gpu in made.gpus]
    links = [LinkFacts(first=a, second=b, nvlinks=10 * a + b) for a, b in ((0, 1), (0, 2), (1, 2))]
    return made.model_copy(update={"gpus": gpus, "links": links})


def shown(machine, setting):
    return [(gpu.index, gpu.uuid) for gpu in only_visible(machine, setting).gpus]


def test_without_the_variable_all_are_seen(machine):
    assert only_visible(machine, None) is machine


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("2,0", ["GPU-22ab", "GPU-00ab"]),
        (" 1 ", ["GPU-11ab"]),
        ("GPU-22,1", ["GPU-22ab", "GPU-11ab"]),
        ("1,-1,2", ["GPU-11ab"]),
        ("1,7,2", ["GPU-11ab"]),
        ("GPU-", []),
        ("", []),
    ],
)
def test_the_visible_ones_in_their_order(machine, setting, expected):
    assert shown(machine, setting) == list(enumerate(expected))


def test_links_follow_their_gpus(machine):
    (link,) = only_visible(machine, "2,0").links
    assert (link.first, link.second, link.nvlinks) == (0, 1, 2)


def test_hiding_all_asks_for_the_cpu(machine):
    hidden = only_visible(machine, "-1")
    assert hidden.gpus == []
    assert hidden.gpu_problem is None


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        (None, ["cuda-0", "cuda-1"]), ("", ["cuda-0", "cuda-1"]), ("2,0", ["cuda-2", "cuda-0"]),
        (" 3", ["cuda-3", "cuda-1"]), ("GPU-1b4e28ba,1", ["cuda-GPU-1b4e28ba", "cuda-1"]),
        ("../x", ["cuda-x", "cuda-1"]),
    ],
)  # fmt: skip
def test_a_gpu_has_one_lease_however_it_is_numbered(monkeypatch, setting, names):
    """Else two processes, each with a GPU of its own as its first, would wait for each other."""
    if setting is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, setting)
    assert [lease_name_of(0), lease_name_of(1)] == names
