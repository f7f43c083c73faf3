"""Held-out loss of our decoder: that of PEFT, without dropout, and with documents longer than any of training."""

import numpy as np
import pytest
import torch

from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.plain.evaluate import held_out_loss as plain_held_out_loss

from support.models import parity, tiny_models


def documents(lengths=(5, 40, 70, 1, 33, 12), learned=0.6):
    random = np.random.default_rng(1)
    found = []
    for row, length in enumerate(lengths):
        keep = random.random(length) < learned
        keep[0] = False  # the first token is predicted from nothing
        found.append(Document(random.integers(0, 384, length).astype(np.int32), keep, row, "held"))
    return found


@pytest.fixture(scope="module", params=["llama", "gemma3", "phi4-mini"])
def folders(request, tmp_path_factory):
    base = tiny_models.make(request.param, tmp_path_factory.mktemp("held") / "base")
    adapter = tiny_models.lora(base, base.with_name("adapter"))
    config = adapter / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_dropout": 0.0', '"lora_dropout": 0.5'))
    return base, adapter


def layout_of(ours, rows=128, head_rows=16):
    return ours.layout(parity.micro_batch((rows,)), rows, head_rows)


@pytest.mark.full
@pytest.mark.parametrize("quantities", [(128, 128, 16), (80, 128, 64), (192, 192, 500)])
def test_it_is_pefts_loss_without_dropout(folders, quantities):
    budget, rows, head_rows = quantities
    ours, theirs = parity.fast(*folders), parity.peft(*folders)
    assert ours.loaded.decoder.layers[0].weights.mixer_in.drop.probability == 0.5
    theirs.train()
    # One by one: in a batch, transformers rotates all rows as the longest asks for.
    alone = [plain_held_out_loss(theirs, EvaluationRequest([one], 128), parity.CPU, "padded") for one in documents()]
    wanted = sum(loss * count for loss, count in alone if count) / sum(count for _, count in alone)
    loss, count = parity.held_out_loss(ours.loaded.decoder, documents(), budget, layout_of(ours, rows, head_rows))
    assert count == sum(document.supervised_tokens for document in documents())
    assert loss == pytest.approx(wanted, rel=1e-5)
    assert theirs.training


@pytest.mark.full
def test_training_is_left_as_it_was(folders):
    ours = parity.fast(*folders)
    batch = parity.micro_batch()
    before = ours.gradients(batch)
    parity.held_out_loss(ours.loaded.decoder, documents(), 128, layout_of(ours))
    after = ours.gradients(batch)
    assert before[0] == after[0]
    assert all(torch.equal(after[1][name], value) for name, value in before[1].items())


def test_dropout_comes_back_when_an_evaluation_fails(folders):
    ours = parity.fast(*folders)
    stacks = [stack for layer in ours.loaded.decoder.layers for stack in layer.stacks]

    def fail(_read):
        assert not any(stack.drop for stack in stacks)
        raise MemoryError("full")

    with pytest.raises(MemoryError):
        parity.held_out_loss(ours.loaded.decoder, documents(), 128, layout_of(ours), fail)
    assert all(stack.drop.probability == 0.5 for stack in stacks)


def test_nothing_to_learn_is_no_number(folders):
    ours = parity.fast(*folders)
    loss, count = parity.held_out_loss(ours.loaded.decoder, documents(learned=0.0), 128, layout_of(ours))
    assert np.isnan(loss)
    assert count == 0
    assert np.isnan(parity.held_out_loss(ours.loaded.decoder, [], 128, layout_of(ours))[0])
