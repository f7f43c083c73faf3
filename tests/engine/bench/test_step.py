"""Measuring steps: what a report says, which layers keep what, and how a trace is added up."""

import gc
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from burnish_engine.bench import shapes, step
from burnish_engine.bench.documents import LAST_ID, packs, preference_documents, recorded_packs
from burnish_engine.bench.step import StepBench, kind_of, summarize
from burnish_engine.bench.step_options import StepOptions, parse_keep
from burnish_engine.contract.errors import DoesNotFitError, UsageError
from burnish_engine.contract.garbage import collect_seldom
from burnish_engine.models.decoder.frozen.coded_weights import Nf4CodedWeight, StoredCodedWeight
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight
from burnish_kernels.moe_route import op as moe_route

VOCABULARY = 40_064
TINY = {
    "model_type": "qwen3", "vocab_size": VOCABULARY, "head_dim": 32, "hidden_act": "silu", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(shapes.CONFIGS, "tiny", TINY)


def options(**changes):
    return StepOptions(
        **{"shape": "tiny", "tokens": 256, "precision": "fp32", "steps": 2, "warmup": 1, "device": "cpu"} | changes
    )


@pytest.mark.full
def test_a_report_says_what_was_measured():
    bench = StepBench(options(keep=("narrow", "products")))
    assert bench.plan.layers == ("narrow", "products", "products")
    report = bench.run()
    wanted = {
        "engine": "burnish",
        "shape": "tiny",
        "method": "lora",
        "tokens": 256,
        "precision": "fp32",
        "device": "CPU",
    }
    assert {key: report[key] for key in wanted} == wanted
    assert report["tok_s"] > 0
    assert report["step_ms"] > 0
    assert 0.5 < report["fill"] <= 1.0
    assert report["graphs"] == "off"
    assert report["loss"][0] == pytest.approx(math.log(VOCABULARY), rel=0.02)  # random weights know nothing
    assert all(norm > 0 for norm in report["grad_norm"])
    assert "peak_allocated_gib" not in report


@pytest.mark.full
def test_a_slice_has_the_first_layers():
    bench = StepBench(options(layers=2))
    assert len(bench.model.loaded.decoder.layers) == 2
    assert shapes.shape("gpt-oss-20b", 3).layers == shapes.shape("gpt-oss-20b").layers[:3]


def test_a_seed_makes_the_same_weights_packed_or_not():
    spec = shapes.shape("gpt-oss-20b", 1)

    def drawn(seed):
        weights, codes = shapes.RandomWeights(spec, torch.device("cpu"), seed), torch.empty(2, 3, 4, 16).byte()
        weights.read_into("model.layers.0.mlp.experts.down_proj_blocks", codes)
        weights.read_into("model.layers.0.self_attn.q_proj.weight", matrix := torch.empty(4, 5))
        return codes, matrix, weights.read("model.layers.0.mlp.router.weight")

    for one, same, other in zip(*map(drawn, (1, 1, 2)), strict=True):
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


MIXTURE = {
    **TINY, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "norm_topk_prob": True,
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_tokens_of_a_random_mixture_go_to_all_experts(monkeypatch, method):
    """A router of equal rows would send all of them to the first ones."""
    monkeypatch.setitem(shapes.CONFIGS, "tiny", MIXTURE)
    counts, real = [], moe_route.forward

    def forward(*given, **named):
        found = real(*given, **named)
        counts.append(torch.bincount(found[0].flatten(), minlength=8))
        return found

    monkeypatch.setattr(moe_route, "forward", forward)
    report = StepBench(options(method=method)).run()
    assert all(norm > 0 for norm in report["grad_norm"])
    assert sum(counts).min() > 0


@pytest.mark.full
def test_two_measurements_train_the_same():
    first, second = (StepBench(options()).run() for _ in range(2))
    assert first["loss"] == second["loss"]
    assert first["grad_norm"] == second["grad_norm"]
    shorter = StepBench(options(keep=("attention",), steps=1)).run()  # recomputing, too
    for figure in ("loss", "grad_norm"):
        assert shorter[figure][0] == pytest.approx(first[figure][0], rel=1e-5)
        assert shorter[figure][1] != pytest.approx(first[figure][1], rel=1e-5)


@pytest.mark.full
def test_qlora_keeps_its_weights_in_4_bits():
    bench = StepBench(options(method="qlora", precision="bf16"))
    stacks = [stack for layer in bench.model.loaded.decoder.layers for stack in layer.stacks]
    assert all(isinstance(stack.frozen, QuantizedWeight) for stack in stacks)
    assert math.isfinite(bench.run()["loss"][1])


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "kind", "weights"),
    [
        ({"fp8_stored": True}, QuantizedWeight, "fp8"),
        ({"products": "fp8"}, StoredCodedWeight, "fp8"),
        ({"method": "qlora", "products": "fp8"}, Nf4CodedWeight, "nf4"),
        ({"products": "mxfp8"}, StoredCodedWeight, "mxfp8"),
        ({"method": "qlora", "products": "mxfp8"}, Nf4CodedWeight, "nf4"),
    ],
)
def test_8_bits_are_measured_as_a_recipe_would_train_it(changes, kind, weights):
    bench = StepBench(options(precision="bf16", **changes))
    stacks = [stack for layer in bench.model.loaded.decoder.layers for stack in layer.stacks]
    assert all(isinstance(stack.frozen, kind) for stack in stacks)
    report = bench.run()
    assert (report["weights"], report["products"]) == (weights, changes.get("products", "16"))
    assert math.isfinite(report["loss"][1])


def test_8_bit_products_in_fp32_are_not_measured():
    with pytest.raises(UsageError, match="fp32"):
        StepBench(options(products="fp8"))


@pytest.mark.parametrize("name", [name for name in shapes.CONFIGS if name != "tiny"])
def test_every_shape_is_known_and_has_a_vocabulary_for_the_documents(name):
    assert shapes.shape(name).vocab_size > LAST_ID


@pytest.mark.full
def test_passes_are_full_of_documents_of_natural_length():
    plan = packs(4096, count=2000)
    batches = [plan[index] for index in range(len(plan) - 2)]
    lengths = torch.cat([torch.from_numpy(batch.boundaries).diff() for batch in batches])
    assert plan.fill > 0.95
    assert 150 < float(lengths.float().median()) < 215
    assert int(lengths.max()) <= 2048
    assert all(batch.tokens <= 4096 for batch in batches)
    assert [batch.tokens for batch in packs(4096, count=2000)] == [batch.tokens for batch in plan]
    assert int(max(batch.tokens for batch in packs(64, count=50))) <= 64


@pytest.mark.full
def test_a_budget_chooses_the_plan():
    """The least memory keeps the least; too little is refused with what it takes."""
    rich = StepBench(options(tokens=1024, budget_gib=64.0))
    report = rich.run()
    assert report["plan"]["layers"] == "products:3"
    assert report["predicted"]["gib"] < 64
    with pytest.raises(DoesNotFitError) as refusal:
        StepBench(options(tokens=1024, budget_gib=0.01))
    least = float(refusal.value.remedy.split()[3])
    poor = StepBench(options(tokens=1024, budget_gib=least + 0.001)).run()
    assert poor["plan"]["layers"].startswith("attention")
    assert poor["loss"] == pytest.approx(report["loss"], rel=1e-5)


def record(file, passes):
    """Passes of documents as `python tests/bench peer_step` writes them."""
    every = [document for documents in passes for document in documents]
    lengths = np.array([len(document) for document in every])
    np.savez(file, ids=np.concatenate(every), lengths=lengths, documents=np.array([len(one) for one in passes]))
    return file


@pytest.mark.full
def test_recorded_passes_are_measured_in_their_order(tmp_path):
    passes = [[np.arange(10, 40), np.arange(50, 150)], [np.arange(200, 390)], [np.arange(10, 17), np.arange(7)]]
    file = record(tmp_path / "packs.npz", passes)
    plan = recorded_packs(file, 256, 7, vocabulary=VOCABULARY)
    assert len(plan) == 7
    for index, batch in enumerate(plan):
        own = passes[index % 3]
        assert batch.input_ids.tolist() == np.concatenate(own).tolist()
        assert batch.boundaries.tolist() == np.cumsum([0, *map(len, own)]).tolist()
        assert batch.supervised_tokens == batch.tokens - len(own)
    report = StepBench(options(packs=file, steps=3, warmup=3)).run()
    assert report["fill"] == pytest.approx((130 + 190 + 14) / 3 / 256)


def test_a_budget_is_planned_for_the_passes_that_are_trained(tmp_path, monkeypatch):
    planned = []

    def plan_within(budget, section, spec, lengths, *rest, **settings):
        planned.append(lengths)
        return real(budget, section, spec, lengths, *rest, **settings)

    real = step.plan_within
    monkeypatch.setattr(step, "plan_within", plan_within)
    file = record(tmp_path / "packs.npz", [[np.arange(10, 40), np.arange(50, 150)]])
    StepBench(options(packs=file, budget_gib=8.0))
    assert planned == [[30, 100] * 8]


def spoil(file):
    """Change bytes of the first compressed array."""
    content = bytearray(file.read_bytes())
    content[80:96] = b"\xff" * 16
    file.write_bytes(content)


def test_files_that_hold_no_passes_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"190 tokens"):
        recorded_packs(record(tmp_path / "long.npz", [[np.arange(190)]]), 128, 2, vocabulary=VOCABULARY)
    record(tmp_path / "strange.npz", [[np.arange(100, 190)]])
    with pytest.raises(UsageError, match=r"the token 189 of 150"):
        recorded_packs(tmp_path / "strange.npz", 128, 2, vocabulary=150)
    np.savez(tmp_path / "other.npz", ids=np.arange(3))
    np.savez(tmp_path / "short.npz", ids=np.arange(3), lengths=np.array([2]), documents=np.array([1]))
    np.savez(tmp_path / "none.npz", ids=np.arange(0), lengths=np.arange(0), documents=np.arange(0))
    (tmp_path / "text.npz").write_text("no array")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "cut.npz").write_bytes((tmp_path / "strange.npz").read_bytes()[:200])
    np.savez(tmp_path / "square.npz", ids=np.ones((4, 4), int), lengths=np.array([4]), documents=np.array([1]))
    with (tmp_path / "array.npz").open("wb") as one:
        np.save(one, np.arange(3))
    np.savez_compressed(tmp_path / "spoiled.npz", **np.load(tmp_path / "strange.npz"))
    spoil(tmp_path / "spoiled.npz")
    for name in ("other", "short", "none", "text", "empty", "cut", "square", "array", "spoiled", "absent"):
        with pytest.raises(UsageError, match="no passes that could be trained on"):
            recorded_packs(tmp_path / f"{name}.npz", 128, 2, vocabulary=VOCABULARY)


def test_passes_may_be_single_documents():
    plan = packs(512, count=5, length=512)
    assert [batch.boundaries.tolist() for batch in plan] == [[0, 512]] * 5
    assert StepBench(options(one_document=True)).run()["fill"] == 1.0


def test_levels_are_read_with_their_counts():
    assert parse_keep("products") == ("products",)
    assert parse_keep("narrow:2,products") == ("narrow", "narrow", "products")
    by_turns = parse_keep("offloaded+narrow:3,products")
    assert by_turns == ("offloaded", "narrow", "offloaded", "products")
    for text in ("", "everything", "narrow+:2", "narrow+all:0", "narrow:x", "narrow:-1", "narrow:2,"):
        with pytest.raises(UsageError, match="--keep"):
            parse_keep(text)


def test_a_trace_is_added_up_without_counting_overlaps_twice():
    def event(name, start, end, device="CUDA"):
        span = SimpleNamespace(start=start, end=end)
        return SimpleNamespace(name=name, device_type=SimpleNamespace(name=device), time_range=span)

    events = [
        event("nvjet_gemm", 0, 4000),
        event("_attention_forward", 3000, 6000),
        event("Memcpy HtoD", 8000, 9000),
        event("rms_norm", 9000, 10_000),
        event("aten::mm", 0, 50_000, device="CPU"),
        event("Context Sync", 0, 90_000),
    ]
    found = summarize(SimpleNamespace(events=lambda: events), steps=2)
    assert found["total"] == 5.0
    assert found["idle"] == 1.0
    assert (found["gemm"], found["attention"], found["copy"], found["other"]) == (2.0, 1.5, 0.5, 0.5)
    assert found["  nvjet_gemm"] == 2.0


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("sm90_xmma_gemm_bf16", "gemm"), ("_dkdv", "attention"), ("Memset (Device)", "copy"), ("_swiglu", "other"),
        ("forward_kernel", "attention"), ("dq_kernel", "attention"), ("swiglu_forward_kernel", "other"),
    ],
)  # fmt: skip
def test_kernels_are_sorted_by_what_they_are_for(kernel, kind):
    assert kind_of(kernel) == kind


@pytest.mark.full
def test_steps_are_measured_at_python_s_own_pace_of_collecting_garbage():
    usual = gc.get_threshold()
    collect_seldom()
    StepBench(options()).run()
    assert gc.get_threshold() == usual


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("objective", ["dpo", "orpo", "kto"])
def test_preferences_are_learned_on_the_same_passes_as_plain_rows(objective):
    preferring, plain = (
        StepBench(options(tokens=128, **one)) for one in ({"objective": objective}, {"passes_of": objective})
    )
    for number in range(3):
        ours, theirs = preferring.packs[number], plain.packs[number]
        assert (ours.input_ids == theirs.input_ids).all()
        assert (ours.labels == theirs.labels).all()
    report = preferring.run()
    assert report["objective"] == objective
    assert math.isfinite(report["loss"][1])
    assert all(norm > 0 for norm in report["grad_norm"])
    assert plain.run()["loss"][0] == pytest.approx(math.log(VOCABULARY), rel=0.02)
    if objective == "dpo":
        assert report["loss"][0] == pytest.approx(math.log(2), rel=0.1)  # random weights are near the reference


@pytest.mark.gpu
@pytest.mark.parametrize("objective", ["dpo", "orpo", "simpo", "kto"])
def test_on_a_gpu_captured_steps_of_preferences_equal_eager_ones(objective):
    changes = {"objective": objective, "precision": "bf16", "steps": 6, "warmup": 3, "tokens": 2048, "device": "cuda"}
    captured, eager = (StepBench(options(graphs=graphs, **changes)).run() for graphs in (True, False))
    assert captured["graphs"] == "captured"
    assert eager["graphs"] == "off"
    assert captured["loss"] == eager["loss"]
    assert captured["grad_norm"] == eager["grad_norm"]


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_on_a_gpu_steps_are_captured_and_traced(method):
    torch.cuda.reset_peak_memory_stats()  # of tests before it
    bench = StepBench(options(method=method, precision="bf16", steps=4, warmup=3, tokens=2048, device="cuda"))
    report = bench.run()
    assert report["graphs"] == "captured"
    assert 0 < report["peak_allocated_gib"] < 4
    eager = StepBench(
        options(method=method, precision="bf16", steps=4, warmup=3, tokens=2048, device="cuda", graphs=False)
    ).run()
    assert eager["graphs"] == "off"
    assert eager["loss"] == report["loss"]
    assert eager["grad_norm"] == report["grad_norm"]
    traced = bench.profile()
    assert traced["total"] > 0
    assert traced["gemm"] > 0


def test_both_replies_of_a_made_up_pair_follow_the_same_prompt():
    for document in preference_documents(2048, pairs=True)[:20]:
        second, prompt = document.rejected_from, int(document.supervised.argmax())
        assert 0 < prompt < second < len(document.input_ids)
        assert np.array_equal(document.input_ids[second : second + prompt], document.input_ids[:prompt])
        assert not document.supervised[second : second + prompt].any()
