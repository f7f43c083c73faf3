from dataclasses import replace

import pytest

from burnish_app.engine_setup.setup_facts import EngineSetupFacts
from burnish_app.page_states.engine import engine_state
from burnish_engine.contract.units import file_size
from burnish_engine.install.files.meter import FetchReading
from burnish_engine.install.offer import Changes

GB = 10**9
OFFERED = {"offered": "0.2.0", "source": "example.org", "place": "/big", "fetch_bytes": 2 * GB, "disk_bytes": 6 * GB}


def test_before_anything_is_fetched_sizes_place_and_source_are_told():
    state = engine_state(EngineSetupFacts(**OFFERED, free_bytes=50 * GB))
    assert state.phase == "asked"
    text = " ".join(state.lines)
    assert all(part in text for part in (*map(file_size, (2 * GB, 6 * GB, 50 * GB)), "example.org", "/big"))
    assert state.primary.is_enabled
    assert {"place", "bundle_from"} <= state.buttons


def test_without_room_it_cannot_begin_until_another_drive_is_chosen():
    state = engine_state(EngineSetupFacts(**OFFERED, free_bytes=1 * GB))
    assert not state.primary.is_enabled
    assert "place" in state.buttons


def test_while_it_fetches_bytes_rate_and_time_left_are_shown_and_it_can_pause():
    reading = FetchReading(500_000_000, 2 * GB, 25_000_000.0, 60.0)
    state = engine_state(EngineSetupFacts(**OFFERED, doing="fetching", reading=reading))
    assert state.share == pytest.approx(0.25)
    assert all(part in state.lines[0] for part in (*map(file_size, (500_000_000, 2 * GB)), "25.0 MB/s", "60 s"))
    assert state.buttons == {"pause"}
    assert state.primary is None


@pytest.mark.parametrize("stage", ["unpacking", "installing", "trying"])
def test_the_share_of_what_is_not_counted_is_unknown(stage):
    state = engine_state(EngineSetupFacts(**OFFERED, doing=stage, reading=FetchReading(2 * GB, 2 * GB)))
    assert state.has_bar
    assert state.share is None


def test_a_paused_set_up_says_what_is_missing():
    state = engine_state(EngineSetupFacts(**OFFERED, is_paused=True, free_bytes=50 * GB))
    assert state.phase == "paused"
    assert file_size(2 * GB) in state.lines[0]


def test_a_failure_shows_its_reason_and_another_drive_can_be_chosen():
    state = engine_state(EngineSetupFacts(**OFFERED, problem=("The proxy asks.", "Log in.")))
    assert state.phase == "failed"
    assert state.problem == ("The proxy asks.", "Log in.")
    assert state.primary is not None
    assert "place" in state.buttons


@pytest.mark.parametrize("failed", ["looking", "checking", "switching", "moving", "removing", "bundling"])
def test_another_failure_is_not_called_the_set_ups(failed):
    problem = ("The drive is full.", "Free some space.")
    state = engine_state(EngineSetupFacts(in_use="0.1.0 (cpu)", place="/big", problem=problem, failed=failed))
    set_up = engine_state(EngineSetupFacts(in_use="0.1.0 (cpu)", place="/big", problem=problem, failed="fetching"))
    assert state.phase == "failed"
    assert state.headline != set_up.headline
    assert state.primary is not None


def test_what_a_run_needs_is_not_taken_from_under_it():
    facts = EngineSetupFacts(in_use="0.1.0 (cpu)", place="/big", has_runs=True)
    state = engine_state(facts)
    assert state.blocked == {"repair", "move", "remove"}
    assert len(state.lines) == len(engine_state(replace(facts, has_runs=False)).lines) + 1
    assert not engine_state(replace(facts, has_runs=False)).blocked


def test_an_update_says_what_changes_and_leaves_the_old_engine():
    changes = Changes(("Faster.",), {}, (), {f"package{number}": ("1", "2") for number in range(9)})
    facts = EngineSetupFacts(**OFFERED, in_use="0.1.0 (cpu)", is_update=True, changes=changes, free_bytes=50 * GB)
    state = engine_state(facts)
    assert state.lines[0] == "Faster."
    assert "3 more" in state.lines[1]
    assert {"updates", "repair", "move", "remove", "bundle"} <= state.buttons
    assert "roll_back" not in state.buttons


def test_the_engine_before_can_be_gone_back_to():
    state = engine_state(EngineSetupFacts(in_use="0.2.0 (cpu)", former="0.1.0 (cpu)", place="/big"))
    assert state.phase == "done"
    assert "0.1.0" in state.rollback_text
    assert "roll_back" in state.buttons
