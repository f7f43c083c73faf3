"""Packed, masked and padded rows give the same loss and gradients."""

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path import packed_attention, plain
from burnish_engine.train.plain.plain_step import documents_apart, padded_inputs, passes_of, summed_loss

CPU = torch.device("cpu")


def micro_batch(lengths, vocab, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, vocab, sum(lengths))
    boundaries = np.cumsum([0, *lengths]).astype(np.int32)
    labels = np.roll(ids, -1)
    labels[rng.random(len(ids)) < 0.3] = IGNORED
    labels[boundaries[1:] - 1] = IGNORED
    positions = np.concatenate([np.arange(n) for n in lengths])
    return MicroBatch(
        input_ids=ids.astype(np.int64),
        positions=positions.astype(np.int64),
        labels=labels.astype(np.int64),
        boundaries=boundaries,
        rows=tuple(range(len(lengths))),
    )


@pytest.fixture
def tuned(tiny_llama):
    model = plain.attach_adapter(plain.load_base(open_model(str(tiny_llama)), "fp32", CPU), AdapterSection(rank=4), 0)
    with torch.no_grad():
        for name, value in plain.trainable_parameters(model):
            if "lora_B" in name:
                value.normal_(std=0.1)
    return model.train()


@pytest.mark.full
@pytest.mark.parametrize("lengths", [[1], [20], [7, 13], [1, 1, 30, 2], [5] * 9])
def test_packed_equals_padded(tuned, lengths):
    batch = micro_batch(lengths, tuned.config.vocab_size)
    results = {}
    for layout in ("packed", "masked", "padded", "documents"):
        tuned.zero_grad()
        if layout == "documents":
            packed_attention.switch_over(tuned.get_base_model())
        with documents_apart(batch, layout) as seen:
            loss = summed_loss(tuned, batch, CPU, layout)
            if (batch.labels != IGNORED).any():
                loss.backward()
        assert (seen.calls if seen else 0) == (tuned.config.num_hidden_layers if layout == "documents" else 0)
        results[layout] = [loss.detach()] + [
            value.grad.clone() for _, value in plain.trainable_parameters(tuned) if value.grad is not None
        ]
    for layout in ("packed", "masked", "documents"):
        for ours, theirs in zip(results[layout], results["padded"], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("most", [1, 40, 60, 1000])
def test_padded_rows_are_computed_in_passes_within_the_budget_with_the_same_sum(tuned, most):
    batch = micro_batch([30, 2, 7, 13, 1, 8], tuned.config.vocab_size)
    parts = passes_of(batch, "padded", most)
    assert sorted(row for part in parts for row in part.rows) == list(batch.rows)
    for part in parts:
        area = padded_inputs(part, CPU)[0]["input_ids"].numel()
        assert area <= most or len(part.rows) == 1
    with torch.no_grad():
        losses = [summed_loss(tuned, part, CPU, "padded") for part in parts if part.supervised_tokens]
        torch.testing.assert_close(sum(losses), summed_loss(tuned, batch, CPU, "padded"))
    assert passes_of(batch, "packed", most) == [batch]
