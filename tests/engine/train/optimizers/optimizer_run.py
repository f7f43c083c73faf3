"""An engine over the tiny recipe with any optimizer, and what tests of optimizers try it with."""

import torch

from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.engine_loader import make_engine

from support.runs.shelf import OPTIMIZERS, rate_of

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
ENGINES = ["fast", "plain"]
TOTAL = 8
HALF_WARM = {"warmup_share": 0.5, "schedule": "linear"}  # of 8 steps, 4 with rising learning rate
NO_DROPOUT = {"adapter": {"dropout": 0.0}}
BY_TURNS = [(name, ENGINES[index % 2]) for index, name in enumerate(OPTIMIZERS)]
"""Each optimizer in one of the engines: where what is tried is the engine's and not the optimizer's, or the reverse."""
NOT_PAGED = [(index, name) for index, name in enumerate(OPTIMIZERS) if name != "paged_adamw8bit"]
"""On the CPU nothing is paged, and that one is adamw8bit."""
MAGMA = {"masking": {"kind": "magma"}}


class Run:
    """An engine over the tiny recipe."""

    def __init__(
        self, tiny, name, engine, *, trained=None, step=0, total=TOTAL, precision="fp32", device=CPU, **sections
    ):
        recipe, source, tokenizer, self.data = tiny
        settings = {"optimizer": name, "engine": engine, "learning_rate": rate_of(name), "weight_decay": 0.1}
        sections = {**sections, "train": {**settings, **sections.get("train", {})}}
        if "8bit" in name:  # smaller matrices keep their moments in fp32
            sections["adapter"] = {"rank": 64, **sections.get("adapter", {})}
        updates = {key: getattr(recipe, key).model_copy(update=values) for key, values in sections.items()}
        self.recipe = recipe.model_copy(update=updates)
        stream = BatchStream(self.data.train, self.recipe.train)
        self.engine = make_engine(EngineSpec(source, self.recipe, stream, tokenizer, precision, device, trained))
        self.engine.start(step, total, total * self.recipe.train.accumulation)

    def steps(self, count):
        for _ in range(count):
            self.engine.queue_step()
        return [(result.loss, result.grad_norm) for result in self.engine.results(wait=True)]

    def held_out(self):
        return self.engine.held_out_loss(EvaluationRequest(self.data.validation, 256))[0]


def state_of(one):
    """Weights and optimizer, by name, copied."""
    found = {key: value.clone() for key, value in one.engine.optimizer_tensors().items()}
    if one.engine.facts.name == "fast":
        return found | {"param": one.engine.model.optimizer.param.clone()}
    return found | {f"param/{key}": value.detach().clone() for key, value in one.engine.parameters}
