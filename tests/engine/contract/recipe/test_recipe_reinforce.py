"""Recipes that learn from rewards: what is refused by name, and that reward tables survive their file."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe, parse_recipe, reference_page

GRPO = '[preference]\nobjective = "grpo"\n[task]\nmetric = "number"\n'


def refused(text):
    with pytest.raises(UsageError) as caught:
        parse_recipe(text)
    return caught.value.what


def test_reward_tables_survive_their_file_and_their_paths_are_taken_from_its_folder(tmp_path):
    tables = '[[reward]]\nkind = "distance"\nspan = 5.0\n[[reward]]\nkind = "python"\nfile = "own.py"\nweight = -0.5\n'
    path = tmp_path / "recipe.toml"
    path.write_text(GRPO + tables)
    recipe = load_recipe(path)
    assert [reward.kind for reward in recipe.rewards] == ["distance", "python"]
    assert recipe.reward[1].file == str(tmp_path / "own.py")
    for comments in (False, True):
        assert parse_recipe(dump_recipe(recipe, comments=comments)) == recipe
    assert parse_recipe(dump_recipe(Recipe())) == Recipe()


def test_without_tables_the_score_of_the_task_is_the_reward():
    assert [reward.kind for reward in parse_recipe(GRPO).rewards] == ["task"]


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ('[data]\nlearn = "everything"\n', "data.learn"),
        ("[adapter]\ndropout = 0.1\n", "adapter.dropout"),
        ('[devices]\nstrategy = "data_parallel"\ngpus = [0, 1]\n', "devices.strategy"),
        ("[evaluation]\nevery = 2\npatience = 2\n", "evaluation.patience"),
        ('[train]\noptimizer = "schedule_free"\n', "train.optimizer"),
        ("[reinforce]\nmax_tokens = 5000\n", "reinforce.max_tokens"),
        ('[adapter]\nmethod = "full"\n[reinforce]\nkl_weight = 0.1\n', "reinforce.kl_weight"),
        ('[devices]\nwhere = "ssh:there"\n[[reward]]\nkind = "python"\nfile = "own.py"\n', "devices.where"),
        ('[[reward]]\n[[reward]]\n', "reward.name"),
    ],
)  # fmt: skip
def test_what_rewards_cannot_be_learned_with_is_refused_by_its_key(extra, key):
    assert key in refused(GRPO + extra)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('kind = "judge"', "model"),
        ('kind = "code"\nseconds = 0', "seconds"),
        ('kind = "format"', "pattern"),
        ('kind = "format"\npattern = "("', "no regular expression"),
        ('kind = "python"', "file"),
        ('kind = "tags"\ntags = ["a b"]', "names"),
        ('kind = "tags"\ntags = ["a", "a"]', "twice"),
        ("weight = 0.0", "weight"),
        ('knd = "task"', "did you mean reward.0.kind?"),
    ],
)
def test_a_wrong_reward_is_refused_and_says_why(table, says):
    assert says in refused(f"{GRPO}[[reward]]\n{table}\n")


def test_rewards_without_the_objective_and_the_objective_without_a_score_are_refused():
    assert "grpo" in refused("[[reward]]\n")
    assert "task.metric" in refused('[preference]\nobjective = "grpo"\n')


def test_the_reference_has_the_tables():
    page = reference_page()
    assert "## `[[reward]]`" in page
    assert "## `[reinforce]`" in page
