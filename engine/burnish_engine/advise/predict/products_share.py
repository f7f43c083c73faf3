"""Predicts how much of a step the products with the layers' frozen weights are. Loads no torch."""

from __future__ import annotations

import math

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.predict.fast_shape import head_chunk_tokens
from burnish_engine.advise.predict.fast_speed import FastSpeed, rates
from burnish_engine.advise.predict.plan_options import split_plan
from burnish_engine.contract.recipe.memory_plan import MemoryPlan


def products_share(run: FastRun) -> float:
    """Predict the share of a step that its layers' products with frozen weights take, 0 to 1.

    Unpacking weights that are kept in 4 bits counts as a part of the products; the head's products do not.

    Args:
        run: the run, with products in 16 bits; its largest micro-batch is the step.
    """
    size = run.largest
    chunk = head_chunk_tokens(size.supervised_tokens, cuda=run.cuda)
    levels, options = split_plan(MemoryPlan(layers=("products",) * run.spec.num_layers, head_rows=chunk))
    usual = rates(run)
    with_products = FastSpeed(run, size, usual)
    without = FastSpeed(run, size, usual._replace(products=math.inf, unpacking=math.inf))
    total, rest = (float(speed.seconds([(levels, options)])[0]) for speed in (with_products, without))
    head = with_products.outside(options) - without.outside(options)
    return (total - rest - head) / total
