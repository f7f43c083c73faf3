"""What a reader concludes from a state file: finished, gone and hanging are different things."""

import pytest

from burnish_engine.contract.run.state import NOT_RESPONDING_AFTER_S, STARTING_S, RunStateFile, observed_status


@pytest.mark.parametrize(
    ("status", "alive", "age_s", "expected"),
    [
        ("running", True, 1.0, "running"),
        ("running", False, 1.0, "interrupted"),
        ("running", True, NOT_RESPONDING_AFTER_S + 1, "not responding"),
        ("paused", True, 1.0, "paused"),
        ("paused", False, 1.0, "interrupted"),
        ("finished", False, 1e6, "finished"),
        ("failed", False, 1e6, "failed"),
        ("queued", False, 1e6, "queued"),
        ("created", False, STARTING_S - 1, "created"),
        ("created", False, STARTING_S + 1, "interrupted"),
        ("created", True, STARTING_S + 1, "created"),
    ],
)
def test_standing(status, alive, age_s, expected):
    state = RunStateFile(run="r", status=status, created=1000.0, heartbeat=1000.0)
    assert observed_status(state, owner_alive=alive, now=1000.0 + age_s) == expected
