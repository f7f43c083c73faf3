"""Terminal and window say phases, stages, plans and outcomes in the same words, which the window translates."""

from string import Formatter
from typing import get_args

import pytest
from app.facts import export_facts, page_facts
from app.facts.run_events import numbered
from app.facts.run_summaries import summary

from burnish_app.look import language
from burnish_app.recipe.plan_text import plan_line, time_text
from burnish_app.wording.export_stages import job_stages
from burnish_app.wording.fidelity_text import gain_text
from burnish_app.wording.guard_text import EarlyStoppingSettings, early_stopping_text
from burnish_app.wording.run_stages import run_stages
from burnish_app.wording.run_text import describe_run
from burnish_engine.cli.training.plan import show_plan
from burnish_engine.cli.training.progress import RunProgress, progress_text
from burnish_engine.contract.facts.advice import FittingRank, TimePart
from burnish_engine.contract.run.events import BestKept, Phase, PhaseChanged, PhaseProgress, ProgressUnit
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.contract.wording import tables
from burnish_engine.export.verify.verdict import verdict_text

TABLES = {
    name: getattr(tables, name)
    for name in ("PHASES", "PROGRESS", "CHECKS", "EXPORT_STAGES", "DOWNLOAD_STAGES", "TIME_PARTS", "FITS", "OUTCOMES")
}
FORMS = [(table, name, form) for table, forms in TABLES.items() for name, form in forms.items()]


def values_of(form):
    """A value for each name of a form, as its format wants it."""
    return {name: 1234 if spec else f"<{name}>" for _, name, spec, _ in Formatter().parse(form) if name}


@pytest.fixture
def marked():
    """The window in a language whose words are those in capitals."""
    language.install(lambda text: "".join(
        literal.upper() + (f"{{{name}{':' + spec if spec else ''}}}" if name else "")
        for literal, name, spec, _ in Formatter().parse(text)
    ))  # fmt: skip
    yield
    language.install(lambda text: text)


def printed(capsys, *events):
    with RunProgress() as progress:
        for event in numbered(list(events)):
            progress.show(event)
    return capsys.readouterr().out


@pytest.mark.parametrize(("table", "name", "form"), FORMS)
def test_every_sentence_is_said_in_both_and_translated_before_its_values_are_put_in(table, name, form, marked):
    values = values_of(form)
    said = tables.Sentence(form, values)
    window = language.say(said)
    assert window.casefold() == str(said).casefold()
    assert window == language.tr(form).format(**values)
    assert all(str(value) in window for value in values.values() if isinstance(value, str))


@pytest.mark.parametrize("table", ["EXPORT_STAGES", "DOWNLOAD_STAGES"])
def test_what_the_engine_wrote_of_a_stage_is_known_by_its_id(table):
    for name, form in TABLES[table].items():
        values = values_of(form)
        assert tables.recognize(form.format(**values), TABLES[table]) == (name, values)
    assert tables.recognize("Something of a later version", TABLES[table]) is None
    assert language.retold("Something of a later version", TABLES[table]) == "Something of a later version"


def test_ids_are_those_of_the_contract():
    assert set(tables.PHASES) == set(get_args(Phase))
    assert set(tables.PROGRESS) == set(get_args(ProgressUnit))
    assert set(tables.CHECKS) == set(get_args(tables.Check))
    assert set(tables.FITS) == set(get_args(tables.Fit))
    assert set(tables.TIME_PARTS) == set(get_args(TimePart.model_fields["name"].annotation))


@pytest.mark.parametrize("phase", get_args(Phase))
def test_a_phase_has_the_same_name_in_both(phase, capsys):
    event = PhaseChanged(phase=phase)
    state = fold_all(RunState(), [event])
    stages = [stage.text for stage in run_stages(state, now=1.0) if stage.status == "now"]
    assert describe_run(summary("running"), state).headline == tables.PHASES[phase]
    assert stages in ([], [tables.FIRST_STEP if phase == "training" else tables.PHASES[phase]])
    shown = printed(capsys, event)
    assert tables.PHASES[phase] in shown or phase == "training", "training has a line for each step"


@pytest.mark.parametrize("check", tables.CHECKS)
def test_a_check_has_the_same_words_in_both(check):
    making = PhaseProgress(done=8, total=14, unit="checks", what=check, seq=1)
    (now,) = [stage for stage in run_stages(fold_all(RunState(), [PhaseChanged(phase="checking"), making]), 1.0)
              if stage.status == "now"]  # fmt: skip
    for words in ("check 9 of 14", tables.CHECKS[check]):
        assert words in now.detail
        assert words in progress_text(making)


@pytest.mark.parametrize("unit", ["rows", "pairs", "layers"])
def test_progress_is_counted_alike(unit):
    assert progress_text(PhaseProgress(done=1200, total=4000, unit=unit)) == f"1,200 of 4,000 {unit}"


def test_the_stages_of_an_export_are_those_that_the_engine_reports():
    for name in ("write", "run", "weigh", "make", "check", "score"):
        what = tables.EXPORT_STAGES[name].format(quant="Q8_0")
        (now,) = [stage.text for stage in job_stages(export_facts.job(what=what), importance=True)
                  if stage.status == "now"]  # fmt: skip
        assert now == what.replace("Scoring", "Checking")


PLANS = {
    "fits": {},
    "barely": {"memory_budget_bytes": 1},
    "misfit": {"fits": False},
    "misfit_rank": {"fits": False, "fitting_rank": FittingRank(key="adapter.rank", rank=4)},
    "misfit_expert_rank": {"fits": False, "fitting_rank": FittingRank(key="adapter.expert_rank", rank=4)},
}


@pytest.mark.parametrize("fit", get_args(tables.Fit))
def test_a_plan_is_judged_in_the_same_words(fit, capsys):
    times = [TimePart(name=name, count=2, seconds=30.0) for name in tables.TIME_PARTS]
    plan = page_facts.plan(times=times, **PLANS[fit])
    show_plan(plan)
    shown = " ".join(capsys.readouterr().out.split())
    verdict = tables.FITS[fit].format(rank=4)
    assert verdict in shown
    assert plan_line(plan).startswith(verdict)
    for line in time_text(plan).splitlines():
        assert line in shown


@pytest.mark.parametrize("kept", [0.5, 1.0, 0.0])
def test_the_gain_that_a_file_keeps_has_the_same_words(kept):
    file = export_facts.quant(gain_kept=kept)
    assert gain_text(file) == verdict_text(file).replace("50.0%", "50 %")


def test_the_kept_step_has_the_same_words(capsys):
    best = BestKept(step=7, loss=1.5, at_step=9, stopped_early=False, seq=1)
    kept = early_stopping_text(fold_all(RunState(), [best]), EarlyStoppingSettings())
    assert kept in " ".join(printed(capsys, best).split())
