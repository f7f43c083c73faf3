"""Steps of the fast engine's trainer over a tiny model, without a run around them."""

import math
from itertools import cycle, islice

import pytest

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.fast.packed_batch import BucketLayout
from burnish_engine.train.fast.prefetch import Prefetcher
from burnish_kernels.attention.op import tile_rows

from support.models import parity

SECTION = TrainSection(learning_rate=5e-3, weight_decay=0.01)
PASSES = [parity.micro_batch(lengths, seed=seed) for seed, lengths in enumerate([(30, 20), (61,), (9, 40, 70), (128,)])]


def trainer(base, adapter, rows=(64, 128, 256), section=SECTION, keep="products", head_rows=32, **options):
    """A trainer of a tiny model with buckets of these rows."""
    of_model = ("dtype", "device", "quantize", "eight_bits", "masking", "layers_on_host", "lockable_weights")
    made = {key.removesuffix("_weights"): options.pop(key) for key in of_model if key in options}
    model = parity.fast(base, adapter, section=section, **made).model
    decoder = model.loaded.decoder
    height = tile_rows(decoder.spec.head_dim, decoder.dtype, model.device)
    section_of = options.get("objective")
    content = "rows" if section_of is None else "labels" if section_of.learns_labels else "pairs"
    layouts = [BucketLayout(count, height, head_rows, content=content) for count in rows]
    decoder.chunk_feed_forward(options.pop("mlp_rows", 0))
    levels = cycle(keep if isinstance(keep, list) else [keep])  # by turns
    return FastTrainer(model, section, layouts, list(islice(levels, len(decoder.layers))), **options)


def prefetcher(trained, passes, accumulation=1, first=0, rate=lambda step: 5e-3):
    return Prefetcher(
        passes, list(trained.steps), first=first, total=len(passes), accumulation=accumulation,
        learning_rate=rate, pinned=trained.stream is not None,
    )  # fmt: skip


def train(trained, passes, accumulation=1, first=0, **options):
    """Results of all steps, and the masters they end with."""
    with prefetcher(trained, passes, accumulation, first, **options) as ring:
        for _ in range(-(-(len(passes) - first) // accumulation)):
            trained.step(ring)
        results = list(trained.results(wait=True))
        with pytest.raises(IndexError):
            trained.step(ring)
    return results, trained.model.optimizer.param.cpu().clone()


def figures(results):
    """Loss, gradient norm and preferences of each step, to be compared to the bit.

    A norm that is not a number, of a step in 16 bits that overflowed and was not taken, equals another such.
    """
    return [(one.loss, "NaN" if math.isnan(one.grad_norm) else one.grad_norm, one.preference) for one in results]
