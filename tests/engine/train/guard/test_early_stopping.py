"""Early stopping: the run ends where the held-out loss does not improve, and its result is the best evaluation's."""

import json
import random

import pytest

from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.recipe.recipe_evaluation import EvaluationSection
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.events import BestKept, EvaluationDone, GuardReported, StepDone
from burnish_engine.runs.card import read_card
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run, read_state
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.lifecycle.early_stopping import BestSoFar, EarlyStopping
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.run import run_training

from support.models.tiny import write_jsonl
from support.runs.tiny_runs import evaluations, losses, of_kind, tiny_recipe, trained

ENGINES = ["fast", "plain"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("early")


@pytest.fixture
def made(folder, request):
    count = iter(range(99))
    name = request.node.name.replace("/", "-")

    def make(engine, *, patience=2, every=2, adapter=None, least=0.0, **settings):
        settings = {"max_steps": 30, "epochs": 19.0, **settings}
        extra = f"[evaluation]\nevery = {every}\npatience = {patience}\nmin_improvement = {least}\n"
        recipe = tiny_recipe(folder, engine=f'"{engine}"', extra=extra, **settings)
        recipe = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update=adapter or {})})
        return create_run(recipe, folder / f"{name} {next(count)}")

    return make


@pytest.fixture
def held_out(monkeypatch):
    """Held-out losses are as given, by their number: (list) -> None. The first is that before training."""

    def set_to(by_step):
        for owner in (FastEngine, PlainEngine):
            real = owner.held_out_loss

            def loss(self, request, real=real):
                _, count = real(self, request)
                return by_step(self), count

            monkeypatch.setattr(owner, "held_out_loss", loss)

    return set_to


def curve(values):
    """Losses by the number of steps taken, whoever asks and however often."""

    def by_step(engine):
        if isinstance(engine, FastEngine):
            step = int(engine.model.optimizer.counters[0])
        else:
            step = engine._step if hasattr(engine, "_step") else 0
        return values[step]

    return by_step


FALLS_THEN_RISES = {0: 6.0, 2: 5.0, 4: 4.5, 6: 4.6, 8: 4.7, 10: 4.8, 12: 4.9}


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_it_stops_and_keeps_the_best(made, held_out, engine):
    held_out(curve(FALLS_THEN_RISES))
    paths, short = made(engine), made(engine, patience=0)
    outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DONE, 8)
    for part in ("2 evaluations", "stopped early", "step 4 (4.5000 nats)"):
        assert part in outcome.message
    assert read_state(paths).status == "finished"
    best = of_kind(paths, BestKept)
    assert [(event.step, event.loss, event.at_step, event.stopped_early) for event in best] == [(4, 4.5, 8, True)]
    result = read_card(paths).result
    assert (result.step, result.best_step, result.best_loss) == (8, 4, 4.5)

    def stop(event):
        if isinstance(event, StepDone) and event.step == 4:
            send(short, "stop")

    run_training(short, listener=stop)
    assert trained(paths) == trained(short)  # what four steps make
    config = json.loads((paths.adapter / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA"


@pytest.mark.full
@pytest.mark.parametrize(("engine", "stops"), [("fast", (2, 7)), ("plain", (5,))])
def test_resumed_at_any_time_it_finds_the_same(made, held_out, engine, stops):
    held_out(curve(FALLS_THEN_RISES))
    whole = made(engine)
    run_training(whole)
    for stop_at in stops:
        cut = made(engine)

        def stop(event, stop_at=stop_at, cut=cut):
            if isinstance(event, StepDone) and event.step == stop_at:
                send(cut, "stop_now" if stop_at == 5 else "stop")

        assert run_training(cut, listener=stop).exit_code == ExitCode.STOPPED
        assert run_training(cut).exit_code == ExitCode.DONE
        assert losses(cut) == losses(whole)
        assert evaluations(cut) == evaluations(whole)
        assert trained(cut) == trained(whole)
        assert of_kind(cut, BestKept)[-1].step == 4


@pytest.mark.full
def test_a_run_that_is_over_does_not_train_on(made, held_out, monkeypatch):
    """Killed after its last checkpoint, before its end."""
    from burnish_engine.train.lifecycle.early_stopping import EarlyStopping

    held_out(curve(FALLS_THEN_RISES))
    paths = made("fast")

    def killed(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EarlyStopping, "place", killed)
        assert run_training(paths).exit_code == ExitCode.STOPPED
    outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DONE, 8)
    assert max(losses(paths)) == 8
    assert read_card(paths).result.best_step == 4


@pytest.mark.full
def test_a_run_that_keeps_improving_makes_all_steps(made, held_out):
    held_out(lambda engine: 6.0 - 0.01 * int(engine.model.optimizer.counters[0]))
    paths = made("fast", max_steps=8)
    outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step, outcome.message) == (ExitCode.DONE, 8, "")
    assert not of_kind(paths, BestKept)
    assert read_card(paths).result.best_step is None
    again = made("fast", max_steps=8, least=0.05)  # too little by itself
    assert (run_training(again).step, of_kind(again, BestKept)[0].step) == (6, 2)


@pytest.mark.full
def test_the_last_step_need_not_be_the_best(made, held_out):
    held_out(curve({**FALLS_THEN_RISES, 4: 4.5, 6: 4.6}))
    paths = made("fast", max_steps=6)
    assert run_training(paths).message == ""
    kept = of_kind(paths, BestKept)[0]
    assert (kept.step, kept.at_step, kept.stopped_early) == (4, 6, False)


@pytest.mark.full
def test_a_stopped_run_holds_the_best_so_far(made, held_out):
    held_out(curve(FALLS_THEN_RISES))
    paths = made("fast")

    def stop(event):
        if isinstance(event, StepDone) and event.step == 7:
            send(paths, "stop")

    run_training(paths, listener=stop)
    kept = of_kind(paths, BestKept)[0]
    assert kept.step == read_card(paths).result.best_step == 4
    assert read_state(paths).evaluation_loss == kept.loss


@pytest.mark.full
def test_only_what_a_checkpoint_may_need_is_kept(made, held_out):
    held_out(lambda engine: 6.0 - 0.01 * int(engine.model.optimizer.counters[0]))
    paths = made("fast", max_steps=18, keep_checkpoints=1)
    run_training(paths)
    assert sorted(folder.name for folder in paths.checkpoints.glob("best-*")) == ["best-000018"]


def test_the_best_of_every_checkpoint_that_is_left_stays(tmp_path):
    for step in (2, 4, 8, 12):
        (tmp_path / f"best-{step:06d}").mkdir()
    early = EarlyStopping(EvaluationSection(every=2, patience=3), tmp_path)
    early.best = BestSoFar(step=12, loss=1.0)
    early.prune([4, None])
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["best-000004", "best-000012"]


def test_a_whole_model_is_kept_as_well(made, held_out):
    held_out(curve(FALLS_THEN_RISES))
    paths = made("plain", adapter={"method": "full"}, learning_rate=5e-4)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert of_kind(paths, BestKept)[0].step == 4
    assert (paths.root / "model" / "model.safetensors").is_file()
    assert read_card(paths).result.trained == "model"


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_a_rising_held_out_loss_is_told_once(made, held_out, engine):
    """The training loss falls meanwhile, and nobody asked to stop."""
    held_out(curve({0: 6.0, 4: 5.0, 8: 5.2, 12: 5.4, 16: 5.6, 20: 5.8}))
    paths = made(engine, patience=0, every=4, max_steps=20, rows=12)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert len(of_kind(paths, EvaluationDone)) == 6
    found = [event for event in of_kind(paths, GuardReported) if event.check == "overfitting"]
    assert (found[0].step, found[0].when, found[0].verdict) == (12, "training", "suspicious")
    assert found[0].sentence.startswith("The held-out loss rises (5.000 to 5.400) while the training loss falls (")
    assert [event.when for event in found] == ["training", "end"]


def noise(rows, seed):
    """Conversations of which nothing can be learned but each by heart."""
    letters = random.Random(seed)

    def text(length):
        return "".join(letters.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(length))

    return [
        {"messages": [{"role": "user", "content": text(12)}, {"role": "assistant", "content": text(60)}]}
        for _ in range(rows)
    ]


@pytest.mark.full
def test_rows_learned_by_heart_are_told(tmp_path):
    """A real run on a few rows of noise: its own loss falls, that of other noise rises."""
    extra = "[evaluation]\nevery = 10\n"
    recipe = tiny_recipe(tmp_path, epochs=40.0, engine='"plain"', learning_rate=1e-2, extra=extra)
    write_jsonl(tmp_path / "train.jsonl", noise(4, 1))
    write_jsonl(tmp_path / "held.jsonl", noise(8, 2))
    whole = recipe.adapter.model_copy(update={"method": "full"})
    paths = create_run(recipe.model_copy(update={"adapter": whole}), tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    held, own = list(evaluations(paths).values()), list(losses(paths).values())
    assert own[-1] < 0.5 * own[0]
    assert held[-1] > min(held) + 0.5
    found = [event for event in of_kind(paths, GuardReported) if event.check == "overfitting"]
    assert [event.verdict for event in found][:1] == ["suspicious"]


def test_patience_without_evaluations_is_refused():
    with pytest.raises(UsageError, match="patience \\(3\\) counts evaluations, and every = 0 makes none on the way"):
        parse_recipe("[evaluation]\npatience = 3\n")
