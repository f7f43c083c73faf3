"""Deleting takes all of a run or nothing of it."""

import pytest

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.runs.jobs import actions
from burnish_engine.runs.store import create_run, list_runs


def test_a_deleted_run_leaves_nothing():
    paths, other = create_run(Recipe()), create_run(Recipe())
    actions.delete(paths)
    assert [run.paths.root for run in list_runs()] == [other.root]
    assert list(other.root.parent.iterdir()) == [other.root]


def test_a_run_whose_files_are_held_open_stays_whole(monkeypatch):
    def refuse(_source, _target):  # as Windows does while a program has a file in the folder open
        raise PermissionError(13, "Access is denied")

    paths = create_run(Recipe())
    before = sorted(paths.root.rglob("*"))
    monkeypatch.setattr(actions, "replace_with_retry", refuse)
    with pytest.raises(NoSpaceError, match="Access is denied"):
        actions.delete(paths)
    assert sorted(paths.root.rglob("*")) == before
    assert [run.paths.root for run in list_runs()] == [paths.root]
