"""A recipe trained by Hugging Face Jobs: a local service speaks the protocol, and its jobs really train."""

import json
import threading

import pytest

from burnish_engine.contract.errors import DoesNotFitError, ExitCode, SetupError, UsageError
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.run.commands import Command
from burnish_engine.contract.run.events import CheckpointSaved, RunStarted, StepDone
from burnish_engine.remote.backends.hf import HfBackend
from burnish_engine.remote.backends.hf_client import JobsClient
from burnish_engine.remote.bundle.bundle import make_bundle
from burnish_engine.remote.mirror import Mirror, read_job
from burnish_engine.remote.plan_there import choose, plan_there
from burnish_engine.remote.submit import train_elsewhere
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run, read_recipe, read_state

from support.machines.jobs_server import HARDWARE, TOKEN, JobsServer, until
from support.machines.remote_jobs import UNWATCHED
from support.runs.tiny_runs import losses, of_kind, tiny_recipe

WAITS_S = (0.1, 0.3)


@pytest.fixture
def service(tmp_path_factory, monkeypatch):
    server = JobsServer(tmp_path_factory.mktemp("jobs"))
    server.use(monkeypatch)
    yield server
    server.close()


def backend_of(service, flavor=""):
    return HfBackend("hf", flavor, upload=service.upload, mount=str(service.mount), scratch="@SCRATCH@")


def test_without_network_the_service_is_not_asked_and_the_way_out_is_named(service, monkeypatch):
    monkeypatch.delenv("BURNISH_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SetupError, match="or set BURNISH_OFFLINE=0") as refused:
        backend_of(service).offers()
    assert "HF_HUB_OFFLINE" in refused.value.remedy
    assert refused.value.exit_code == ExitCode.ENVIRONMENT


def there(tmp_path, **train):
    recipe = tiny_recipe(tmp_path, rows=24, extra=UNWATCHED, **train)
    devices = DevicesSection(where="hf:cpu-basic", kind="cpu", threads=1, timeout_hours=1.0)
    return recipe.model_copy(update={"devices": devices})


@pytest.mark.full
def test_a_run_survives_drops_and_preemption_and_comes_back(service, tmp_path):
    """The log is cut and repeats itself; the machine is taken back; the second attempt continues from the bucket."""
    paths = create_run(there(tmp_path, epochs=1000.0, checkpoint_every=15), tmp_path / "run")
    service.cut_after += [3, 9, 20]
    told, taken = threading.Event(), threading.Event()
    started = []

    def listen(event):
        if isinstance(event, RunStarted):
            started.append(event)
        if isinstance(event, CheckpointSaved) and not taken.is_set():
            until(lambda: list(service.bucket.glob("*/run/state.json")))  # it is saved last
            taken.set()
            service.preempt("job0")
        if isinstance(event, StepDone) and len(started) == 2 and not told.is_set():
            told.set()
            send(paths, "stop")

    outcome = train_elsewhere(
        paths,
        read_recipe(paths),
        note=lambda _text: None,
        listener=listen,
        backend=backend_of(service, "cpu-basic"),
        waits_s=WAITS_S,
    )
    assert (outcome.status, outcome.exit_code) == ("stopped", ExitCode.STOPPED)
    assert not service.cut_after
    assert service.jobs["job0"].attempts == 2
    assert read_job(paths).attempt == 2
    events = list(read_events(paths.events))
    assert [event.seq for event in events] == list(range(len(events)))
    assert of_kind(paths, RunStarted)[1].resumed_from_step
    assert list(losses(paths)) == list(range(1, read_state(paths).step + 1))
    assert (paths.adapter / "adapter_model.safetensors").is_file()
    assert not holding_token(paths.root, service.bucket, service.folder)


def holding_token(*folders):
    return [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and TOKEN.encode() in path.read_bytes()
    ]


@pytest.mark.full
def test_the_job_says_what_it_needs_and_gets_no_secret_for_an_open_model(service, tmp_path):
    backend = backend_of(service)
    bundle = make_bundle(there(tmp_path), "run", timeout_s=7200)
    offer = next(offer for offer in backend.offers() if offer.name == "t4-small")
    job = backend.submit(bundle, offer, "burnish-x")
    backend.send(job, Command(name="stop_now", t=0.0))
    spec = service.specs[0]
    assert (spec["flavor"], spec["timeoutSeconds"], spec["attempts"]) == ("t4-small", 7200, 3)
    assert spec["labels"]["burnish-run"] == "burnish-x"
    assert "secrets" not in spec
    assert TOKEN not in json.dumps(spec)
    assert job.url.endswith(f"/{job.id}")


def test_a_gated_model_gets_the_token_as_a_secret_alone(service, tmp_path):
    backend = backend_of(service)
    recipe = there(tmp_path)
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"path": "somebody/unknown-model"})})
    job = backend.submit(make_bundle(recipe, "run"), backend.offers()[0], "burnish-y")
    backend.send(job, Command(name="stop_now", t=0.0))
    spec = service.specs[0]
    assert spec.pop("secrets") == {"HF_TOKEN": TOKEN}
    assert TOKEN not in json.dumps(spec)


def test_machines_and_prices_are_the_services_own(service, tmp_path):
    offers = backend_of(service).offers()
    assert [(offer.name, offer.gpus) for offer in offers] == [("t4-small", 1), ("a100x4", 4)]
    assert offers[0].usd_per_hour == pytest.approx(0.40002)
    assert offers[1].machine.gpus[0].vram_total_bytes == 80 * 2**30
    recipe = there(tmp_path).model_copy(update={"devices": DevicesSection(where="hf")})
    plans = plan_there(recipe, offers)
    assert choose(plans) == min(plans, key=lambda one: one.offer.usd_per_hour / one.plan.tokens_per_s)
    assert choose(plan_there(recipe, offers, gpus=2)).offer.name == "a100x4"
    with pytest.raises(SetupError, match="8 GPUs"):
        plan_there(recipe, offers, gpus=8)
    with pytest.raises(UsageError, match="t4-small"):
        backend_of(service, "t5").offers()


def test_what_fits_nowhere_is_refused_before_anything_is_sent(service, tmp_path, monkeypatch):
    monkeypatch.setitem(HARDWARE[0], "ram", "0.1 GB")
    paths = create_run(there(tmp_path), tmp_path / "run")
    with pytest.raises(DoesNotFitError):
        train_elsewhere(paths, read_recipe(paths), note=lambda _text: None, backend=backend_of(service, "cpu-basic"))
    assert not service.specs
    assert not list(service.bucket.iterdir())


def test_a_refused_token_is_not_repeated_in_the_message(service, monkeypatch):
    with pytest.raises(SetupError) as refused:
        JobsClient("hf_wrong").ask("GET", "/api/whoami-v2")
    assert "hf_wrong" not in str(refused.value)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("command", "status"), [("stop", "stopped"), ("stop_now", "stopped"), ("suspend", "suspended")]
)
def test_a_job_that_waits_for_a_machine_is_canceled_and_costs_nothing(service, tmp_path, command, status):
    service.has_machines = False
    paths = create_run(there(tmp_path), tmp_path / "run")
    late = threading.Timer(30, lambda: setattr(service, "has_machines", True))  # so that a job that waits on ends

    def note(text):
        if "Waits" in text:
            send(paths, command)
            late.start()

    outcome = train_elsewhere(
        paths, read_recipe(paths), note=note, backend=backend_of(service, "cpu-basic"), waits_s=WAITS_S
    )
    late.cancel()
    job, state = service.jobs["job0"], read_state(paths)
    assert (job.stage, job.attempts) == ("CANCELED", 0)
    assert (outcome.status, outcome.exit_code) == (status, ExitCode.STOPPED)
    assert (state.status, state.exit_code, state.step, state.pid) == (status, ExitCode.STOPPED, 0, None)
    assert "waited" in state.message


@pytest.mark.full
def test_a_job_that_was_canceled_begins_again_with_nothing_of_its_end(service, tmp_path):
    service.has_machines = False
    backend = backend_of(service, "cpu-basic")
    paths = create_run(there(tmp_path), tmp_path / "run")

    def leave(text):
        if "Waits" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_elsewhere(paths, read_recipe(paths), note=leave, backend=backend, waits_s=WAITS_S)
    end = backend.send(read_job(paths), Command(name="stop", t=0.0))  # nobody follows it
    assert (end.status, end.exit_code) == ("stopped", ExitCode.STOPPED)
    until(lambda: service.jobs["job0"].stage == "CANCELED")
    Mirror(paths, read_job(paths)).end("stopped", int(ExitCode.STOPPED), end.message)
    service.has_machines = True
    again = train_elsewhere(paths, read_recipe(paths), note=lambda _text: None, backend=backend, waits_s=WAITS_S)
    assert (again.status, read_state(paths).status) == ("finished", "finished")
    assert len(service.jobs) == 2


@pytest.mark.full
def test_a_job_that_is_canceled_while_it_trains_was_stopped_and_did_not_fail(service, tmp_path):
    paths = create_run(there(tmp_path, epochs=1000.0), tmp_path / "run")

    def listen(event):
        if isinstance(event, StepDone) and event.step == 2:
            send(paths, "stop_now")

    backend = backend_of(service, "cpu-basic")
    outcome = train_elsewhere(
        paths, read_recipe(paths), note=lambda _text: None, listener=listen, backend=backend, waits_s=WAITS_S
    )
    assert service.jobs["job0"].stage == "CANCELED"
    assert (outcome.status, read_state(paths).status) == ("stopped", "stopped")
