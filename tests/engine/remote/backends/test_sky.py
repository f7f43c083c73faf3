"""SkyPilot: its own loader accepts the file, its list gives machines and prices, its command is called as it is."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.remote.backends import sky, ssh
from burnish_engine.remote.backends.on_host import HostFolder
from burnish_engine.remote.backends.sky import SkyBackend, read_offers, task_yaml
from burnish_engine.remote.bundle.bundle import make_bundle

from support.runs.tiny_runs import tiny_recipe

SKY_PYTHON = "BURNISH_TEST_SKY_PYTHON"
"""Environment variable with the Python of an environment that has SkyPilot, which wants other packages than Burnish."""


def entry(name, count, price, **changes):
    return {
        "cloud": "AWS", "instance_type": "x", "accelerator_name": name, "accelerator_count": count, "cpu_count": 8.0,
        "device_memory": 40.0, "memory": 120.0, "price": price, "spot_price": price / 3, "region": "r", **changes,
    }  # fmt: skip


LISTED = {
    "A100": [entry("A100", 1.0, 4.1), entry("A100", 1.0, 1.3, cloud="Lambda"), entry("A100", 8.0, 12.0)],
    "L4": [entry("L4", 1.0, 0.7, device_memory=None)],
}


def test_skypilots_own_loader_reads_the_file(tmp_path):
    python = os.environ.get(SKY_PYTHON, "")
    if not python or not Path(python).exists():
        pytest.skip(f"{SKY_PYTHON} names no Python with SkyPilot")
    file = tmp_path / "task.yaml"
    file.write_text(task_yaml("burnish-x", "A100:2"))
    code = (
        "import json, sys, sky\n"
        "task = sky.Task.from_yaml(sys.argv[1])\n"
        "print(json.dumps([task.name, task.num_nodes, task.run, [r.accelerators for r in task.resources]]))"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([python, "-c", code, file], capture_output=True, text=True, env=environment, check=True)
    name, nodes, script, accelerators = json.loads(done.stdout.strip().splitlines()[-1])
    assert (name, nodes, accelerators) == ("burnish-x", 1, [{"A100": 2}])
    subprocess.run(["sh", "-n", "-c", script], check=True)


def test_the_cheapest_machine_of_a_kind_is_offered():
    offers = read_offers("I 11-26 a line of its own\n" + json.dumps(LISTED))
    assert [(one.name, one.gpus, one.usd_per_hour) for one in offers] == [
        ("L4:1", 1, 0.7), ("A100:1", 1, 1.3), ("A100:8", 8, 12.0),
    ]  # fmt: skip
    assert offers[1].machine.gpus[0].vram_total_bytes == 40 * 2**30
    assert offers[0].machine.gpus[0].vram_total_bytes > 20 * 2**30  # by the table, where the list does not say


@pytest.mark.parametrize("answer", ["", "no list", "{", '{"A100": [{}]}', '{"A100": 3}'])
def test_another_answer_is_refused_in_words(answer):
    with pytest.raises(SetupError, match="SkyPilot"):
        read_offers(answer)


def test_a_machine_is_launched_for_the_run_and_given_back(tmp_path, monkeypatch):
    """The machine is found by SkyPilot, reached by ssh, and down by itself where nobody gives it back."""
    ran = []
    monkeypatch.setattr(sky, "run", lambda shell, script, **_: ran.append((shell.host, script)) or json.dumps(LISTED))
    monkeypatch.setattr(ssh, "run", lambda *_, **__: "")
    monkeypatch.setattr(sky, "send_bundle", lambda shell, _bundle, name: HostFolder(shell, f"/home/jobs/{name}"))
    backend = SkyBackend("sky:L4", "L4")
    offer = backend.offers()[0]
    job = backend.submit(make_bundle(tiny_recipe(tmp_path), "run"), offer, "burnish-x")
    backend.restart(job)
    backend.release(job)
    asked, launched, begun, again, down = (script for _, script in ran if not script.startswith("rm "))
    assert asked.startswith("sky gpus list L4")
    assert launched.startswith("sky launch --cluster burnish-x ")
    assert {"--down", "--detach-run", "--yes"} <= set(launched.split())
    assert begun.startswith("touch /home/jobs/burnish-x/")
    assert again.startswith("sky exec --detach-run burnish-x ")
    assert down.startswith("sky down --yes burnish-x")
    assert [host for host, _ in ran].count("burnish-x") == 1  # where the bundle went
    assert (job.id, job.machine) == ("burnish-x", "L4:1")
