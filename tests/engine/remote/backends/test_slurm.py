"""A recipe trained by a one-node SLURM: judged by sbatch, queued, followed, asked to save before its time is over."""

import contextlib
import os
import re
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode, SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.run.commands import Command
from burnish_engine.contract.run.events import StepDone
from burnish_engine.remote.backends.backend import Offer
from burnish_engine.remote.backends.machines import service_machine
from burnish_engine.remote.backends.shell import LocalShell
from burnish_engine.remote.backends.slurm import SlurmBackend, sbatch_script, seconds_of
from burnish_engine.remote.bundle.bundle import make_bundle
from burnish_engine.remote.submit import train_elsewhere
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run, read_recipe, read_state

from support.machines.remote_jobs import UNWATCHED
from support.machines.slurm_cluster import SlurmCluster, require_slurm
from support.runs.tiny_runs import of_kind, tiny_recipe


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


QUICKLY = {"note": lambda _text: None, "waits_s": (0.1, 0.5)}


@contextlib.contextmanager
def followed(paths):
    """Train elsewhere in a thread meanwhile, and to the end."""
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train_elsewhere, paths, read_recipe(paths), **QUICKLY)
        yield
        training.result(120)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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

    outcome = train_elsewhere(paths, read_recipe(paths), note=lambda _text: None, listener=stop, waits_s=(0.1, 0.5))
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


def test_a_job_that_the_cluster_lets_wait_is_stopped_in_its_queue(cluster, tmp_path):
    paths = create_run(there(tmp_path, 0.5), tmp_path / "run")
    with cluster.occupied(), followed(paths):
        until(lambda: "queue" in read_state(paths).message)
        assert cluster.jobs()
        send(paths, "stop")
    state = read_state(paths)
    assert (state.status, state.exit_code, state.step) == ("stopped", ExitCode.STOPPED, 0)
    assert "queue" in state.message
    assert not cluster.jobs()


@pytest.fixture
def fake_cluster(tmp_path, monkeypatch):
    """SLURM's commands as scripts: every job waits until a test writes another state into the file `state`."""
    if os.name == "nt":
        pytest.skip("a cluster has a POSIX shell")
    folder = tmp_path / "bin"
    folder.mkdir()
    state = folder / "state"
    scripts = {
        "sinfo": "echo 'cpu*|(null)|64000|8|1:00:00'",
        "sbatch": f"case $* in *--test-only*) exit 0;; esac; echo PENDING > {state}; echo 7",
        "squeue": f'read -r state < {state} || exit 0; echo "$state|Resources"',
        "scancel": f'echo "$*" >> {folder}/canceled; grep -qx PENDING {state} && : > {state} || true',
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    state.write_text("", encoding="utf-8")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("BURNISH_REMOTE_FOLDER", str(tmp_path / "burnish"))
    monkeypatch.setenv("BURNISH_REMOTE_PYTHON", sys.executable)
    return folder


def test_a_waiting_job_is_stopped_whether_followed_or_not(fake_cluster, tmp_path, capsys):
    paths = create_run(there(tmp_path, 0.5), tmp_path / "run")
    with followed(paths):
        until(lambda: "queue" in read_state(paths).message)
        assert main(["runs", "stop", str(paths.root)]) == ExitCode.DONE  # the follower hands it on
    assert read_state(paths).status == "stopped"
    assert "queue" in capsys.readouterr().out

    def close(text):
        if "queue" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_elsewhere(paths, read_recipe(paths), **{**QUICKLY, "note": close})  # queued again
    assert main(["runs", "stop", str(paths.root), "--now"]) == ExitCode.DONE  # nobody hands it on
    assert "queue" in capsys.readouterr().out
    assert (read_state(paths).status, read_state(paths).pid) == ("stopped", None)
    assert (fake_cluster / "canceled").read_text(encoding="utf-8").split() == ["--state=PENDING", "7"] * 2


def test_a_job_that_began_meanwhile_gets_the_command_itself(fake_cluster, tmp_path):
    """SLURM is asked to cancel only what waits: where the job began a moment before, the run saves and stops."""
    run = tmp_path / "job" / "run"
    run.mkdir(parents=True)
    (run / "control.jsonl").touch()
    state = fake_cluster / "state"
    state.write_text("PENDING\n", encoding="utf-8")
    (fake_cluster / "scancel").write_text(f"#!/bin/sh\necho RUNNING > {state}\n", encoding="utf-8")
    job, command = RemoteJob(where="slurm", id="7", folder=str(tmp_path / "job")), Command(name="stop", t=1.0)
    assert SlurmBackend("slurm", LocalShell()).send(job, command) is None
    assert Command.model_validate_json((run / "control.jsonl").read_text(encoding="utf-8")) == command
    assert not (tmp_path / "job" / "job_end.json").exists()


@pytest.mark.full
def test_a_job_that_somebody_took_out_of_the_queue_has_ended(fake_cluster, tmp_path):
    paths = create_run(there(tmp_path, 0.5), tmp_path / "run")

    def take_out(text):
        if "queue" in text:
            (fake_cluster / "state").write_text("", encoding="utf-8")

    outcome = train_elsewhere(paths, read_recipe(paths), **{**QUICKLY, "note": take_out})
    assert outcome.status == "failed"
    assert outcome.message


@pytest.mark.full
def test_what_was_sent_for_a_job_that_the_cluster_refuses_is_deleted(fake_cluster, tmp_path):
    (fake_cluster / "sbatch").write_text("#!/bin/sh\necho 'no such account' >&2; exit 1\n", encoding="utf-8")
    paths = create_run(there(tmp_path, 0.5), tmp_path / "run")
    with pytest.raises(SetupError, match="no such account"):
        train_elsewhere(paths, read_recipe(paths), **QUICKLY)
    assert not list((tmp_path / "burnish" / "jobs").iterdir())


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


@pytest.mark.full
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


@pytest.mark.full
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
