"""What a run can be exported as is told when it begins, in its card and at its end; an export refuses by the same."""

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import Warned
from burnish_engine.runs.card import read_card
from burnish_engine.runs.store import list_runs

from support.models.export import make_model
from support.runs.tiny_runs import of_kind, tiny_recipe


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """A recipe on a tiny mixture of which no GGUF is made; its attention is adapted."""
    folder = tmp_path_factory.mktemp("mixture")
    make_model(folder / "base", "flex_olmo", hidden_size=32, intermediate_size=32, num_experts=4, num_experts_per_tok=2)
    recipe = tiny_recipe(folder, rows=12, max_steps=2)
    targets = recipe.adapter.model_copy(update={"targets": ["q_proj", "k_proj", "v_proj", "o_proj"]})
    path = folder / "recipe.toml"
    path.write_text(dump_recipe(recipe.model_copy(update={"adapter": targets})), encoding="utf-8")
    return path


def test_a_run_tells_what_works_and_an_export_of_anything_else_is_refused(mixture, capsys):
    assert main(["train", str(mixture)]) == 0
    said = capsys.readouterr().out
    assert "--to safetensors" in said
    assert "--quant" not in said
    paths = list_runs()[0].paths
    assert [event for event in of_kind(paths, Warned) if event.code == "exports"]
    card = read_card(paths)
    assert {one.kind for one in card.exports if one.works} == {"safetensors", "adapter"}
    assert card.circumstances.layout == "packed"
    assert main(["export", "last", "--to", "gguf"]) == 2
    reason = next(one.reason for one in card.exports if one.kind == "gguf")
    assert reason[:40] in " ".join(capsys.readouterr().err.split())
    assert main(["export", "last", "--to", "safetensors"]) == 0
    paths.recipe.write_text(paths.recipe.read_text().replace('/base"', '/gone"'), encoding="utf-8")
    assert main(["export", "last", "--to", "safetensors", "--out", str(mixture.parent / "out")]) == 2
    assert main(["export", "last", "--to", "adapter"]) == 0  # it does not need the base
