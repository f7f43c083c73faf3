"""Which objectives data offers, and what becomes of a recipe that learns by another one."""

import pytest
from app.facts import data_facts
from app.facts.reward_facts import sums

from burnish_app.recipe.suggested import with_suggestion
from burnish_app.state.objectives import choose_objective, fit_to_objective, is_open, offered_objectives, with_objective
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection


def recipe(**sections):
    return Recipe.model_validate(sections)


def test_pairs_and_labels_offer_what_can_learn_from_them_the_usual_one_first():
    assert offered_objectives(data_facts.dataset(shape="preference")) == ("dpo", "orpo", "simpo", "sft")
    assert offered_objectives(data_facts.dataset(shape="kto")) == ("kto", "sft")
    assert offered_objectives(data_facts.dataset(shape="messages")) == ()
    assert offered_objectives(None) == ()


def test_rewards_are_offered_where_the_rows_replies_can_be_checked():
    assert offered_objectives(sums()) == ("sft", "grpo")
    fit = sums().report.task_fit.model_copy(update={"usable_rows": 0})
    report = sums().report.model_copy(update={"task_fit": fit})
    assert offered_objectives(sums().model_copy(update={"report": report})) == ()


def test_learning_from_rewards_scores_what_was_recognized_and_rewards_it():
    made = with_objective(recipe(), "grpo", "messages", sums().report.task)
    assert made.task.metric == "number"
    assert [one.kind for one in made.reward] == ["task", "distance"]
    scored = with_objective(recipe(task={"metric": "json"}), "grpo", "messages", sums().report.task)
    assert [one.kind for one in scored.reward] == ["task", "keys"]
    unknown = with_objective(recipe(), "grpo", "messages")
    assert unknown.task.metric == "exact_match"
    assert with_objective(made, "sft", "messages").reward == []


def test_what_rewards_cannot_be_learned_with_is_changed():
    before = recipe(
        adapter={"dropout": 0.1}, evaluation={"patience": 3, "every": 5}, train={"optimizer": "schedule_free"},
        data={"learn": "everything", "max_length": 1024}, devices={"strategy": "data_parallel", "gpus": [0, 1]},
    )  # fmt: skip
    made = with_objective(before, "grpo", "messages", sums().report.task)
    assert made.train.micro_batch_tokens >= made.data.max_length + made.reinforce.max_tokens
    assert (made.adapter.dropout, made.evaluation.patience, made.data.learn) == (0.0, 0, "responses")
    assert (made.train.optimizer, made.devices.strategy, made.devices.gpus) == ("adamw", "single", [0])


def test_a_suggestion_keeps_the_rewards():
    current = with_objective(recipe(), "grpo", "messages", sums().report.task)
    assert with_suggestion(current, None, recipe()).reward == current.reward
    assert with_suggestion(recipe(), None, current).reward == []


def test_every_offered_objective_makes_a_valid_recipe_that_says_what_is_learned():
    for shape in ("preference", "kto"):
        for objective in offered_objectives(data_facts.dataset(shape=shape)):
            made = with_objective(recipe(), objective, shape)
            assert made.preference.objective == objective
            assert not is_open(made)
    assert is_open(recipe())


def test_a_pair_of_longest_rows_fits_into_the_pass():
    made = with_objective(recipe(data={"max_length": 2048}, train={"micro_batch_tokens": 2048}), "dpo", "preference")
    assert made.train.micro_batch_tokens == 4096
    single = with_objective(recipe(data={"max_length": 2048}, train={"micro_batch_tokens": 2048}), "kto", "kto")
    assert single.train.micro_batch_tokens == 2048


OWN = {"beta": 0.3, "label_smoothing": 0.1, "rpo_alpha": 0.5, "loss_type": "robust"}  # of a person, for DPO


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("simpo", {"beta": 2.0, "label_smoothing": 0.1, "rpo_alpha": 0.0}),
        ("kto", {"beta": 0.3}),
        ("orpo", {"beta": 0.1}),  # a weight there, no closeness to a reference
        ("sft", {}),
    ],
)
def test_only_settings_that_mean_the_same_stay_with_another_objective(objective, settings):
    made = with_objective(recipe(preference={"objective": "dpo", **OWN}), objective, "preference")
    assert made.preference == PreferenceSection(objective=objective, **settings)


def test_each_objective_has_its_usual_settings():
    dpo = with_objective(recipe(), "dpo", "preference")
    assert dpo.preference == PreferenceSection(objective="dpo", rpo_alpha=1.0)
    simpo = with_objective(dpo, "simpo", "preference")
    assert simpo.preference == PreferenceSection(objective="simpo", beta=2.0)
    assert with_objective(simpo, "dpo", "preference") == dpo


@pytest.mark.parametrize("take_all", [False, True])
def test_a_suggestion_keeps_the_objective_and_its_room(take_all):
    current = with_objective(recipe(data={"max_length": 512}), "dpo", "preference")
    suggested = recipe(data={"max_length": 1024}, train={"micro_batch_tokens": 1024})
    made = with_suggestion(current, None, suggested, take_all=take_all)
    assert made.preference.objective == "dpo"
    assert made.train.micro_batch_tokens >= 2 * made.data.max_length


def test_a_suggested_objective_is_taken_while_the_recipe_says_none():
    """The page Data may not have looked at the rows yet."""
    suggested = recipe(train={"micro_batch_tokens": 2048}, preference={"objective": "dpo"})
    assert with_suggestion(recipe(), None, suggested).preference.objective == "dpo"
    for said in ("orpo", "sft"):
        made = with_suggestion(with_objective(recipe(), said, "preference"), None, suggested)
        assert made.preference.objective == said


def test_other_recipes_keep_their_pass():
    values = recipe(data={"max_length": 512}, train={"micro_batch_tokens": 512}).model_dump()
    fit_to_objective(values)
    assert values["train"]["micro_batch_tokens"] == 512


def test_rows_with_good_and_bad_replies_are_not_scored_by_their_own_replies():
    labels = recipe(task={"metric": "choice"})
    made = with_objective(labels, "kto", "kto")
    assert made.task.metric == "none"
    assert with_objective(recipe(task={"metric": "json"}), "kto", "kto").task.metric == "json"
    assert with_suggestion(made, None, labels).task.metric == "none"
    assert with_suggestion(recipe(), None, labels).task.metric == "choice"


def test_a_suggestion_leaves_what_the_person_set_where_the_objective_takes_it():
    own = recipe(
        data={"max_length": 2048}, train={"micro_batch_tokens": 2048, "epochs": 7.0},
        adapter={"method": "full"}, task={"metric": "choice"},
    )  # fmt: skip
    dpo = with_suggestion(own, None, recipe(train={"micro_batch_tokens": 4096}, preference={"objective": "dpo"}))
    assert (dpo.train.epochs, dpo.train.micro_batch_tokens, dpo.adapter.method) == (7.0, 4096, "lora")
    assert dpo.task.metric == "choice"
    kto = with_suggestion(own, None, recipe(preference={"objective": "kto"}))
    assert (kto.train.epochs, kto.train.micro_batch_tokens, kto.task.metric) == (7.0, 2048, "none")


@pytest.mark.parametrize(("objective", "method"), [("dpo", "lora"), ("kto", "lora"), ("orpo", "full"), ("sft", "full")])
def test_what_needs_a_reference_trains_an_adapter(objective, method):
    made = with_objective(recipe(adapter={"method": "full"}), objective, "kto" if objective == "kto" else "preference")
    assert made.adapter.method == method


@pytest.mark.parametrize(
    ("former", "shape", "expected"),
    [
        ("dpo", "preference", "preference"),
        ("kto", "kto", "kto"),
        ("simpo", "", "preference"),  # not inspected: as the former objective reads them
        ("kto", "", "kto"),
        ("dpo", "messages", "auto"),  # conversations leave no choice
    ],
)
def test_replies_as_they_stand_name_the_preferences_that_they_come_from(former, shape, expected):
    made = with_objective(with_objective(recipe(), former, shape), "sft", shape)
    assert made.data.shape == expected
    assert with_objective(made, former, shape).data.shape == "auto"


def test_an_objective_is_chosen_although_other_settings_are_invalid():
    values = recipe(task={"metric": "regex", "pattern": "a"}).model_dump()
    values["train"] |= {"micro_batch_tokens": "many"}
    values["task"]["pattern"] = "("
    for objective in ("dpo", "kto"):
        choose_objective(values, objective, "")
    assert values["preference"] == PreferenceSection(objective="kto").model_dump()
    assert (values["train"]["micro_batch_tokens"], values["task"]["pattern"]) == ("many", "(")
