"""The plain engine with our attention within documents: whole runs, and which pass was attended by what."""

import pytest
import torch

from burnish_engine.models.transformers_path import packed_attention
from burnish_engine.runs.card import read_card
from burnish_engine.runs.store import create_run
from burnish_engine.train.base import leaks
from burnish_engine.train.plain import layout_choice
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import losses, tiny_recipe


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the tiny recipe: (with our attention?, settings) -> paths of the run."""
    real = packed_attention.can_attend

    def run(ours, **settings):
        recipe = tiny_recipe(tmp_path, engine='"plain"', max_steps=4, checkpoint_every=2, **settings)
        paths = create_run(recipe, tmp_path / f"run {len(list(tmp_path.glob('run *')))}")
        with monkeypatch.context() as patch:
            patch.setattr(packed_attention, "device_problem", lambda _device: "")
            asked = torch.device("cuda" if ours else "cpu")
            patch.setattr(packed_attention, "can_attend", lambda model, _device: real(model, asked))
            assert run_training(paths).exit_code == 0
        return paths

    return run


@pytest.fixture
def attended(monkeypatch):
    """Rows of every call of a model's attention, by whether it was ours."""
    rows, attend = {"ours": [], "theirs": []}, packed_attention._packed_attention

    def told(module, query, *given, **options):
        rows["theirs" if packed_attention._current is None else "ours"].append(query.shape[2])
        return attend(module, query, *given, **options)

    monkeypatch.setattr(packed_attention, "_packed_attention", told)
    return rows


@pytest.mark.full
@pytest.mark.parametrize("recompute", ["false", "true"])
def test_every_pass_of_a_run_knows_its_documents(run, attended, recompute):
    """Training, evaluation and the guard's probes; without documents it would be transformers' mask, and as right."""
    usual = run(False, recompute=recompute)
    assert not attended["ours"]
    ours = run(True, recompute=recompute)
    assert read_card(ours).circumstances.layout == "documents"
    assert losses(ours) == pytest.approx(losses(usual), rel=1e-4)
    assert attended["ours"]
    alone = {*layout_choice.DOCUMENTS_LENGTHS}  # and rows of the guard's
    assert all(rows in alone or rows <= leaks.TOKENS for rows in attended["theirs"])
