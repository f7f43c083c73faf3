"""Engines over the tiny recipe, as a session makes them, without a run around them."""

import torch

from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.engine_loader import make_engine

CPU = torch.device("cpu")


def changed(recipe, **sections):
    """The recipe with other settings: section=dict of settings."""
    updates = {name: getattr(recipe, name).model_copy(update=values) for name, values in sections.items()}
    return recipe.model_copy(update=updates)


class Made:
    """An engine and what it was made from."""

    def __init__(self, recipe, precision="fp32", device=CPU, adapter=None, step=0):
        self.recipe, self.source = recipe, open_model(recipe.model.path)
        self.tokenizer = load_tokenizer(self.source)
        self.data = prepare(recipe, self.tokenizer)
        self.stream = BatchStream(self.data.train, recipe.train)
        self.budget = self.stream.budget()
        self.engine = make_engine(
            EngineSpec(self.source, recipe, self.stream, self.tokenizer, precision, device, adapter)
        )
        self.engine.start(step, self.budget.steps, self.budget.micro_batches)

    def steps(self, count):
        """Results of so many further steps."""
        for _ in range(count):
            self.engine.queue_step()
        return list(self.engine.results(wait=True))
