"""What the page Export shows of a run and of its export."""

import itertools

import pytest
from app.facts import export_facts

from burnish_app.page_states.export import notice, page_state
from burnish_app.state.run_folder import RunFolder

TRAINED = RunFolder(name="desk", title="desk", trained=True)
JOBS = {
    "none": None,
    "running": export_facts.job(),
    "canceled": export_facts.job("canceled"),
    "failed": export_facts.job("failed", message="The disk is full."),
    "refused": export_facts.job("failed", message="One file was refused.", report=export_facts.report(refused=True)),
    "finished": export_facts.job("finished", report=export_facts.report()),
}
USUAL = {"is_complete": True, "is_typed": True, "knows_job": True, "is_starting": False, "wants_more": False}


def shown(job=None, folder=TRAINED, **changes):
    return page_state(folder, job, **(USUAL | changes))


def test_without_a_trained_run_only_the_way_to_one_is_seen():
    state = shown(folder=RunFolder())
    assert (state.parts, state.status) == ({"empty"}, "empty")
    assert not state.primary.is_enabled


@pytest.mark.parametrize(
    ("name", "status", "parts"),
    [
        ("none", "ready", {"choices", "sizes"}),
        ("running", "busy", {"progress", "to_come"}),
        ("canceled", "ready", {"choices", "sizes"}),
        ("failed", "attention", {"choices", "sizes"}),
        ("refused", "attention", {"choices", "sizes", "fidelity"}),
        ("finished", "done", {"choices", "sizes", "fidelity"}),
    ],
)
def test_each_state_of_an_export_has_its_parts(name, status, parts):
    state = shown(JOBS[name])
    assert (state.status, state.parts) == (status, parts)
    assert state.fills == (name == "running")


def test_files_are_seen_once_there_are_any_and_no_export_goes_on():
    with_files = RunFolder(name="desk", title="desk", trained=True, lm_studio=True)
    assert "files" in shown(folder=with_files).parts
    done = shown(JOBS["finished"], with_files)
    assert (done.parts, done.primary.does) == ({"files", "fidelity"}, "choose")
    more = shown(JOBS["finished"], with_files, wants_more=True)
    assert (more.parts, more.primary.does) == ({"files", "fidelity", "choices", "sizes"}, "export")
    assert "files" not in shown(JOBS["running"], with_files).parts


def test_an_adapter_has_no_types_whose_sizes_are_shown():
    assert "sizes" not in shown(is_typed=False).parts


def test_an_export_starts_only_where_all_it_needs_is_known_and_none_goes_on():
    for job, *values in itertools.product(JOBS, *[(True, False)] * 5):
        trained, complete, typed, knows, starting = values
        folder = TRAINED if trained else RunFolder()
        state = shown(JOBS[job], folder, is_complete=complete, is_typed=typed, knows_job=knows, is_starting=starting)
        free = job != "running" and not starting
        assert state.primary.is_enabled == (trained and complete and knows and free)
        assert (state.status == "busy") == (not free)
        assert not state.primary.is_enabled or "choices" in state.parts, "what would be exported is seen"


def test_whether_all_files_are_safe_stands_beside_the_name():
    pills = {name: shown(job).pill[0] for name, job in JOBS.items()}
    assert len({pills["running"], pills["refused"], pills["finished"], ""}) == 4
    assert pills["none"] == pills["failed"] == pills["canceled"] == ""


def test_an_end_that_was_seen_is_told_once():
    going = JOBS["running"]
    assert notice(going, JOBS["canceled"]).kind == "info"
    assert notice(None, JOBS["canceled"]) is None
    assert notice(going, JOBS["finished"]).what == "", "a banner of before goes"
    assert notice(None, JOBS["finished"]) is None
    for before in (going, None):
        told = notice(before, JOBS["failed"])
        assert (told.kind, told.what) == ("error", "The disk is full.")
        assert notice(before, JOBS["refused"]) is None, "its report says it"
        assert notice(before, going) is None


def test_a_proven_file_that_is_not_on_the_disk_is_named_beside_the_button_that_writes_it():
    report = JOBS["finished"].report
    assert report.files[0].file in shown(JOBS["finished"]).note
    there = RunFolder(name="desk", title="desk", trained=True, exported=tuple(file.file for file in report.files))
    assert shown(JOBS["finished"], there).note == ""
    assert shown().note == shown(JOBS["running"]).note == ""
