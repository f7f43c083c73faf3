"""Preferences in the fast engine's step, against transformers and PEFT under autograd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.train.base.preference import PairLogProbs, pair_losses

from support.models import parity, tiny_models
from support.runs.preferences import fast_step as ours
from support.runs.preferences import labeled, pairs

SECTIONS = [
    PreferenceSection(objective="dpo", beta=0.5, rpo_alpha=0.3),
    PreferenceSection(objective="dpo", loss_type="hinge"),
    PreferenceSection(objective="dpo", beta=2.0, loss_type="ipo"),
    PreferenceSection(objective="dpo", loss_type="robust", label_smoothing=0.2),
    PreferenceSection(objective="orpo"),
    PreferenceSection(objective="simpo", beta=2.0, label_smoothing=0.1, rpo_alpha=0.5),
]


def part(batch, first, last):
    """Some pairs of a pass as a pass of their own."""
    start, end = batch.boundaries[2 * first], batch.boundaries[2 * last]
    arrays = (array[start:end] for array in (batch.input_ids, batch.positions, batch.labels))
    bounds = batch.boundaries[2 * first : 2 * last + 1] - start
    return MicroBatch(*arrays, bounds, tuple(range(last - first)), batch.reference[2 * first : 2 * last])


def one_label(batch, first, last):
    """Some labeled replies of a pass as a pass of their own."""
    start, end = batch.boundaries[first], batch.boundaries[last]
    arrays = (array[start:end] for array in (batch.input_ids, batch.positions, batch.labels))
    good = None if batch.desirable is None else batch.desirable[first:last]
    bounds, reference = batch.boundaries[first : last + 1] - start, batch.reference[first:last]
    return MicroBatch(*arrays, bounds, tuple(range(last - first)), reference, good)


def their_log_probs(model, batch):
    """Log-probability of each sequence by transformers and PEFT, one after another."""
    sums = []
    for one in parity.single(replace(batch, rows=tuple(range(len(batch.boundaries) - 1)))):
        logits = model(input_ids=torch.from_numpy(one.input_ids)[None], use_cache=False).logits[0].float()
        labels = torch.from_numpy(one.labels)
        sums.append(-torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum"))
    return torch.stack(sums)


def their_gradients(model):
    named = {parity.file_name(name): value for name, value in model.named_parameters() if value.requires_grad}
    return {name: value.grad.clone() for name, value in named.items()}


def theirs(model, section, batch):
    """Loss, figures and gradients of pairs by transformers, PEFT and autograd."""
    model.zero_grad()
    sums, counts = their_log_probs(model, batch), torch.from_numpy(batch.sequence_tokens).float()
    halves = (sums, counts, torch.from_numpy(batch.reference))
    found = pair_losses(section, PairLogProbs(*(half[side::2] for half in halves for side in (0, 1))))
    sft = -sums[::2].sum() / counts[::2].sum()
    loss = found.loss_P.mean() + section.sft_weight * sft
    loss.backward()
    margin = (found.chosen_reward_P - found.rejected_reward_P).detach()
    terms = [loss, margin.mean(), (margin > 0).float().mean(), found.chosen_log_prob_P.mean(),
             found.rejected_log_prob_P.mean(), found.loss_P.mean(), sft, torch.zeros(())]  # fmt: skip
    return torch.stack(terms).detach(), their_gradients(model)


def theirs_labeled(model, section, batch, other):
    """The same of labeled replies, with the formulas of TRL's KTOTrainer."""
    model.zero_grad()
    ratio = their_log_probs(model, batch) - torch.from_numpy(batch.reference)
    with torch.no_grad():
        kl = (their_log_probs(model, other) - torch.from_numpy(other.reference)).mean().clamp(min=0)
    kl = kl if section.estimates_kl else torch.zeros(())
    good, beta = torch.from_numpy(batch.desirable), section.beta
    chosen, rejected = (1 - torch.sigmoid(beta * (ratio[good] - kl))), (1 - torch.sigmoid(beta * (kl - ratio[~good])))
    losses = torch.cat([section.desirable_weight * chosen, section.undesirable_weight * rejected])
    losses.mean().backward()
    reward, logs = beta * ratio.detach(), (ratio + torch.from_numpy(batch.reference)).detach()
    margin = reward[good].mean() - reward[~good].mean()
    agrees = torch.cat([ratio[good] > kl, ratio[~good] < kl]).float().mean()
    terms = [losses.mean(), margin, agrees, logs[good].mean(), logs[~good].mean(), losses.mean(), torch.zeros(()), kl]
    return torch.stack([term.detach() for term in terms]), their_gradients(model)


@pytest.fixture(scope="module")
def qwen(bases, tmp_path_factory):
    return bases("qwen3"), tiny_models.lora(bases("qwen3"), tmp_path_factory.mktemp("adapter") / "qwen3", rank=5)


@pytest.mark.full
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section.objective}-{section.loss_type}")
def test_loss_means_and_gradients_are_those_of_autograd(qwen, section):
    batch = pairs()
    wanted, gradients = theirs(parity.peft(*qwen), section, batch)
    sums, found = ours(parity.fast(*qwen), section, [batch])
    torch.testing.assert_close(sums, wanted, rtol=1e-5, atol=1e-5)
    assert parity.worst(found, gradients) < 1e-5


KTO = [
    PreferenceSection(objective="kto", beta=0.05, desirable_weight=1.3, undesirable_weight=0.7),
    PreferenceSection(objective="kto", beta=0.02, loss_type="apo_zero_unpaired"),
]


@pytest.mark.full
@pytest.mark.parametrize("section", KTO, ids=lambda section: section.loss_type)
def test_labeled_replies_and_their_divergence_are_those_of_autograd(qwen, section):
    batch, other = labeled()
    wanted, gradients = theirs_labeled(parity.peft(*qwen), section, batch, other)
    assert (wanted[-1] > 0) == section.estimates_kl
    sums, found = ours(parity.fast(*qwen), section, [batch], [other] if section.estimates_kl else [])
    torch.testing.assert_close(sums, wanted, rtol=1e-5, atol=1e-5)
    assert parity.worst(found, gradients) < 1e-5


def test_a_divergence_below_zero_counts_as_none(qwen):
    batch, other = labeled()
    model, section = parity.fast(*qwen), KTO[0]
    low = replace(other, reference=other.reference + 500)
    below, none = ours(model, section, [batch], [low]), ours(model, section, [batch])
    assert below[0][-1] == 0.0
    assert torch.equal(below[0], none[0])
    high = ours(model, section, [batch], [other])
    assert high[0][-1] > 0
    assert not torch.equal(high[0][:1], none[0][:1])


@pytest.mark.full
def test_how_labeled_replies_fall_into_passes_does_not_matter(qwen):
    model, section, (batch, other) = parity.fast(*qwen), KTO[0], labeled()
    sums, gradients = ours(model, section, [batch], [other])
    rows, others = ([one_label(one, 3, 6), one_label(one, 0, 3)] for one in (batch, other))
    halves = (rows, [other], {}), ([batch], others, {}), ([batch], [other], {"head_rows": 5, "rows": 512})
    for batches, mismatched, options in halves:
        again, found = ours(model, section, batches, mismatched, **options)
        torch.testing.assert_close(again, sums, rtol=1e-6, atol=1e-6)
        assert parity.worst(found, gradients) < 1e-5
        assert again[-1] == sums[-1]  # the estimate to the bit


@pytest.mark.full
@pytest.mark.parametrize("name", ["lfm2", "qwen3-5", "gemma3", "granite", "qwen3-rslora", "qwen3-dora"])
def test_pairs_and_labels_are_learned_by_other_families_and_adapters(bases, tmp_path, name):
    family, kind = (name, "") if name in tiny_models.SHAPES else name.split("-")
    settings = {"rslora": kind == "rslora", "dora": kind == "dora"}
    where = bases(family), tiny_models.lora(bases(family), tmp_path / name, rank=5, **settings)
    for section in (SECTIONS[0], SECTIONS[4]):
        wanted, gradients = theirs(parity.peft(*where), section, pairs())
        sums, found = ours(parity.fast(*where), section, [pairs()])
        torch.testing.assert_close(sums, wanted, rtol=1e-5, atol=1e-5)
        assert parity.worst(found, gradients) < 1e-5
    batch, other = labeled()
    wanted, gradients = theirs_labeled(parity.peft(*where), KTO[0], batch, other)
    sums, found = ours(parity.fast(*where), KTO[0], [batch], [other])
    torch.testing.assert_close(sums, wanted, rtol=1e-5, atol=1e-5)
    assert parity.worst(found, gradients) < 1e-5


@pytest.mark.full
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
