"""What runs take is measured, kept, and corrects the predictions of the next ones."""

import mmap
from contextlib import contextmanager, nullcontext

import pytest
import torch

from burnish_engine.advise.facts.past_runs import past_runs
from burnish_engine.contract.errors import DivergedError, ExitCode, SetupError
from burnish_engine.contract.facts.advice import PlanBasis
from burnish_engine.contract.paths import past_runs_file
from burnish_engine.contract.run.events import PlanMade, RunEnded, RunMeasurement, RunStarted, StepDone, Warned
from burnish_engine.hardware.host.peak_memory import held_bytes
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.recorder import Recorder
from burnish_engine.runs.store import create_run, read_recipe
from burnish_engine.train import run, session
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.lifecycle import measure as measure_module
from burnish_engine.train.lifecycle import progress
from burnish_engine.train.lifecycle.measure import Measure
from burnish_engine.train.lifecycle.run_setup import RunSetup
from burnish_engine.train.run import run_training

from support.memory.scarce import scarce
from support.runs.tiny_runs import tiny_recipe

MIB, GIB = 2**20, 2**30
BASIS = PlanBasis(
    device="NVIDIA GeForce RTX 4060, 8 GiB", engine="fast", kind="bf16", memory={"base weights": 9}, tokens_per_s=10.0
)


class Card:
    """What torch and the driver say of a card, bytes."""

    def __init__(self, monkeypatch):
        self.allocated = self.reserved = self.peak = self.held = 0
        self.now, self.asked = 0.0, 0
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: self.allocated)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: self.reserved)
        monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: self.peak)

    def measure(self):
        return Measure(torch.device("cuda", 0), held=self._ask, clock=lambda: self.now)

    def _ask(self):
        self.asked += 1
        return self.held


@pytest.fixture
def card(monkeypatch):
    return Card(monkeypatch)


def test_the_peak_of_the_process_is_torchs_and_what_it_holds_beside(card):
    measure = card.measure()
    card.allocated, card.reserved, card.peak, card.held = 4 * GIB, 3 * GIB, 5 * GIB, 3 * GIB + 500 * MIB
    assert measure.beside() == 500 * MIB
    taken = measure.taken()
    assert taken.process_bytes == 5 * GIB + 500 * MIB, "the driver was not asked at the peak, torch knows it"
    assert (taken.allocated_bytes, taken.reserved_bytes) == (4 * GIB, 5 * GIB)


@pytest.mark.parametrize("held", [None, 0, GIB, 40 * GIB])
def test_a_figure_that_cannot_be_ours_is_not_used(card, held):
    measure = card.measure()
    card.reserved = card.peak = 2 * GIB
    card.held = held
    assert measure.beside() is None
    assert measure.taken().process_bytes == 0


def test_the_driver_is_asked_now_and_then(card):
    measure = card.measure()
    for _ in range(100):
        card.now += 0.02
        measure.step(10, 0.02)
    assert 3 <= card.asked <= 5


def test_speed_is_the_median_without_the_first_steps(card):
    measure = card.measure()
    for seconds in (50.0, 20.0, 10.0, 1.0, 1.0, 1.0, 30.0):
        assert measure.taken().tokens_per_s is None
        measure.step(100, seconds)
    assert measure.taken().tokens_per_s == 100.0


def measured(engine="fast", steps=9):
    made = Measure(torch.device("cpu"))
    made.engine = engine
    for _ in range(steps):
        made.step(100, 1.0)
    return made


def test_what_was_taken_is_kept_with_what_was_predicted():
    assert measured().keep(BASIS, RunMeasurement(process_bytes=7, reserved_bytes=6, tokens_per_s=90.0), "stopped")
    (kept,) = past_runs()
    assert kept.memory == {"base weights": 9}
    assert (kept.device, kept.engine, kept.kind, kept.outcome) == (BASIS.device, "fast", "bf16", "stopped")
    assert (kept.process_bytes, kept.reserved_bytes, kept.measured_tokens_per_s, kept.steps) == (7, 6, 90.0, 9)


def test_without_a_peak_a_processors_figure_from_between_steps_is_not_kept(monkeypatch):
    monkeypatch.setattr(measure_module, "peak_bytes", lambda: None)
    assert measured().keep(BASIS, RunMeasurement(process_bytes=7), "finished")
    assert [run.process_bytes for run in past_runs()] == [0]


def test_what_is_not_comparable_is_not_kept():
    smaller = measured()
    smaller.not_as_planned()
    nothing, taken = measured(steps=0), RunMeasurement(process_bytes=7)
    assert not smaller.keep(BASIS, taken, "finished")
    assert not nothing.keep(BASIS, taken, "stopped")
    assert not measured("plain").keep(BASIS, taken, "finished")
    assert not measured().keep(None, taken, "finished")
    assert not measured().keep(BASIS, RunMeasurement(process_bytes=2**60), "finished")
    assert past_runs() == ()


def events_of(paths, kind):
    return [event for event in read_events(paths.events) if isinstance(event, kind)]


def train(folder, name, **changes):
    paths = create_run(tiny_recipe(folder, **{"max_steps": 8, **changes}), folder / name)
    return paths, run_training(paths)


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_runs_correct_the_next_prediction(tmp_path, engine):
    for name in ("first", "second"):
        paths, outcome = train(tmp_path, name, engine=f'"{engine}"')
        assert outcome.exit_code is ExitCode.DONE
    (plan,), (ended,) = events_of(paths, PlanMade), events_of(paths, RunEnded)
    assert plan.basis.engine == events_of(paths, RunStarted)[0].engine == engine
    assert plan.basis.runs == 1, "the run before had the same shape"
    first, second = past_runs()
    assert plan.tokens_per_s == pytest.approx(first.measured_tokens_per_s, rel=0.01)
    assert second.times["saves"][1] > 0
    assert plan.memory_bytes == sum(plan.basis.memory.values())
    assert ended.measured.process_bytes >= max(event.process_bytes for event in events_of(paths, StepDone)) > 0
    assert [kept.steps for kept in past_runs()] == [8, 8]
    paths, _ = train(tmp_path, "third", engine=f'"{engine}"')
    (corrected,) = events_of(paths, PlanMade)
    assert corrected.basis.runs == 2
    assert corrected.basis.memory == plan.basis.memory
    assert corrected.memory_bytes != plan.memory_bytes
    assert corrected.tokens_per_s == pytest.approx(second.measured_tokens_per_s, rel=0.01)
    checks = {part.name: part.seconds / part.count for part in corrected.times}["checks"]
    assert checks == pytest.approx(second.times["checks"][1], rel=0.01)


@pytest.mark.full
def test_a_run_that_failed_is_not_kept(tmp_path, monkeypatch):
    def diverge(self, result):
        self.setup.measure.step(result.tokens, result.seconds)
        raise DivergedError("It diverged.", "Lower the learning rate.")

    monkeypatch.setattr(session.Session, "_record", diverge)
    paths, outcome = train(tmp_path, "wild")
    assert outcome.exit_code is ExitCode.DIVERGED
    assert events_of(paths, RunEnded)[0].measured.process_bytes > 0
    assert not past_runs_file().exists()


@pytest.mark.full
def test_a_run_that_fell_back_to_a_smaller_plan_says_nothing_about_its_own(tmp_path):
    with scarce((MicroBatchStep, "_backward"), calls=[6]):
        assert train(tmp_path, "smaller")[1].exit_code is ExitCode.DONE
    assert past_runs() == ()
    train(tmp_path, "as planned")
    assert len(past_runs()) == 1


@pytest.mark.full
def test_a_resumed_run_is_not_kept_a_second_time(tmp_path):
    paths = create_run(tiny_recipe(tmp_path, max_steps=8, checkpoint_every=2), tmp_path / "run")

    def stop(event):
        if isinstance(event, StepDone) and event.step == 4:
            send(paths, "stop")

    assert run_training(paths, listener=stop).exit_code is ExitCode.STOPPED
    assert [kept.outcome for kept in past_runs()] == ["stopped"]
    assert run_training(paths).exit_code is ExitCode.DONE
    assert len(past_runs()) == 1


@pytest.mark.full
def test_a_spill_is_told(tmp_path, monkeypatch):
    class Spilled:
        def __init__(self, device, **options):
            self._told = ["The driver moved 1.0 GiB."]

        def step(self, seconds, tokens=0):
            return self._told.pop() if self._told else ""

    monkeypatch.setattr(progress, "SpillWatch", Spilled)
    paths, _ = train(tmp_path, "run", max_steps=3)
    assert [event.message for event in events_of(paths, Warned) if event.code == "spill"] == [
        "The driver moved 1.0 GiB."
    ]


def test_a_processors_peak_counts_what_a_step_gave_back():
    measure = Measure(torch.device("cpu"))
    before = held_bytes()
    with mmap.mmap(-1, 96 * MIB) as block:  # given back before anyone looks; torch's may reuse memory that is held
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1
    assert measure.taken().process_bytes >= before + 64 * MIB
    measure.engine = "plain"
    measure.step(100, 1.0)
    assert measure.keep(BASIS.model_copy(update={"engine": "plain"}), RunMeasurement(process_bytes=7), "finished")
    assert past_runs()[0].process_bytes == 7


def test_the_memory_of_a_gpu_is_read_from_before_ranks_take_some_of_it(tmp_path, monkeypatch):
    """Where the driver tells no process from another, what was used before is taken for that of others."""
    done, gpus = [], [torch.device("cuda", index) for index in range(2)]

    @contextmanager
    def connected(*_):
        done.append("ranks connected")
        yield None

    def reader(device):
        done.append(f"reader of {device}")
        return lambda: 5 * GIB

    def opened(_paths, _recipe, _recorder, tally, **_):
        done.append(tally.held())
        raise SetupError("no further")

    monkeypatch.setattr(run, "started_ranks", connected)
    monkeypatch.setattr(run, "memory_reader", reader)
    monkeypatch.setattr(run, "recorded_hardware", lambda *_: nullcontext())
    paths = create_run(tiny_recipe(tmp_path), tmp_path / "runs")
    outcome = run._run_and_record(paths, read_recipe(paths), None, opened, gpus)
    assert "no further" in outcome.message
    assert done == ["reader of cuda:0", "ranks connected", 5 * GIB]


def test_a_run_measures_by_the_reader_that_its_tally_has(tmp_path):
    paths = create_run(tiny_recipe(tmp_path), tmp_path / "runs")
    tally = progress.Tally(held=lambda: 5 * GIB)
    recipe, recorder = read_recipe(paths), Recorder(paths)
    setup = RunSetup.prepare(paths, recipe, recorder, tally, device=torch.device("cpu"))
    assert setup.measure.held_bytes() == 5 * GIB
