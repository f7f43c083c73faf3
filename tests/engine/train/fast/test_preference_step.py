"""Preference pairs in the fast engine's step, against transformers and PEFT under autograd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.train.base.preference import PairLogProbs, pair_losses
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.packed_batch import StepScalars, fill_buffer, write_scalars
from burnish_engine.train.fast.reply_weights import SUMS

from support import parity, tiny_models

LENGTHS = (12, 20, 9, 9, 31, 7)
SECTIONS = [
    PreferenceSection(objective="dpo", beta=0.5, rpo_alpha=0.3),
    PreferenceSection(objective="dpo", loss_type="hinge"),
    PreferenceSection(objective="dpo", beta=2.0, loss_type="ipo"),
    PreferenceSection(objective="dpo", loss_type="robust", label_smoothing=0.2),
    PreferenceSection(objective="orpo"),
    PreferenceSection(objective="simpo", beta=2.0, label_smoothing=0.1, rpo_alpha=0.5),
]


def pairs(lengths=LENGTHS, seed=0):
    """Random pairs in one pass; the first tokens of each sequence are its prompt."""
    batch = parity.micro_batch(lengths, seed=seed, learned=1.0)
    for start in batch.boundaries[:-1]:
        batch.labels[start : start + 2] = IGNORED
    reference = np.random.default_rng(seed).normal(-30.0, 10.0, len(lengths)).astype(np.float32)
    return replace(batch, rows=tuple(range(len(lengths) // 2)), reference=reference)


def part(batch, first, last):
    """Some pairs of a pass as a pass of their own."""
    start, end = batch.boundaries[2 * first], batch.boundaries[2 * last]
    arrays = (array[start:end] for array in (batch.input_ids, batch.positions, batch.labels))
    bounds = batch.boundaries[2 * first : 2 * last + 1] - start
    return MicroBatch(*arrays, bounds, tuple(range(last - first)), batch.reference[2 * first : 2 * last])


def ours(model, section, batches, *, rows=None, head_rows=48, keep="products"):
    """Loss, means and adapter gradients of a step over some passes."""
    optimizer, sums = model.model.optimizer, torch.zeros(SUMS)
    optimizer.grad.zero_()
    count = sum(len(batch.rows) for batch in batches)
    chosen = sum(int(batch.sequence_tokens[::2].sum()) for batch in batches)
    for batch in batches:
        layout = replace(model.layout(batch, rows, head_rows), learned="pairs")
        buffer = torch.zeros(layout.size, dtype=torch.int32)
        counts = fill_buffer(batch, layout, buffer.numpy())
        write_scalars(StepScalars(1 / count, 1e-3, 1 / chosen), layout, buffer.numpy())
        keeps = [keep] * len(model.loaded.decoder.layers)
        with torch.no_grad():
            MicroBatchStep(model.model, layout, buffer, keeps, sums, preference=section).run(counts)
    views = optimizer.layout.views(optimizer.grad)
    return sums, {name: view.clone() for name, view in zip(model.model.adapter.named(), views, strict=True)}


def theirs(model, section, batch):
    """The same by transformers, PEFT and autograd, one sequence after another."""
    model.zero_grad()
    sums, counts = [], batch.sequence_tokens
    for one in parity.single(replace(batch, rows=tuple(range(len(batch.boundaries) - 1)))):
        logits = model(input_ids=torch.from_numpy(one.input_ids)[None], use_cache=False).logits[0].float()
        labels = torch.from_numpy(one.labels)
        sums.append(-torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum"))
    halves = (torch.stack(sums), torch.from_numpy(counts).float(), torch.from_numpy(batch.reference))
    found = pair_losses(section, PairLogProbs(*(half[side::2] for half in halves for side in (0, 1))))
    loss = found.loss_P.mean() - section.sft_weight * torch.stack(sums[::2]).sum() / int(counts[::2].sum())
    loss.backward()
    margin = (found.chosen_reward_P - found.rejected_reward_P).detach()
    terms = [loss, margin.mean(), (margin > 0).float().mean(), found.chosen_log_prob_P.mean(),
             found.rejected_log_prob_P.mean(), found.loss_P.mean(),
             -torch.stack(sums[::2]).sum() / int(counts[::2].sum()), torch.zeros(())]  # fmt: skip
    named = {name.replace(".default.", "."): value for name, value in model.named_parameters() if value.requires_grad}
    return torch.stack(terms).detach(), {name: value.grad.clone() for name, value in named.items()}


@pytest.fixture(scope="module")
def qwen(bases, tmp_path_factory):
    return bases("qwen3"), tiny_models.lora(bases("qwen3"), tmp_path_factory.mktemp("adapter") / "qwen3", rank=5)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section.objective}-{section.loss_type}")
def test_loss_means_and_gradients_are_those_of_autograd(qwen, section):
    batch = pairs()
    wanted, gradients = theirs(parity.peft(*qwen), section, batch)
    sums, found = ours(parity.fast(*qwen), section, [batch])
    torch.testing.assert_close(sums, wanted, rtol=1e-5, atol=1e-5)
    assert parity.worst(found, gradients) < 1e-4


def test_how_pairs_fall_into_passes_and_chunks_does_not_matter(qwen):
    model, section, batch = parity.fast(*qwen), SECTIONS[0], pairs()
    sums, gradients = ours(model, section, [batch])
    split = [part(batch, 2, 3), part(batch, 0, 2)]
    for batches, options in ((split, {}), ([batch], {"head_rows": 5}), ([batch], {"rows": 512, "keep": "input"})):
        others, found = ours(model, section, batches, **options)
        torch.testing.assert_close(others, sums, rtol=1e-6, atol=1e-6)
        assert parity.worst(found, gradients) < 1e-5


def test_a_log_probability_that_is_no_number_shows_in_the_loss(qwen):
    batch = pairs()
    batch.reference[3] = np.nan
    sums, _ = ours(parity.fast(*qwen), SECTIONS[0], [batch])
    assert sums[0].isnan()
