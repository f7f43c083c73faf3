"""Handing a run over: it counts as alive meanwhile, and a run that cannot be handed over says why."""

import time

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import DoesNotFitError, ExitCode, SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.remote.backends.backend import DroppedError, Offer
from burnish_engine.remote.backends.machines import service_machine
from burnish_engine.remote.mirror import read_job
from burnish_engine.remote.plan_there import choose, plan_there
from burnish_engine.remote.submit import job_name, train_elsewhere
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run, read_recipe, summarize

from support.machines.remote_jobs import Scripted, end, step
from support.runs.tiny_runs import tiny_recipe

WAITS_S = (0.01,)


@pytest.fixture
def paths(tmp_path):
    recipe = tiny_recipe(tmp_path, rows=8)
    return create_run(recipe.model_copy(update={"devices": DevicesSection(where="ssh:office")}), tmp_path / "run")


class Taking(Scripted):
    """A machine that takes the run, and notes what the run's folder says meanwhile."""

    def __init__(self, paths, *connections, refuses=None):
        super().__init__(*connections)
        self.paths, self.refuses, self.seen, self.names, self.released = paths, refuses, [], [], 0

    def offers(self):
        return [Offer("office", service_machine("RTX 4090", 1), usd_per_hour=0.5, gpus=1)]

    def submit(self, bundle, offer, name):
        self.seen.append(summarize(self.paths))
        self.names.append(name)
        if self.refuses:
            raise self.refuses
        return RemoteJob(where="ssh:office", id="7", folder=f"/jobs/{name}")

    def release(self, _job):
        self.released += 1


def hand_over(paths, backend):
    return train_elsewhere(paths, read_recipe(paths), note=lambda _text: None, backend=backend, waits_s=WAITS_S)


def test_a_run_counts_as_alive_while_it_is_sent_and_is_given_back_at_the_end(paths):
    backend = Taking(paths, [step(1), end()])
    assert hand_over(paths, backend).status == "finished"
    assert (backend.seen[0].status, bool(backend.seen[0].state.message)) == ("running", True)
    assert backend.released == 1
    assert summarize(paths).status == "finished"
    job = read_job(paths)
    assert (job.usd_per_hour, job.gpu, job.timeout_s) == (0.5, "1 x RTX 4090", 24 * 3600)


@pytest.mark.full
def test_a_stop_while_the_run_is_sent_reaches_the_job(paths):
    class Slow(Taking):
        def submit(self, bundle, offer, name):
            send(self.paths, "stop")
            return super().submit(bundle, offer, name)

        def lines(self, _job, _position):
            yield step(1)
            for _ in range(500):
                if self.sent:
                    break
                time.sleep(0.02)
            yield end("stopped")

    backend = Slow(paths)
    hand_over(paths, backend)
    assert [command.name for command in backend.sent] == ["stop"]


@pytest.mark.full
def test_what_was_stopped_is_not_given_back(paths):
    backend = Taking(paths, [step(1), end("stopped")])
    assert hand_over(paths, backend).status == "stopped"
    assert backend.released == 0


@pytest.mark.full
@pytest.mark.parametrize("error", [SetupError("It refuses."), DroppedError("cut")])
def test_a_run_that_could_not_be_sent_is_not_begun(paths, error):
    backend = Taking(paths, refuses=error)
    with pytest.raises(SetupError) as raised:
        hand_over(paths, backend)
    assert summarize(paths).status == "created"
    assert read_job(paths) is None
    # Nobody knows whether a job was started when the connection broke: its name is said.
    assert (backend.names[0] in str(raised.value)) == isinstance(error, DroppedError)


def test_a_run_that_ended_there_and_cannot_be_begun_again_keeps_its_end(paths):
    backend = Taking(paths, [step(1), end("stopped")])
    hand_over(paths, backend)

    class Unreachable(Taking):
        def restart(self, _job):
            raise DroppedError("cut")

    with pytest.raises(SetupError):
        hand_over(paths, Unreachable(paths))
    assert summarize(paths).status == "stopped"  # else the next resume would look for a job that is over


def test_a_run_from_the_window_that_cannot_be_handed_over_fails_with_its_reason(paths, monkeypatch):
    monkeypatch.setenv("BURNISH_SSH_COMMAND", "/nowhere/ssh")
    assert main(["runs", "resume", str(paths.root), "--queue"]) == ExitCode.ENVIRONMENT
    found = summarize(paths)
    assert (found.status, found.state.exit_code) == ("failed", ExitCode.ENVIRONMENT)
    assert "ssh" in found.state.message


def test_a_run_that_began_elsewhere_keeps_its_number_of_gpus(paths, capsys):
    hand_over(paths, Taking(paths, [step(1), end("stopped")]))
    assert main(["runs", "resume", str(paths.root), "--gpus", "2"]) == ExitCode.USAGE
    assert "--gpus 2" in capsys.readouterr().err
    assert summarize(paths).status == "stopped"


def test_names_of_jobs_are_plain_and_differ():
    names = {job_name("Mein Lauf -- öß; rm -rf /") for _ in range(20)}
    assert len(names) == 20
    assert all(name.replace("-", "").isalnum() and name.isascii() and len(name) < 64 for name in names)


def test_the_time_there_has_room_and_keeps_to_what_the_place_allows(tmp_path):
    recipe = tiny_recipe(tmp_path, rows=8)
    offer = Offer("short", service_machine("A100", 1, memory_gib=80), gpus=1, longest_s=3600)
    plan = choose(plan_there(recipe, [offer]))
    assert plan.timeout_s(0.5) == 1800
    assert plan.timeout_s(5.0) == plan.timeout_s(0.0) == 3600


def test_what_fits_nowhere_is_refused_unless_it_is_wanted_anyway(tmp_path):
    recipe = tiny_recipe(tmp_path, rows=8).model_copy(update={"devices": DevicesSection()})
    tiny = service_machine("RTX 4090", 1)
    gpu = tiny.gpus[0].model_copy(update={"vram_free_bytes": 2**20})
    plans = plan_there(recipe, [Offer("small", tiny.model_copy(update={"gpus": [gpu]}), gpus=1)])
    with pytest.raises(DoesNotFitError, match="small"):
        choose(plans)
    assert choose(plans, anyway=True).offer.name == "small"
