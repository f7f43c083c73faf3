"""A recipe trained by a one-node SLURM: judged by sbatch, queued, followed, asked to save before its time is over."""

import contextlib
import re
import shlex
import sys

import pytest

from burnish_engine.contract.errors import ExitCode, SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.run.events import StepDone
from burnish_engine.remote.backends.backend import Offer
from burnish_engine.remote.backends.machines import service_machine
from burnish_engine.remote.backends.shell import LocalShell
from burnish_engine.remote.backends.slurm import SlurmBackend, sbatch_script, seconds_of
from burnish_engine.remote.bundle.bundle import make_bundle
from burnish_engine.remote.submit import train_elsewhere
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run

from support.remote_jobs import UNWATCHED
from support.runs import of_kind, tiny_recipe
from support.slurm_cluster import SlurmCluster, require_slurm


@pytest.fixture(scope="module")
def daemons(tmp_path_factory):
    require_slurm()
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(daemons, monkeypatch):
    daemons.use(monkeypatch)
    monkeypatch.setenv("BURNISH_REMOTE_FOLDER", str(daemons.folder / "burnish"))
    monkeypatch.setenv("BURNISH_REMOTE_PYTHON", sys.executable)
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody_else")
    return daemons


def there(tmp_path, hours, **train):
    recipe = tiny_recipe(tmp_path, rows=24, extra=UNWATCHED, **train)
    devices = DevicesSection(where="slurm", kind="cpu", threads=1, timeout_hours=hours)
    return recipe.model_copy(update={"devices": devices})


def holds_token(path):
    with contextlib.suppress(OSError):
        return path.is_file() and b"hf_of_nobody_else" in path.read_bytes()
    return False


def test_the_cluster_trains_a_recipe_and_stops_it_on_command(cluster, tmp_path):
    paths, holding = create_run(there(tmp_path, 0.5, epochs=1000.0), tmp_path / "run"), []

    def stop(event):
        if isinstance(event, StepDone) and event.step == 2:
            holding.extend(path for path in cluster.folder.rglob("*") if holds_token(path))
            send(paths, "stop")

    outcome = train_elsewhere(paths, note=lambda _text: None, listener=stop, waits_s=(0.1, 0.5))
    assert (outcome.status, outcome.exit_code) == ("stopped", ExitCode.STOPPED)
    assert of_kind(paths, StepDone)
    assert (paths.adapter / "adapter_model.safetensors").is_file()
    assert not holding  # a cluster keeps the environment of a job in files while it works


def test_sbatch_judges_before_anything_is_queued(cluster, tmp_path):
    backend = SlurmBackend("slurm", LocalShell())
    offer = backend.offers()[0]
    assert (offer.name, offer.gpus) == ("short", 0)
    fitting = make_bundle(there(tmp_path, 0.5), "run", timeout_s=1800)
    assert "short" in backend.check(fitting, offer)
    # The node has no GPU.
    with pytest.raises(SetupError, match="gres"):
        backend.submit(fitting, Offer("short", service_machine("A100", 1), gpus=1), "burnish-on-gpu")


@pytest.mark.parametrize(
    ("limit", "seconds"), [("2-00:00:30", 172830), ("1:00:00", 3600), ("30:00", 1800), ("infinite", None)]
)
def test_time_limits_are_read(limit, seconds):
    assert seconds_of(limit) == seconds


@pytest.mark.parametrize(
    ("line", "name", "gpus", "card"),
    [
        ("gpu*|gpu:a100:4|515000|64|2-00:00:30", "gpu", 4, "A100"),
        ("v|gpu:2(S:0-1)|128000+|16+|infinite", "v", 2, "GPU"),
        ("cpu|(null)|64000|32|30:00", "cpu", 0, ""),
    ],
)
def test_nodes_are_read_from_what_sinfo_prints(line, name, gpus, card, monkeypatch):
    monkeypatch.setattr("burnish_engine.remote.backends.slurm.run", lambda *_, **__: line + "\n")
    offer = SlurmBackend("slurm", LocalShell()).offers()[0]
    assert (offer.name, offer.gpus, len(offer.machine.gpus)) == (name, gpus, gpus)
    assert not gpus or offer.machine.gpus[0].name.startswith(card)


def test_the_batch_script_asks_for_what_the_job_needs(tmp_path):
    bundle = make_bundle(there(tmp_path, 0.5), "run", gpus=2, timeout_s=5401)
    script = sbatch_script("burnish-x", "/j", "exec true", bundle, Offer("gpu", service_machine("A100", 4), gpus=4))
    lines = script.splitlines()
    assert lines[0] == "#!/bin/sh"
    assert lines[-1] == "exec true"  # what gets the termination is the job, not a shell around it
    asked = dict(re.fullmatch(r"#SBATCH --([a-z-]+)=?(.*)", line).groups() for line in lines[1:-1])
    assert (asked["gres"], asked["time"], asked["nodes"], asked["partition"]) == ("gpu:2", "90", "1", "gpu")
    assert asked["signal"].startswith("B:TERM@")
    assert "requeue" in asked


def test_a_folder_with_a_space_stays_one_option(tmp_path):
    bundle = make_bundle(there(tmp_path, 0.5), "run")
    script = sbatch_script("burnish-x", "/my jobs/x", "true", bundle, Offer("cpu", service_machine("", 0)))
    options = [shlex.split(line, comments=False)[1:] for line in script.splitlines() if line.startswith("#SBATCH")]
    assert all(len(words) == 1 for words in options)
    assert ["--chdir=/my jobs/x"] in options


@pytest.mark.parametrize(
    ("state", "ended", "again"),
    [("PENDING|None", True, False), ("RUNNING|None", False, False), ("RUNNING|None", True, True), ("", True, True)],
)
def test_a_job_that_the_cluster_queued_again_is_not_submitted_twice(state, ended, again, tmp_path, monkeypatch):
    submitted = []

    def run(_shell, script, **_):
        if script.startswith("squeue"):
            return state + "\n"
        if script.startswith("[ -e"):
            return "yes\n" if ended else ""
        submitted.extend(["sbatch"] if "sbatch" in script else [])
        return "8\n"

    for module in ("slurm", "ssh"):
        monkeypatch.setattr(f"burnish_engine.remote.backends.{module}.run", run)
    job = SlurmBackend("slurm", LocalShell()).restart(RemoteJob(where="slurm", id="7", folder=str(tmp_path)))
    assert (job.id, bool(submitted)) == (("8", True) if again else ("7", False))
