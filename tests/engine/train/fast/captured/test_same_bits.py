"""Captured steps of the fast engine give the same bits as eager ones, whatever layers keep and wherever they lie."""

import numpy as np
import pytest
import torch
from engine.train.fast.captured.gpu_runs import CUDA, GPU_KINDS, gpu_trainer

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.decoder.experts import expert_linear

from support.models import parity, tiny_models
from support.runs.steps import PASSES, figures, prefetcher, train


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("kind", GPU_KINDS)
def test_graphs_and_eager_steps_give_the_same_bits(adapted_llama, kind, dropout):
    """Loss, gradient norm and masters over steps of several buckets; and so do two runs."""
    options = GPU_KINDS[kind] | {"adapter": adapted_llama[2 if dropout else 1]}
    order = [PASSES[i] for i in (3, 0, 2, 1, 0, 3, 1, 2, 0, 3)]
    captured = gpu_trainer(adapted_llama, **options)
    results, param = train(captured, order, 2)
    assert captured.problem == ""
    assert all(captured.steps[layout].captured for layout in captured.ran)
    for graphs in (False, True):
        others, other = train(gpu_trainer(adapted_llama, graphs=graphs, **options), order, 2)
        assert figures(others) == figures(results)
        assert torch.equal(other, param)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["lfm2", "lfm3", "qwen3-5"])
@pytest.mark.parametrize("kind", ["fp32", "bf16", "NF4", "offloading", "tiling on the host", "input alone"])
def test_graphs_of_a_hybrid_give_the_same_bits(tmp_path, kind, shape):
    """Convolutions or delta nets, and attention, in one model: captured, eager, and with other layers offloaded."""
    base = tiny_models.make(shape, tmp_path / "base")
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5)
    order = [PASSES[i] for i in (3, 0, 2, 1, 0, 3)]
    found = []
    for changes in ({}, {"graphs": False}, {"keep": ["input", "offloaded", "host"]}):
        trained = gpu_trainer((base, adapter), **GPU_KINDS[kind] | changes)
        results, param = train(trained, order, 2)
        assert trained.problem == ""
        found.append((figures(results), param))
    for results, param in found[1:]:
        assert results == found[0][0]
        assert torch.equal(param, found[0][1])


@pytest.mark.gpu
@pytest.mark.parametrize("shape", tiny_models.MIXTURES)
@pytest.mark.parametrize(
    "kind",
    [
        "fp32", "bf16", "fp16", "NF4", "NF4, unpacked", "offloading", "tiling on the host", "input alone",
        "FP8 products", "NF4, FP8 products",
    ],
)  # fmt: skip
def test_graphs_of_a_mixture_give_the_same_bits(tmp_path, monkeypatch, kind, shape):
    """Adapted experts compute the same captured, eager, with other layers offloaded and with weights on the host."""
    if kind == "NF4, unpacked":  # as with many tokens an expert
        monkeypatch.setattr(expert_linear, "unpacking_pays", lambda *_given: True)
        kind = "NF4"
    base = tiny_models.make(shape, tmp_path / "base")
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5, experts=2)
    order = [PASSES[i] for i in (3, 0, 2, 1, 0, 3)]
    found = []
    others = ({"graphs": False}, {"keep": ["input", "offloaded", "host"]}, {"layers_on_host": frozenset({0, 1})})
    for changes in ({}, *others):
        trained = gpu_trainer((base, adapter), **GPU_KINDS[kind] | changes)
        results, param = train(trained, order, 2)
        assert trained.problem == ""
        assert all(trained.steps[layout].captured == trained.wants_graphs for layout in trained.ran)
        found.append((figures(results), param))
    for results, param in found[1:]:
        assert results == found[0][0]
        assert torch.equal(param, found[0][1])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["fp32", "bf16", "NF4"])
@pytest.mark.parametrize("mlp_rows", [0, 40])
def test_what_layers_keep_does_not_change_a_bit_on_a_gpu(adapted_llama, kind, mlp_rows):
    """Captured, with copies to the host and back: plans that tile alike, and one whose layers do not keep the same."""
    order = [PASSES[i] for i in (3, 0, 2, 1, 0, 3)]
    found = []
    mixed = ["input", "offloaded", "host"]
    for keep in (*LEVEL_NAMES, mixed):
        trained = gpu_trainer(adapted_llama, keep=keep, mlp_rows=mlp_rows, **GPU_KINDS[kind])
        results, param = train(trained, order, 2)
        assert trained.problem == ""
        found.append((figures(results), param.clone()))
    for results, param in found[1:]:
        assert results == found[0][0]
        assert torch.equal(param, found[0][1])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "dropout"), [("fp32", False), ("bf16", True), ("fp16", False), ("NF4", False), ("NF4", True)]
)
def test_layers_in_host_memory_train_the_same_bits_on_a_gpu(six_layers, kind, dropout):
    """Captured and eager, with activations in host memory too, and in chunks."""
    order = [PASSES[i] for i in (3, 0, 2, 1, 0, 3, 1, 2)]
    found = {0: [], 40: []}
    for keep, mlp_rows in (("products", 0), (["input", "offloaded", "host"], 0), ("host", 40), ("products", 40)):
        for layers, graphs in (((), True), (range(6), True), (range(6), False), ((0, 1, 3, 5), True)):
            trained = gpu_trainer(
                six_layers, adapter=six_layers[2 if dropout else 1], keep=keep, mlp_rows=mlp_rows, graphs=graphs,
                layers_on_host=frozenset(layers), **GPU_KINDS[kind],
            )  # fmt: skip
            results, param = train(trained, order, 2)
            assert trained.problem == ""
            assert all(trained.steps[layout].captured == graphs for layout in trained.ran)
            found[mlp_rows].append((figures(results), param))
    for own in found.values():
        assert all(results == own[0][0] and torch.equal(param, own[0][1]) for results, param in own[1:])


@pytest.mark.gpu
def test_evaluation_between_captured_steps_with_layers_in_host_memory(six_layers):
    """It leaves other layers in the slots, and training as it was."""
    batch = parity.micro_batch((61,), seed=1)
    held_out = [Document(batch.input_ids.astype(np.int32), np.ones(batch.tokens, dtype=bool), 0, "held out")]
    found = []
    for evaluates in (False, True):
        trained = gpu_trainer(six_layers, dtype=torch.bfloat16, quantize=True, layers_on_host=frozenset(range(6)))
        layout = max(trained.steps, key=lambda one: one.capacity)
        with prefetcher(trained, PASSES * 4) as ring:
            for number in range(16):
                trained.step(ring)
                if evaluates and number % 3 == 2:
                    list(trained.results(wait=False))
                    with trained.on_stream(), trained.idle_memory():
                        parity.held_out_loss(trained.model.loaded.decoder, held_out, 64, layout)
            list(trained.results(wait=True))
        found.append(trained.model.optimizer.param.clone())
    assert torch.equal(*found)


@pytest.mark.gpu
def test_captured_gradients_have_the_bits_of_eager_ones(adapted_llama):
    """Without an update between: four passes' gradients, accumulated."""
    sums = []
    for graphs in (False, True):
        trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16, graphs=graphs)
        with prefetcher(trained, [*PASSES, *PASSES, *PASSES]) as ring:
            for _ in range(8):
                trained.step(ring)
            with trained.on_stream():
                for _ in range(4):
                    trained._pass(ring, ring.next())
        torch.cuda.synchronize()
        assert bool(graphs) == any(program.captured for program in trained.steps.values())
        sums.append(trained.model.optimizer.grad.clone())
    assert sums[0].any()
    assert torch.equal(*sums)


@pytest.mark.gpu
def test_steps_after_evaluation_on_the_usual_stream_see_nothing_half_done(adapted_llama):
    """Weights changed on the current stream just before a step are what the step computes with."""
    results = []
    for wait in (True, False):
        trained = gpu_trainer(adapted_llama, dtype=torch.float32)
        with prefetcher(trained, PASSES) as ring:
            trained.step(ring)
            list(trained.results(wait=True))
            optimizer = trained.model.optimizer
            torch.randn(4096, 4096, device=CUDA) @ torch.randn(4096, 4096, device=CUDA)
            optimizer.param.mul_(0.5)
            optimizer.write_compute_copies()
            if wait:
                torch.cuda.synchronize()
            trained.step(ring)
            results += list(trained.results(wait=True))
    assert results[0].loss == results[1].loss
