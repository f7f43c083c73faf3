"""Recipes of steps that ranks share, figures to compare, and a record of the passes that each rank evaluates."""

from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.train.fast.fast_engine import FastEngine

from support.runs.tiny_runs import tiny_recipe


def recipe_of(folder, *, exact=False, exchange="auto", rows=30, extra="", **train):
    """A recipe whose steps are shared, with dropout, clipped gradients and passes of unequal length."""
    settings = {"accumulation": 4, "micro_batch_tokens": 128, "max_grad_norm": 0.05, "weight_decay": 0.1, **train}
    recipe = tiny_recipe(folder, rows=rows, extra=extra, **settings)
    assert recipe.adapter.dropout > 0
    devices = DevicesSection(kind="cpu", threads=1, strategy="data_parallel", gpus=[0], exact=exact, exchange=exchange)
    return recipe.model_copy(update={"devices": devices})


def figures(results):
    return [
        (one.step, one.micro_batches, one.tokens, one.supervised, one.loss, one.grad_norm, one.learning_rate, one.taken)
        for one in results
    ]


class Shares:
    """Notes which passes each rank evaluates, and fails where it is told to."""

    def __init__(self, monkeypatch, failing=lambda engine: None):
        self.passes, self.failing, make = {}, failing, FastEngine.pass_losses
        replies = FastEngine.pass_log_probs

        def losses(engine, passes, *arguments):
            self.note(engine, passes)
            return make(engine, passes, *arguments)

        def log_probs(engine, passes, *arguments, **options):
            self.note(engine, passes)
            return replies(engine, passes, *arguments, **options)

        monkeypatch.setattr(FastEngine, "pass_losses", losses)
        monkeypatch.setattr(FastEngine, "pass_log_probs", log_probs)

    def note(self, engine, passes):
        self.failing(engine)
        self.passes.setdefault(id(engine), []).append(len(passes.batches))
