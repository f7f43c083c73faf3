"""Captured steps of the fast engine: the same bits as eager ones, without a wait; and captures that fail."""

import gc
from collections import Counter
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.contract.recipe.recipe_train import MaskingSection, TrainSection
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.models.decoder.experts import expert_linear
from burnish_engine.models.device.precision import exact_products
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep

from support import parity, tiny_models
from support.steps import PASSES, figures, prefetcher, train, trainer

CUDA = torch.device("cuda")


@pytest.fixture
def failing(adapted_llama, monkeypatch):
    """A trainer whose captures fail, and the bucket and mode of each that it tries."""
    trained, tries = trainer(*adapted_llama[:2]), []
    trained._wants_graphs, trained._pool = True, (0, 1)

    def capture(self, pool, stream, *, mode, **_kind):
        tries.append((self.layout.capacity, mode))
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with ...")

    monkeypatch.setattr(MicroBatchStep, "capture", capture)
    monkeypatch.setattr(trained, "_capture", lambda program, **_kind: _captured_without_a_gpu(trained, program))
    monkeypatch.setattr(torch.cuda, "use_mem_pool", lambda _pool, _device: nullcontext())
    return trained, tries


def test_a_failed_capture_is_told_once_and_training_goes_on(adapted_llama, failing):
    trained, tries = failing
    results, param = train(trained, [PASSES[0]] * 4)
    assert tries == [(64, "global")]  # at the second pass of this bucket, and never again
    assert "(CUDA error: operation not permitted when stream is capturing)" in trained.problem
    assert "Compile with" not in trained.problem
    eager, other = train(trainer(*adapted_llama[:2]), [PASSES[0]] * 4)
    assert [result.loss for result in results] == [result.loss for result in eager]
    assert torch.equal(param, other)


def test_the_threads_of_a_process_group_do_not_spoil_captures(failing, monkeypatch):
    """They live as long as the group, so also while the leader makes a dry run, which it exchanges nothing in."""
    trained, tries = failing
    assert trained.exchange is None
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    train(trained, [PASSES[0]] * 4)
    assert [mode for _, mode in tries] == ["thread_local"]


def _captured_without_a_gpu(trained, program):
    trained.stream = object()
    try:
        FastTrainer._capture(trained, program, estimates_kl=False)
    finally:
        trained.stream = None


@pytest.mark.parametrize("error", [RuntimeError(), RuntimeError("not permitted when stream is capturing\nCompile")])
def test_any_failure_of_a_capture_has_words(adapted_llama, monkeypatch, error):
    trained = trainer(*adapted_llama[:2])
    trained._wants_graphs, trained._pool = True, (0, 1)

    def capture(*_, **_kind):
        raise error

    monkeypatch.setattr(MicroBatchStep, "capture", capture)
    _captured_without_a_gpu(trained, next(iter(trained._steps.values())))
    assert not trained._wants_graphs
    assert trained.problem.startswith("CUDA graphs could not be captured (")
    assert "training goes on" in trained.problem
    assert "\n" not in trained.problem


def gpu_trainer(adapted_llama, **options):
    exact_products()
    return trainer(adapted_llama[0], options.pop("adapter", adapted_llama[1]), device=CUDA, **options)


GPU_KINDS = {
    "fp32": {"dtype": torch.float32},
    "bf16": {"dtype": torch.bfloat16},
    "fp16": {"dtype": torch.float16},
    "NF4": {"dtype": torch.bfloat16, "quantize": True},
    "FP8 stored": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("fp8", "")},
    "FP8 products": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("fp8", "fp8")},
    "FP8 products, recomputing in tiles": {
        "dtype": torch.bfloat16,
        "eight_bits": EightBitUse("fp8", "fp8"),
        "keep": "attention",
        "mlp_rows": 40,
    },
    "NF4, FP8 products": {"dtype": torch.float16, "quantize": True, "eight_bits": EightBitUse("", "fp8")},
    "INT8 products": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("int8", "int8")},
    "NF4, INT8 products": {"dtype": torch.float16, "quantize": True, "eight_bits": EightBitUse("", "int8")},
    "MXFP8 products": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("mxfp8", "mxfp8")},
    "MXFP8 products, recomputing in tiles": {
        "dtype": torch.bfloat16,
        "eight_bits": EightBitUse("mxfp8", "mxfp8"),
        "keep": "attention",
        "mlp_rows": 40,
    },
    "NF4, MXFP8 products": {"dtype": torch.float16, "quantize": True, "eight_bits": EightBitUse("", "mxfp8")},
    "recomputing": {"dtype": torch.bfloat16, "keep": "attention"},
    "offloading": {"dtype": torch.bfloat16, "keep": "offloaded"},
    "tiling on the host": {"dtype": torch.bfloat16, "keep": "host", "mlp_rows": 40},
    "input alone": {"dtype": torch.bfloat16, "keep": "input"},
    "input alone, in tiles": {"dtype": torch.bfloat16, "keep": "input", "mlp_rows": 40},
    "Magma": {"dtype": torch.bfloat16, "masking": MaskingSection(kind="magma")},
    "Magma after the step": {"dtype": torch.float32, "masking": MaskingSection(kind="magma", momentum="after")},
    "Muon": {"dtype": torch.float16, "section": TrainSection(optimizer="muon")},
    "Muon with Magma": {
        "dtype": torch.bfloat16,
        "section": TrainSection(optimizer="muon"),
        "masking": MaskingSection(kind="magma"),
    },
    "SkipUpdate": {"dtype": torch.bfloat16, "masking": MaskingSection(kind="skip_update")},
}


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
    assert all(captured._steps[layout].captured for layout in captured._ran)
    for graphs in (False, True):
        others, other = train(gpu_trainer(adapted_llama, graphs=graphs, **options), order, 2)
        assert figures(others) == figures(results)
        assert torch.equal(other, param)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["lfm2", "lfm3"])
@pytest.mark.parametrize("kind", ["fp32", "bf16", "NF4", "offloading", "tiling on the host", "input alone"])
def test_graphs_of_a_hybrid_give_the_same_bits(tmp_path, kind, shape):
    """Short convolutions and attention in one model: captured, eager, and with other layers offloaded."""
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
        assert all(trained._steps[layout].captured == trained._wants_graphs for layout in trained._ran)
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


@pytest.fixture(scope="module")
def six_layers(tmp_path_factory):
    """Folders of a tiny model of six layers, and of adapters for it without and with dropout."""
    folder = tmp_path_factory.mktemp("six")
    base = tiny_models.make("qwen3", folder / "base", num_hidden_layers=6)
    plain, dropping = (tiny_models.lora(base, folder / name, rank=5) for name in ("plain", "dropping"))
    config = dropping / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_dropout": 0.0', '"lora_dropout": 0.2'))
    return base, plain, dropping


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
            assert all(trained._steps[layout].captured == graphs for layout in trained._ran)
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
        layout = max(trained._steps, key=lambda one: one.capacity)
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


@contextmanager
def no_waiting():
    """Make it an error if the host waits for the device inside."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_steps_with_layers_in_host_memory_never_wait_for_the_device(six_layers):
    trained = gpu_trainer(six_layers, dtype=torch.bfloat16, quantize=True, layers_on_host=frozenset(range(6)))
    with prefetcher(trained, PASSES * 8, 2) as ring:
        for _ in range(6):
            trained.step(ring)
        list(trained.results(wait=True))
        with no_waiting():
            for _ in range(10):
                trained.step(ring)
        assert len(list(trained.results(wait=True))) == 10


@pytest.mark.gpu
def test_weights_that_are_not_page_locked_are_copied_without_capture(six_layers):
    """The same bits, and the reason is told."""
    wanted, param = train(gpu_trainer(six_layers, dtype=torch.bfloat16), PASSES[:1] * 4)
    trained = gpu_trainer(six_layers, dtype=torch.bfloat16, layers_on_host=frozenset(range(6)), lockable_weights=1000)
    results, other = train(trained, PASSES[:1] * 4)
    assert "memory.weights" in trained.problem
    assert not any(step.captured for step in trained._steps.values())
    assert [one.loss for one in results] == [one.loss for one in wanted]
    assert torch.equal(other, param)


def release_all_unused() -> None:
    """The allocator's, and cuBLAS's workspaces: a new trainer's stream may be that of another one, long gone."""
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


@pytest.mark.gpu
def test_the_first_pass_leaves_nothing_in_the_way_of_others(adapted_llama, monkeypatch):
    """Not even cuBLAS's workspace, which is taken before it."""
    release_all_unused()
    trained, before = gpu_trainer(adapted_llama, dtype=torch.bfloat16), []

    def first(self, *rest):
        before.append(torch.cuda.memory_allocated())
        return make(self, *rest)

    make = FastTrainer._pass
    monkeypatch.setattr(FastTrainer, "_pass", first)
    with prefetcher(trained, PASSES[:1]) as ring:
        trained.step(ring)
        list(trained.results(wait=True))
    assert torch.cuda.memory_allocated() - before[0] < 2**20


@pytest.mark.gpu
def test_further_buckets_take_no_memory_of_their_own(adapted_llama):
    """Neither their first passes, which are eager, nor their graphs: the largest bucket's memory does for all."""
    passes = {rows: parity.micro_batch((128,) * (rows // 128)) for rows in (4096, 8192, 16384)}
    largest, medium, small = 16384, 8192, 4096
    peaks = []
    for order in ([largest] * 4, [largest, largest, medium, medium, small, small, medium, largest, small]):
        release_all_unused()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved()
        trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16, rows=sorted(passes))
        train(trained, [passes[rows] for rows in order])
        assert {layout.capacity for layout in trained._ran} == set(order)
        assert all(trained._steps[layout].captured for layout in trained._ran)
        peaks.append(torch.cuda.max_memory_reserved() - before)
        del trained
    assert peaks[1] < 1.1 * peaks[0]


def held():
    """Bytes that torch holds once it gave back what it can, workspaces of cuBLAS for each stream among it."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


@pytest.mark.gpu
@pytest.mark.parametrize("level", ["products", "offloaded", "host", "input", "weights"])
@pytest.mark.parametrize("spoils", [False, True])
def test_a_capture_that_fails_half_way_leaves_nothing_behind(adapted_llama, six_layers, monkeypatch, level, spoils):
    """With copies on their way: the pass goes on eagerly, with the same losses, and no memory is lost.

    What is not permitted in a capture spoils it too, so that the copies' stream cannot be brought back to it.
    """
    options = {"dtype": torch.bfloat16, "keep": level, "rows": (8192,)}
    folders = adapted_llama
    if level == "weights":
        folders, options = six_layers, options | {"keep": "products", "layers_on_host": frozenset(range(6))}
    passes = [parity.micro_batch((128,) * 64)] * 5
    wanted, _ = train(gpu_trainer(folders, graphs=False, **options), passes)
    before = held()
    real = DecoderLayer.forward

    def forward(self, *rest, **options):
        if torch.cuda.is_current_stream_capturing() and self.shape.index == 1:
            if spoils:
                torch.cuda.synchronize()
            raise RuntimeError("broken on purpose")
        return real(self, *rest, **options)

    monkeypatch.setattr(DecoderLayer, "forward", forward)
    trained = gpu_trainer(folders, **options)
    results, _ = train(trained, passes)
    assert ("broken on purpose" in trained.problem) is not spoils
    assert trained.problem.startswith("CUDA graphs could not be captured (")
    assert [one.loss for one in results] == [one.loss for one in wanted]
    del trained
    assert spoils or held() <= before + (4 << 20)


@pytest.mark.gpu
def test_evaluation_takes_the_passes_memory(adapted_llama):
    """And leaves training as it was: the same bits as without it, and hardly a byte more."""
    batch = parity.micro_batch((128,) * 64)
    held_out = [Document(batch.input_ids[a:b].astype(np.int32), np.ones(b - a, dtype=bool), 0, "held out")
                for a, b in pairwise(batch.boundaries)]  # fmt: skip
    found = []
    for evaluates in (False, True):
        trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16, rows=(8192,), head_rows=8192)
        layout = next(iter(trained._steps))
        with prefetcher(trained, [batch] * 6) as ring:
            for _ in range(3):
                trained.step(ring)
            list(trained.results(wait=True))
            reserved = torch.cuda.memory_reserved()
            if evaluates:
                for _ in range(3):
                    with trained.on_stream(), trained.idle_memory():
                        parity.held_out_loss(trained.model.loaded.decoder, held_out, 8192, layout)
                assert torch.cuda.memory_reserved() <= reserved + (8 << 20)
            for _ in range(3):
                trained.step(ring)
            found.append(figures(trained.results(wait=True)))
    assert found[0] == found[1]


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
        assert bool(graphs) == any(program.captured for program in trained._steps.values())
        sums.append(trained.model.optimizer.grad.clone())
    assert sums[0].any()
    assert torch.equal(*sums)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", GPU_KINDS)
def test_a_step_never_waits_for_the_device(adapted_llama, kind):
    """From the upload to reading the results back, once every bucket was captured."""
    trained = gpu_trainer(adapted_llama, adapter=adapted_llama[2], **GPU_KINDS[kind])
    with prefetcher(trained, PASSES * 8, 2) as ring:
        for _ in range(6):
            trained.step(ring)
        list(trained.results(wait=True))
        with no_waiting():
            found = []
            for _ in range(10):
                trained.step(ring)
                found += trained.results()
            found += trained.results(wait=True)
    assert [result.step for result in found] == list(range(7, 17))
    assert all(result.seconds > 0 for result in found)


@pytest.mark.gpu
def test_eager_steps_do_not_wait_either(adapted_llama):
    trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16, graphs=False)
    with prefetcher(trained, PASSES * 4) as ring:
        trained.step(ring)
        list(trained.results(wait=True))
        with no_waiting():
            for _ in range(6):
                trained.step(ring)


WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cuStreamSynchronize")


@pytest.mark.gpu
def test_a_trace_of_twenty_steps_holds_no_wait(adapted_llama):
    from torch.profiler import ProfilerActivity, profile

    trained = gpu_trainer(adapted_llama, dtype=torch.bfloat16)
    with prefetcher(trained, PASSES * 12, 1) as ring:
        for _ in range(12):
            trained.step(ring)
        list(trained.results(wait=True))
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
            for _ in range(20):
                trained.step(ring)
                list(trained.results())
            list(trained.results(wait=True))
    calls = Counter(event.name for event in trace.events())
    assert calls["cudaGraphLaunch"] >= 20 * 4  # forward, head, backward, update
    # The profiler itself waits for the device where it stops.
    assert {name: calls[name] for name in WAITS if calls[name] > (name == "cudaDeviceSynchronize")} == {}


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
