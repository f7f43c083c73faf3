"""One pass: the head in chunks, variants of the loss, dropout, and what a failed capture leaves behind."""

from types import SimpleNamespace

import pytest
import torch

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.data.tokens.pack import IGNORED
from burnish_engine.train.fast.fast_model import _STREAMS_PER_STACK
from burnish_engine.train.fast.fast_trainer import dropout_seed
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_kernels.lora_linear import reference as lora_reference

from support.models import parity, tiny_models

BATCH = parity.micro_batch()
STACKS = {"mixer_in": 0, "mixer_out": 1, "gate_up": 2, "down": 3}


@pytest.fixture(scope="module")
def llama(bases, tmp_path_factory):
    return bases("llama"), tiny_models.lora(bases("llama"), tmp_path_factory.mktemp("adapter") / "llama", rank=5)


@pytest.mark.full
@pytest.mark.parametrize("head_rows", [1, 16, 80, 128, 500])
def test_the_size_of_the_heads_chunks_does_not_matter(llama, head_rows):
    ours = parity.fast(*llama)
    loss, gradients = ours.gradients(BATCH, head_rows=64)
    other_loss, others = ours.gradients(BATCH, head_rows=head_rows)
    assert other_loss == pytest.approx(loss, rel=1e-6)
    assert parity.worst(others, gradients) < 1e-5


@pytest.mark.full
@pytest.mark.parametrize("rows", [128, 192, 1024])
def test_padding_adds_nothing(llama, rows):
    ours = parity.fast(*llama)
    loss, gradients = ours.gradients(BATCH, rows=116 + 12)
    other_loss, others = ours.gradients(BATCH, rows=rows)
    assert other_loss == pytest.approx(loss, rel=1e-6)
    assert parity.worst(others, gradients) < 1e-5


@pytest.mark.full
def test_every_row_of_a_full_pass_can_be_supervised(llama):
    """No row is left over for the head's padding but the last, which ends a document."""
    batch = parity.micro_batch((64, 64), learned=1.0)
    assert batch.supervised_tokens == 126
    ours, theirs = parity.fast(*llama), parity.peft(*llama)
    loss, gradients = parity.peft_gradients(theirs, batch)
    our_loss, found = ours.gradients(batch, rows=128, head_rows=48)
    assert our_loss == pytest.approx(loss, rel=1e-5)
    assert parity.worst(found, gradients) < 1e-4


def test_a_pass_without_supervised_rows_does_nothing(llama, monkeypatch):
    batch = parity.micro_batch((5, 9), learned=0.0)
    monkeypatch.setattr(MicroBatchStep, "_forward", lambda self: pytest.fail("it ran"))
    loss, gradients = parity.fast(*llama).gradients(batch)
    assert loss == 0.0
    assert not any(gradient.any() for gradient in gradients.values())


class SameMasks(torch.nn.Module):
    """Dropout that keeps what ours keeps, for one document at a time of a packed pass."""

    def __init__(self, seed, stream, probability, place):
        super().__init__()
        self.seed, self.stream, self.probability, self.place = seed, stream, probability, place

    def forward(self, x):
        rows = self.place.start + x.shape[1]
        kept = lora_reference.kept(rows, x.shape[2], self.seed, self.stream, self.probability)
        return x * kept[self.place.start :] / (1.0 - self.probability)


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "phi3"])
def test_gradients_under_dropout_are_those_of_the_same_masks(bases, tmp_path, name):
    base, probability = bases(name), 0.4
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5)
    config = adapter / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_dropout": 0.0', f'"lora_dropout": {probability}'))
    ours = parity.fast(base, adapter)
    assert ours.loaded.plan.dropout == probability
    ours.model.dropout_seed.fill_(dropout_seed(7, 3))

    tuned, place = parity.peft(base, adapter), SimpleNamespace(start=0)
    layers = {key.removeprefix("base_model.model."): layer for key, layer in tuned.named_modules()}
    streams = set()
    for adapted in ours.loaded.plan.modules:
        module = adapted.module
        stack = getattr(ours.loaded.decoder.layers[module.layer].weights, module.stack).stack
        index = [one.first_row for one in stack.adapters].index(module.first_row)
        stream = _STREAMS_PER_STACK * (4 * module.layer + STACKS[module.stack]) + index
        streams.add(stream)
        layers[module.path].lora_dropout["default"] = SameMasks(ours.model.dropout_seed, stream, probability, place)
    assert len(streams) == len(ours.loaded.plan.modules)

    total = 0.0
    for one, start in zip(parity.single(BATCH), BATCH.boundaries, strict=False):
        place.start = int(start)
        labels = torch.from_numpy(one.labels)
        logits = tuned(input_ids=torch.from_numpy(one.input_ids)[None]).logits[0].float()
        loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
        (loss / BATCH.supervised_tokens).backward()
        total += float(loss.detach()) / BATCH.supervised_tokens
    theirs = {
        key.replace(".default.", "."): value.grad for key, value in tuned.named_parameters() if value.requires_grad
    }
    losses = set()
    for keep in LEVEL_NAMES:
        loss, found = ours.gradients(BATCH, keep)
        assert loss == pytest.approx(total, rel=1e-5)
        assert parity.worst(found, theirs) < 1e-4
        losses.add(loss)
    assert len(losses) == 1
    ours.model.dropout_seed.fill_(dropout_seed(7, 4))
    assert ours.gradients(BATCH)[0] not in losses


def test_seeds_of_dropout_are_all_different_and_fit_64_bits():
    runs = (0, 1, 2**31, 2**32 - 1)
    seeds = {dropout_seed(run, index) for run in runs for index in (0, 1, 2, 1000, 2**31, 2**32 - 1)}
    assert len(seeds) == len(runs) * 6
    torch.tensor(sorted(seeds), dtype=torch.int64)


def test_a_capture_that_fails_half_way_leaves_nothing_behind(llama, monkeypatch):
    """The forward pass was recorded, the head was not: nothing of the recording may be used or kept alive."""
    from contextlib import contextmanager

    ours = parity.fast(*llama)
    layout, buffer, counts = ours.upload(BATCH)
    loss = torch.zeros(1)
    program = MicroBatchStep(ours.model, layout, buffer, ["products"] * 2, loss)
    recorded = []

    @contextmanager
    def recording(graph, **_):
        yield
        recorded.append(graph)
        if len(recorded) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    with pytest.raises(RuntimeError, match="not permitted"):
        program.capture((0, 0), None)
    assert not program.captured
    assert program._done is None
    assert program._gradient_TE is None
    loss.zero_()
    ours.model.optimizer.grad.zero_()
    program.run(counts)
    fresh = parity.fast(*llama)
    expected, _ = fresh.gradients(BATCH)
    assert float(loss) == expected
    assert torch.equal(ours.model.optimizer.grad, fresh.model.optimizer.grad)
