"""Places to train at that are offered."""

from burnish_app.state import known_places as module
from burnish_app.state.known_places import known_places


def test_places_that_were_reached_or_used_come_after_this_machine_once_each(monkeypatch):
    monkeypatch.setattr(module, "_is_installed", lambda _program: False)
    places = known_places(["ssh:office", "hf"], ["", "ssh:lab", "ssh:office"])
    assert places == ["here", "ssh:office", "hf", "ssh:lab"]


def test_a_service_is_offered_where_its_program_is(monkeypatch):
    monkeypatch.setattr(module, "_is_installed", lambda program: program == "sbatch")
    assert known_places([], []) == ["here", "slurm", "hf"]


def test_what_this_version_does_not_know_is_left_out():
    assert "balloon:red" not in known_places(["balloon:red"], ["balloon:blue"])
