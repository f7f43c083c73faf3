"""Process that tries a recipe's rewards on replies of its model: `python -m burnish_engine.service.trial_worker`.

It is ended after each trial, so that training finds the model's memory free.
"""

from __future__ import annotations

from collections.abc import Mapping

from burnish_engine.channel.job import Job
from burnish_engine.channel.server import Handler
from burnish_engine.channel.worker import work
from burnish_engine.contract.serve.data_requests import TryRewardsRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.service.recipes import read_recipe_text


def try_rewards(request: TryRewardsRequest, job: Job) -> Result:
    """Try the rewards of a recipe."""
    from burnish_engine.train.reinforce.trial import try_rewards as tried

    recipe = read_recipe_text(request.recipe)
    trial = tried(recipe, rows=request.rows, doing=lambda what: job.progress(what.capitalize(), 0, 0))
    return Result(id=request.id, trial=trial)


def handlers() -> Mapping[str, Handler]:
    """Return the function that answers each method."""
    return {"try_rewards": try_rewards}


if __name__ == "__main__":
    work(handlers())
