"""Scenes of reinforcement, on Data, Recipe and Train."""

from app.facts import page_facts as facts
from app.facts.reward_facts import rewarded, sums, trial
from app.facts.run_events import FINISHED, TOTAL
from app.facts.run_summaries import summary
from app.page_scenes.data import _inspected
from app.page_scenes.frame_scenes import _show_train
from app.page_scenes.recipe import _recipe, _scroll_to
from app.page_scenes.screenshots import scene, settle
from PySide6.QtWidgets import QScrollArea

from burnish_app.state.objectives import with_objective
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.serve.reward_trial import RewardTrial


@scene("data-rewards")
def data_rewards(window):
    """Prompts whose replies can be checked."""
    page = _inspected(window, sums())
    settle()
    page.objective.buttons["grpo"].click()
    window.client.answer("inspect", dataset=sums())
    settle(20)
    page.findChild(QScrollArea).ensureWidgetVisible(page.objective)


def _rewards(window):
    page = _recipe(window, facts.plan(), edit=False)
    window.bench.set_dataset(sums())
    unscored = window.bench.recipe.model_copy(update={"task": TaskSection()})
    page._rewrite(with_objective(unscored, "grpo", "prompt_completion", sums().report.task))
    page.suggestions.cancel()
    page._planned(facts.plan())
    page.plans.drop()
    return page


@scene("recipe-rewards")
def recipe_rewards(window):
    """A recipe that learns from rewards, which were tried."""
    page = _rewards(window)
    page.rewards.card.try_on.click()
    window.client.answer("try_rewards", trial=trial())
    _scroll_to(page, page.rewards.card)


@scene("recipe-rewards_wrong")
def recipe_rewards_wrong(window):
    """A reward that lacks its pattern."""
    page = _rewards(window)
    page.rewards.card.add.click()
    kind = page.rewards.card.rows[-1].kind
    kind.setCurrentIndex(kind.findData("format"))
    kind.activated.emit(kind.currentIndex())
    _scroll_to(page, page.rewards.card)


@scene("recipe-rewards_flat")
def recipe_rewards_flat(window):
    """Rewards that do not tell replies apart."""
    page = _rewards(window)
    page.rewards.card.try_on.click()
    rows = [row.model_copy(update={"rewards": {"task": 0.0, "distance": 0.0}, "sum": 0.0}) for row in trial().rows]
    window.client.answer("try_rewards", trial=RewardTrial(rows=rows))
    _scroll_to(page, page.rewards.card)


@scene("train-rewarded")
def train_rewarded(window):
    """A run that learns from rewards."""
    _show_train(window, summary("running"), rewarded())


@scene("train-rewarded_below")
def train_rewarded_below(window):
    """Its replies."""
    page = _show_train(window, summary("finished", TOTAL), rewarded(TOTAL, ended=FINISHED))
    settle(20)
    _scroll(page)


def _scroll(page):
    page.findChild(QScrollArea).ensureWidgetVisible(page.judged)
    settle(10)
