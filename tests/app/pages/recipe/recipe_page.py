"""Steps that several tests of the page Recipe take."""

from burnish_engine.contract.recipe.recipe_file import parse_recipe


def settle(qtbot, page, bench):
    qtbot.waitUntil(lambda: bench.dataset is not None and bench.plan is not None and not page.plans.is_waiting)


def planned_ranks(answers):
    return {parse_recipe(request["recipe"]).adapter.rank for request in answers.asked("estimate")}
