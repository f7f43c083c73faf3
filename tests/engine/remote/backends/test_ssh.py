"""A recipe trained over ssh: the sshd is real, the job is a process of its own, and its result comes back verified."""

import io
import json
import subprocess
import sys
import tarfile
import time

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode, SetupError
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.contract.run.events import CheckpointSaved, RunEnded, RunStarted, StepDone
from burnish_engine.models.saved_adapters.start_adapter import open_start
from burnish_engine.remote.backends.backend import DroppedError
from burnish_engine.remote.backends.on_host import HostFolder, send_bundle
from burnish_engine.remote.backends.shell import LocalShell, SshShell, run
from burnish_engine.remote.bundle.bundle import make_bundle
from burnish_engine.remote.mirror import read_job
from burnish_engine.remote.submit import train_elsewhere
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run, read_recipe, read_state, summarize

from support.machines.remote_jobs import UNWATCHED
from support.machines.ssh_host import HOST, SshHost, require_sshd
from support.runs.tiny_runs import losses, of_kind, tiny_recipe

WAITS_S = (0.1, 0.2)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    require_sshd()
    host = SshHost(tmp_path_factory.mktemp("ssh"))
    yield host
    host.close()


@pytest.fixture
def office(host, monkeypatch):
    host.use(monkeypatch)
    host.wire.down = False
    return host


def there(tmp_path, **train):
    recipe = tiny_recipe(tmp_path, rows=24, extra=UNWATCHED, **train)
    return recipe.model_copy(update={"devices": DevicesSection(where=f"ssh:{HOST}", kind="cpu", threads=1)})


def quiet(_text):
    pass


def test_a_run_is_handed_over_followed_and_brought_back(office, tmp_path):
    """The result here is proven, and nothing is left there but the environment."""
    paths = create_run(there(tmp_path), tmp_path / "run")
    outcome = train_elsewhere(paths, read_recipe(paths), note=quiet, waits_s=WAITS_S)
    assert (outcome.status, outcome.exit_code) == ("finished", ExitCode.DONE)
    events, state = list(read_events(paths.events)), read_state(paths)
    assert [event.seq for event in events] == list(range(len(events)))
    assert isinstance(events[-1], RunEnded)
    assert list(losses(paths)) == list(range(1, 16))
    assert (state.status, state.step, state.exit_code, state.pid) == ("finished", 15, 0, None)
    assert open_start(AdapterSection(start=str(paths.adapter))).section.rank == 4
    last = of_kind(paths, CheckpointSaved)[-1]
    assert (paths.checkpoints / last.path.rpartition("/")[2] / "COMPLETE").is_file()
    assert paths.card.is_file()
    assert read_job(paths).brought_back
    assert not list((office.jobs / "jobs").iterdir())
    environment = next((office.jobs / "env").iterdir())
    code = "import burnish_engine; print(burnish_engine.__file__)"
    asked = subprocess.run(["sh", environment / "python", "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.startswith(str(environment))  # what trained was the wheel that was sent


def test_cuts_a_closed_laptop_a_stop_and_a_killed_job(office, tmp_path):
    """One long run: cut twice, left alone, told to stop meanwhile, continued with, and killed."""
    paths = create_run(there(tmp_path, epochs=1000.0, checkpoint_every=20), tmp_path / "run")

    def cut_then_close(event):
        if event.seq in {1, 12}:
            office.wire.cut()
        if isinstance(event, StepDone) and event.step > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_elsewhere(paths, read_recipe(paths), note=quiet, listener=cut_then_close, waits_s=WAITS_S)
    assert summarize(paths).status == "interrupted"
    assert main(["runs", "stop", str(paths.root)]) == ExitCode.DONE  # the job gets it though nobody follows
    outcome = train_elsewhere(paths, read_recipe(paths), note=quiet, waits_s=WAITS_S)
    assert (outcome.status, outcome.exit_code) == ("stopped", ExitCode.STOPPED)
    stopped = read_state(paths).step
    assert list(losses(paths)) == list(range(1, stopped + 1))
    assert (paths.adapter / "adapter_model.safetensors").is_file()  # what was saved is here
    assert reply_there(f"{read_job(paths).folder}/run")  # and still there, with its base model, to talk to

    def kill(event):
        if isinstance(event, StepDone):
            subprocess.run(["kill", "-9", "--", f"-{int(read_job(paths).id)}"], check=False)

    outcome = train_elsewhere(
        paths, read_recipe(paths), note=quiet, listener=kill, waits_s=WAITS_S
    )  # its former end is not taken for this
    assert (outcome.status, bool(outcome.message)) == ("failed", True)
    assert of_kind(paths, RunStarted)[-1].resumed_from_step == stopped
    events = list(read_events(paths.events))
    assert [event.seq for event in events] == list(range(len(events)))


def test_what_was_sent_of_a_run_is_deleted_where_the_connection_breaks(office, tmp_path):
    """Whatever arrived until then lies under another name, and the machine itself deletes it."""
    paths = create_run(there(tmp_path), tmp_path / "run")
    bundle = make_bundle(read_recipe(paths), "run")
    arrived, start = [], bundle_start(bundle)

    def cut_in_the_middle(pipe):
        pipe.write(start)
        pipe.flush()
        until(lambda: list(office.jobs.glob("jobs/burnish-cut*/*")))
        arrived.extend(path.name for path in office.jobs.glob("jobs/burnish-cut*"))
        office.wire.down = True
        office.wire.cut()

    bundle.write_tar = cut_in_the_middle
    with pytest.raises(DroppedError):
        send_bundle(SshShell(HOST), bundle, "burnish-cut")
    assert arrived
    assert arrived != ["burnish-cut"]
    until(lambda: not list(office.jobs.glob("jobs/burnish-cut*")))


def bundle_start(bundle):
    """The stream of a bundle up to the end of a file that is not the last."""
    whole = io.BytesIO()
    bundle.write_tar(whole)
    with tarfile.open(fileobj=io.BytesIO(whole.getvalue())) as archive:
        return whole.getvalue()[: archive.getmembers()[-1].offset]


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def reply_there(run):
    """Text that a run's tuned model there answers with."""
    asked = {"method": "chat", "id": "a", "target": run, "messages": [{"role": "user", "content": "Hi"}],
             "options": {"max_tokens": 4}}  # fmt: skip
    command = [sys.executable, "-P", "-m", "burnish_engine.cli.main", "serve", "--on", f"ssh:{HOST}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        said = (json.loads(line) for line in server.stdout if line.strip())
        end = next(line for line in said if line["type"] in ("result", "failure"))
        server.stdin.close()
        server.wait(60)
    return end["reply"]["text"]


def test_a_dry_run_starts_nothing(office, tmp_path, capsys):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(dump_recipe(there(tmp_path)), encoding="utf-8")
    before = sorted(office.jobs.rglob("jobs/*"))
    assert main(["submit", str(recipe), "--dry-run", "--timeout", "90m"]) == ExitCode.DONE
    assert HOST in capsys.readouterr().out
    assert not (office.home / "runs").exists()
    assert sorted(office.jobs.rglob("jobs/*")) == before


def test_an_unknown_host_key_is_refused(host, tmp_path, monkeypatch):
    other = SshHost(tmp_path)
    try:
        other.use(monkeypatch)
        other.forget_key()
        with pytest.raises(SetupError, match="Host key verification failed"):
            run(SshShell(HOST), "true")
    finally:
        other.close()


def test_a_host_is_never_taken_for_an_option_and_no_check_is_switched_off(monkeypatch):
    monkeypatch.delenv("BURNISH_SSH_COMMAND", raising=False)
    command = SshShell("office").command("true")
    assert command[-3:] == ["--", "office", "true"]
    assert not [word for word in command if "StrictHostKeyChecking" in word or "UserKnownHosts" in word]
    assert "BatchMode=yes" in command


def test_the_machine_answers_a_program_here(office):
    """Lines of `burnish serve` there, carried by ssh; it ends with its input, and leaves only its environment."""
    command = [sys.executable, "-P", "-m", "burnish_engine.cli.main", "serve", "--on", f"ssh:{HOST}"]
    asked = json.dumps({"method": "machine", "id": "a"}) + "\n"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        server.stdin.write(asked)
        server.stdin.flush()
        said = (json.loads(line) for line in server.stdout if line.strip())
        hello = next(line for line in said if line["type"] != "progress")
        answer = next(said)
        server.stdin.close()
        assert server.wait(60) == 0
    assert hello["type"] == "hello"
    assert (answer["type"], answer["id"]) == ("result", "a")
    assert answer["machine"]["cpu_cores"] >= 1
    assert not [path for path in office.jobs.glob("jobs/*") if path.name.startswith("serve-")]


@pytest.mark.quick_cases(1)
@pytest.mark.skipif(sys.platform == "win32", reason="other machines have a POSIX shell")
@pytest.mark.parametrize("wrong", ["cut", "install", "taken"])
def test_a_send_that_fails_leaves_nothing_and_touches_nothing_else(wrong, tmp_path, monkeypatch):
    """The stream is cut between two files, the environment cannot be made, or a job of that name is there already."""
    monkeypatch.setenv("BURNISH_REMOTE_FOLDER", str(tmp_path / "burnish"))
    monkeypatch.setenv("BURNISH_REMOTE_PYTHON", "no-such-python" if wrong == "install" else sys.executable)
    bundle = make_bundle(there(tmp_path), "run")
    jobs = tmp_path / "burnish" / "jobs"
    if wrong == "cut":
        start = bundle_start(bundle)
        bundle.write_tar = lambda pipe: pipe.write(start)
    elif wrong == "taken":
        (jobs / "burnish-x").mkdir(parents=True)
    with pytest.raises(SetupError):
        send_bundle(LocalShell(), bundle, "burnish-x")
    assert [path.name for path in jobs.iterdir()] == (["burnish-x"] if wrong == "taken" else [])


@pytest.mark.skipif(sys.platform == "win32", reason="other machines have a POSIX shell")
def test_only_the_folder_of_a_job_is_deleted(tmp_path):
    other, job = tmp_path / "my photos", tmp_path / "it's a job"
    for folder in (other, job):
        folder.mkdir()
    (job / "python").symlink_to(tmp_path)
    for folder in (other, job):
        HostFolder(LocalShell(), str(folder)).remove()
    assert (other.exists(), job.exists()) == (True, False)
