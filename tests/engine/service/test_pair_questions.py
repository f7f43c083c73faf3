"""Questions about pairs of replies: what is seen, planned and suggested follows what is learned of them."""

import json
from pathlib import Path

import pytest

from burnish_engine.contract.recipe.recipe_file import dump_recipe, parse_recipe

from support.models.tiny import write_jsonl


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A file of pairs whose rejected replies are far longer than the chosen ones."""
    long = " ".join(["It is lit by a lamp that somebody left on."] * 30)
    rows = [{"prompt": f"Lamp {n}?", "chosen": f"Lit, {n}.", "rejected": f"{n}. {long}"} for n in range(24)]
    return str(write_jsonl(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", rows))


def learning(recipe, pairs, objective, **data):
    """The recipe with pairs in place of its data, and an objective."""
    parsed = parse_recipe(recipe)
    values = {"files": [pairs], "validation_files": [], "max_length": 1024, **data}
    update = {
        "data": parsed.data.model_copy(update=values),
        "train": parsed.train.model_copy(update={"micro_batch_tokens": 2048}),
        "preference": parsed.preference.model_copy(update={"objective": objective}),
    }
    return dump_recipe(parsed.model_copy(update=update))


@pytest.mark.full
def test_pairs_are_suggested_whole_and_for_their_usual_objective(warm_server, recipe, pairs):
    model = parse_recipe(recipe).model.path
    found = warm_server.result("suggest", model=model, data=[pairs]).suggestion
    made = parse_recipe(found.recipe)
    assert made.preference.objective == "dpo"
    assert made.data.max_length > 250, "the rejected replies are longer than the chosen ones"
    assert made.train.micro_batch_tokens >= 2 * made.data.max_length
    plan = warm_server.result("estimate", recipe=found.recipe).plan
    assert plan.fits
    assert plan.memory_bytes == found.plan.memory_bytes


@pytest.mark.full
def test_another_objective_is_another_look_at_the_same_rows(warm_server, recipe, pairs):
    """Though nothing else of the recipe changed: the page Data chooses the objective after its first look."""
    looks = [warm_server.result("inspect", recipe=learning(recipe, pairs, one)).dataset for one in ("sft", "dpo")]
    assert looks[0].lengths.longest < 50 < looks[1].sequence_lengths.longest
    assert looks[0].sequence_lengths is None
    orpo = learning(recipe, pairs, "orpo")
    plans = [warm_server.result("estimate", recipe=learning(recipe, pairs, one)).plan for one in ("sft", "orpo")]
    assert plans[0].tokens * 3 < plans[1].tokens
    suggested = warm_server.result("suggest", model=parse_recipe(recipe).model.path, data=[pairs], recipe=orpo)
    assert parse_recipe(suggested.suggestion.recipe).preference.objective == "orpo"


@pytest.mark.full
def test_pairs_that_a_look_left_out_for_their_length_are_read_again_for_a_suggestion(warm_server, recipe, pairs):
    rows = [json.loads(line) for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    short = [{**row, "rejected": "No."} for row in rows]
    both = str(write_jsonl(Path(pairs).with_name("both.jsonl"), [*rows, *short]))
    cut = learning(recipe, both, "dpo", max_length=64)
    seen = warm_server.result("inspect", recipe=cut).dataset
    assert seen.dropped
    found = warm_server.result("suggest", model=parse_recipe(recipe).model.path, data=[both], recipe=cut).suggestion
    assert parse_recipe(found.recipe).data.max_length > 250
