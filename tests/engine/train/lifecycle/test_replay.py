"""Rows that the base writes: how many, from what, kept where, and learned again alike by a resumed run."""

import json

import numpy as np
import pytest

from burnish_engine.contract.recipe.recipe_data import REPLAY_TOKENS
from burnish_engine.models.generation import load_fast
from burnish_engine.runs.store import create_run
from burnish_engine.train.lifecycle.inputs import RunInputs
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import commanding, tiny_recipe, trained


class Quiet:
    """A recorder of nothing."""

    def phase(self, phase, detail=""):
        pass

    def progress(self, done, total):
        pass

    def warn(self, code, message):
        pass


def with_share(recipe, share, **data):
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"replay_share": share, **data})})


@pytest.fixture
def recipe(tmp_path):
    return with_share(tiny_recipe(tmp_path, rows=12, max_steps=4), 0.2)


def loaded(recipe, folder, *, fresh=True):
    return RunInputs.load(create_run(recipe, folder) if fresh else folder, recipe, Quiet(), fresh=fresh)


def ids(documents):
    return [document.input_ids.tolist() for document in documents]


def test_the_base_continues_openings_which_are_not_learned(recipe, tmp_path):
    plain, mixed = loaded(with_share(recipe, 0.0), tmp_path / "plain"), loaded(recipe, tmp_path / "mixed")
    own, more = mixed.data.train[:12], mixed.data.train[12:]
    assert ids(own) == ids(plain.data.train)
    assert len(more) == 3  # a fifth of 15
    for document in more:
        assert 0 < np.argmax(document.supervised) < len(document) <= min(REPLAY_TOKENS, recipe.data.max_length)
        assert document.supervised[np.argmax(document.supervised) :].all()
    assert mixed.data.dataset_hash != plain.data.dataset_hash
    assert sum(mixed.stream.tokens(index) for index in range(mixed.budget.per_epoch)) == sum(map(len, mixed.data.train))
    lines = [json.loads(line) for line in (tmp_path / "mixed" / "replay.jsonl").read_text().splitlines()]
    assert [line["ids"] for line in lines] == ids(more)
    assert all(line["text"] for line in lines)


def test_rows_are_written_once_for_the_same_model_and_a_resumed_run_has_its_own(
    recipe, tmp_path, burnish_home, monkeypatch
):
    first = ids(loaded(recipe, tmp_path / "first").data.train)
    (burnish_home / "cache" / "replay").rename(tmp_path / "elsewhere")
    assert ids(loaded(recipe, tmp_path / "written again").data.train) == first
    monkeypatch.setattr(load_fast, "load_for_generation", None)  # so that nothing can be written
    assert ids(loaded(recipe, tmp_path / "from the cache").data.train) == first
    (burnish_home / "cache" / "replay").rename(tmp_path / "away")
    run = create_run(recipe, tmp_path / "other")
    (tmp_path / "first" / "replay.jsonl").rename(run.replay)
    assert ids(loaded(recipe, run, fresh=False).data.train) == first


@pytest.mark.full
def test_a_run_that_was_suspended_ends_in_the_same_bits(recipe, tmp_path, monkeypatch):
    whole = create_run(recipe, tmp_path / "whole")
    assert run_training(whole).exit_code == 0
    halves = create_run(recipe, tmp_path / "halves")
    assert run_training(halves, listener=commanding(halves, 2, "suspend")).step == 2
    monkeypatch.setattr(load_fast, "load_for_generation", None)
    assert run_training(halves).exit_code == 0
    assert trained(halves) == trained(whole)
