"""Training that goes wrong, in every way there is a check for: the guard ends the run and names what is wrong."""

import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.run.events import GuardReported, StepDone
from burnish_engine.runs.card import read_card
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run, read_state
from burnish_engine.train.run import run_training

from support.runs import broken_data, broken_model
from support.runs.tiny_runs import tiny_recipe

BEFORE, EARLY, LATER, END = "before", "after_warmup", "training", "end"
BOTH = {
    broken_model.no_gradient: ("zero_gradient", BEFORE),
    broken_model.gradient_lost_later: ("zero_gradient", LATER),
    broken_model.detached_stack: ("detached", BEFORE),
    broken_model.detached_half: ("detached", EARLY),
    broken_model.idle_optimizer: ("unchanged", EARLY),
    broken_model.no_rate: ("learning_rate", LATER),
    broken_model.rate_lost_on_the_way: ("unchanged", EARLY),
    broken_model.nudged_base: ("base_changed", END),
    broken_model.nudged_norm: ("base_changed", EARLY),
    broken_model.unused_adapter: ("same_output", None),
    broken_model.adapter_lost_at_the_end: ("same_output", END),
    broken_model.zero_loss: ("zero_loss", LATER),
    broken_model.zero_loss_in_the_pass: ("zero_loss", BEFORE),
    broken_model.constant_loss: ("constant_loss", LATER),
    broken_data.no_labels: ("no_targets", BEFORE),
    broken_data.no_labels_later: ("no_targets", None),
    broken_data.unshifted_labels: ("labels", BEFORE),
    broken_data.twice_shifted_labels: ("labels", BEFORE),
    broken_data.labels_shifted_by_the_engine: ("labels", BEFORE),
    broken_data.labels_unshifted_by_the_engine: ("labels", BEFORE),
    broken_data.end_stripped_from_labels: ("end_token", BEFORE),
    broken_data.padded_rows: ("padding", BEFORE),
    broken_data.padding_learned_by_the_engine: ("padding", BEFORE),
    broken_data.padding_counted: ("padding", LATER),
    broken_data.padding_counted_as_learned: ("padding", LATER),
    broken_data.merged_documents: ("leak", BEFORE),
    broken_data.documents_merged_by_the_engine: ("leak", BEFORE),
}
IN_THE_DATA = (  # before any engine: of these each is tried in one of them
    broken_data.no_labels, broken_data.no_labels_later, broken_data.unshifted_labels, broken_data.twice_shifted_labels,
    broken_data.end_stripped_from_labels, broken_data.padded_rows, broken_data.merged_documents,
)  # fmt: skip
CASES = [(engine, spoil) for engine in ("fast", "plain") for spoil in BOTH if spoil not in IN_THE_DATA]
CASES += [(("fast", "plain")[index % 2], spoil) for index, spoil in enumerate(IN_THE_DATA)]
SHIFTED = {"unshifted_labels", "twice_shifted_labels", "labels_shifted_by_the_engine", "labels_unshifted_by_the_engine"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sabotage")


@pytest.fixture
def run(folder, monkeypatch, request):
    """Run the tiny recipe with something spoiled: (engine, sabotage, settings) -> paths and outcome."""
    count = iter(range(99))

    def run(engine, spoil, extra="", **settings):
        name = request.node.name.replace("/", "-")
        settings = {"max_steps": 12, "epochs": 9.0, "checkpoint_every": 0, **settings}
        recipe = tiny_recipe(folder, engine=f'"{engine}"', extra=extra, **settings)
        paths = create_run(recipe, folder / f"{name} {next(count)}")
        with monkeypatch.context() as patch:
            spoil(patch, engine)
            return paths, run_training(paths)

    return run


def reports(paths):
    return [event for event in read_events(paths.events) if isinstance(event, GuardReported)]


@pytest.mark.quick_cases(16)
@pytest.mark.parametrize(("engine", "spoil"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_the_guard_names_what_is_wrong(run, engine, spoil):
    check, when = BOTH[spoil]
    paths, outcome = run(engine, spoil)
    last = reports(paths)[-1]
    assert (last.check, last.verdict) == (check, "not_training"), last.sentence
    assert when in (None, last.when)
    assert outcome.exit_code == ExitCode.DIVERGED
    assert outcome.message == f"{last.sentence} {last.cause} {last.remedy}"
    state, card = read_state(paths), read_card(paths)
    assert state.verdict == card.guard.sentence == last.sentence
    assert (card.guard.check, card.guard.cause, card.guard.remedy) == (check, last.cause, last.remedy)
    assert check not in card.guard.passed
    assert not paths.adapter.exists()
    assert last.sentence.startswith("The labels are shifted by one") == (spoil.__name__ in SHIFTED)


@pytest.mark.full
def test_an_adapter_taken_out_of_training_is_detached(run):
    paths, outcome = run("plain", broken_model.frozen_by_mistake)
    assert outcome.exit_code == ExitCode.DIVERGED
    assert reports(paths)[-1].check == "detached"
    assert "layers.0.mlp.up_proj" in outcome.message


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_rows_without_an_end_are_a_warning(run, engine):
    """They can be learned; the model will not stop by itself."""
    paths, outcome = run(engine, broken_data.end_never_learned, max_steps=4)
    assert outcome.exit_code == ExitCode.DONE
    assert {(event.check, event.verdict) for event in reports(paths)} == {("end_token", "suspicious")}
    assert read_card(paths).guard.check == "end_token"
    assert read_state(paths).suspicious, "a window may call for a person"


def test_an_adapter_that_reaches_something_else_than_planned_is_a_warning(run):
    paths, outcome = run("fast", broken_model.other_layers_planned, max_steps=2)
    assert outcome.exit_code == ExitCode.DONE
    assert {(event.check, event.verdict) for event in reports(paths)} == {("coverage", "suspicious")}
    assert "convolution" in read_card(paths).guard.sentence


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_without_probes_the_steps_alone_tell_much(run, engine):
    for spoil, check in (
        (broken_model.no_gradient, "zero_gradient"),
        (broken_model.zero_loss_in_the_pass, "zero_loss"),
    ):
        paths, outcome = run(engine, spoil, extra="[guard]\nprobes = false\n")
        assert outcome.exit_code == ExitCode.DIVERGED
        assert reports(paths)[-1].check == check


def test_a_run_may_be_told_to_go_on(run):
    paths, outcome = run("fast", broken_model.no_gradient, extra='[guard]\naction = "warn"\n', max_steps=4)
    assert outcome.exit_code == ExitCode.DONE
    assert {event.verdict for event in reports(paths)} == {"not_training"}
    assert {event.check for event in reports(paths)} == {"zero_gradient"}  # which explains the others
    assert read_state(paths).verdict.startswith("There is no gradient")


@pytest.mark.full
def test_a_run_may_be_told_not_to_look(run):
    paths, outcome = run("fast", broken_model.no_gradient, extra='[guard]\naction = "off"\n', max_steps=4)
    assert outcome.exit_code == ExitCode.DONE
    assert reports(paths) == []
    assert read_card(paths).guard is None


@pytest.mark.full
def test_a_short_run_is_judged_at_its_end(run):
    for spoil, check in ((broken_model.no_rate, "learning_rate"), (broken_model.idle_optimizer, "unchanged")):
        paths, outcome = run("fast", spoil, max_steps=2)
        assert outcome.exit_code == ExitCode.DIVERGED, check
        assert (reports(paths)[-1].check, reports(paths)[-1].when) == (check, "end")
        assert len([event for event in read_events(paths.events) if isinstance(event, StepDone)]) == 2
