"""Steps without cached metadata, copies ahead and one-sort routing: they do more work for the same bits."""

import json

import pytest
import torch

from burnish_engine.bench import shapes
from burnish_engine.bench.step_options import StepOptions
from burnish_engine.models.decoder.experts import expert_half
from burnish_engine.models.host_memory.offloader import Offloader
from burnish_engine.train.fast import packed_batch
from burnish_kernels.moe_sort.op import sort_by_expert

from bench.step import ablation as module
from bench.step.ablation import PARTS, RebuiltMetadata, ablation, ablation_table, sort_expert_by_expert, without

TINY = {
    "model_type": "qwen3", "vocab_size": 40_064, "head_dim": 32, "hidden_act": "silu", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
}  # fmt: skip
MIXTURE = {
    **TINY, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "norm_topk_prob": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(shapes.CONFIGS, "dense", TINY)
    monkeypatch.setitem(shapes.CONFIGS, "mixture", MIXTURE)


def options(**changes):
    given = {"shape": "mixture", "tokens": 256, "precision": "fp32", "steps": 2, "warmup": 2, "device": "cpu"}
    return StepOptions(**given | {"keep": ("input",)} | changes)


@pytest.fixture
def used(monkeypatch):
    """The stand-ins that were used: their names, and how often."""
    counts = dict.fromkeys(PARTS, 0)

    def counted(part, owner, name):
        real = getattr(owner, name)

        def call(*given, **named):
            counts[part] += 1
            return real(*given, **named)

        return call

    find = counted("metadata", module.Documents, "from_boundaries")
    monkeypatch.setattr(module.Documents, "from_boundaries", find)
    for part, position in (("reload", 1), ("routing", 0)):
        owner, name, stand_in = module.WITHOUT[part][position]
        counting = counted(part, type("Holder", (), {"call": staticmethod(stand_in)}), "call")
        replaced = [*module.WITHOUT[part]]
        replaced[position] = (owner, name, counting)
        monkeypatch.setitem(module.WITHOUT, part, replaced)
    return counts


@pytest.mark.full
def test_each_choice_of_parts_trains_the_same_bits(used):
    report = ablation(options())
    assert [row["on"] for row in report["rows"]] == [[], ["metadata"], ["reload"], ["routing"], list(PARTS)]
    assert report["same_bits"]
    assert all(row["loss"] == report["rows"][0]["loss"] for row in report["rows"])
    assert report["rows"][0]["loss"][0] != report["rows"][0]["loss"][1]
    passes, layers = 4, 3
    # Three of five rows lack each part; a layer attends forward, again, and backward.
    assert used == {"metadata": 3 * passes * layers * 3, "reload": 3 * passes * layers, "routing": 3 * passes * layers}


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["dense", "mixture"])
def test_on_a_gpu_each_choice_trains_the_same_bits_eager_and_captured(shape):
    given = {"steps": 4, "warmup": 3, "tokens": 2048, "device": "cuda", "precision": "bf16", "method": "qlora"}
    report = ablation(options(shape=shape, weights=("card", "host", "host"), **given))
    assert [row["graphs"] for row in report["rows"]] == ["off"] * (len(report["rows"]) - 1) + ["captured"]
    assert report["same_bits"]
    peaks = {tuple(row["on"]): row["peak_allocated_gib"] for row in report["rows"] if row["graphs"] == "off"}
    assert peaks["metadata",] == pytest.approx(peaks[()], abs=1 / 1024)  # no workspace of an earlier row's stream
    assert peaks["reload",] >= peaks["metadata",] - 1 / 1024  # has a second buffer


@pytest.mark.full
def test_parts_that_a_model_does_not_have_are_not_measured():
    dense = ablation(options(shape="dense", warmup=1, steps=1))
    assert [row["on"] for row in dense["rows"]] == [[], ["metadata"], ["reload"], ["metadata", "reload"]]
    kept = ablation(options(shape="dense", keep=("products",), warmup=1, steps=1))
    assert [row["on"] for row in kept["rows"]] == [[], ["metadata"]]


@pytest.mark.full
def test_rows_that_differ_are_told(monkeypatch):
    """A stand-in that sends tokens elsewhere would measure another model."""
    real = sort_expert_by_expert

    def wrong(ids, experts, **given):
        return real(ids.flip(0).contiguous(), experts, **given)

    monkeypatch.setitem(module.WITHOUT, "routing", [(expert_half, "sort_by_expert", wrong)])
    assert not ablation(options(warmup=1, steps=1))["same_bits"]


def test_everything_is_back_afterwards():
    before = packed_batch.SequenceMetadata, expert_half.sort_by_expert, Offloader.prefetch
    with pytest.raises(ZeroDivisionError), without(PARTS):
        assert packed_batch.SequenceMetadata is RebuiltMetadata
        raise ZeroDivisionError
    assert (packed_batch.SequenceMetadata, expert_half.sort_by_expert, Offloader.prefetch) == before


@pytest.mark.parametrize(("tokens", "experts"), [(300, 7), (1, 5), (257, 1)])
def test_a_search_for_each_expert_finds_the_sorted_order(tokens, experts):
    ids = torch.randint(0, experts, (tokens, 2), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    ids[ids == 2] = 0  # an expert without tokens
    one, other = sort_by_expert(ids, experts, tile_rows=64), sort_expert_by_expert(ids, experts, tile_rows=64)
    for name in ("order", "inverse", "offsets", "tiles", "tile_starts"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_the_script_prints_a_report(monkeypatch, capsys):
    arguments = ["--shape", "dense", "--tokens", "64", "--precision", "fp32", "--steps", "1", "--warm-up", "2"]
    monkeypatch.setattr("sys.argv", ["ablation", "--device", "cpu", *arguments])
    module.main()
    printed = ablation_table([json.loads(capsys.readouterr().out)])
    assert "metadata prepared once" in printed
    assert "copies back" not in printed  # no layer offloads


def row(on, step_ms, gib, graphs="off"):
    return {"on": on, "step_ms": step_ms, "peak_allocated_gib": gib, "graphs": graphs}


def test_the_table_has_both_models_beside_the_published_gains():
    mixture = {"shape": "mixture", "tokens": 4096, "rows": [
        row([], 300.0, 9.0), row(["metadata"], 250.0, 9.0), row(["reload"], 290.0, 9.25), row(["routing"], 240.0, 9.0),
        row([*PARTS], 200.0, 9.25), row([*PARTS], 150.0, 9.5, "captured"), row([*PARTS], 1.0, 1.0, "It failed."),
    ]}  # fmt: skip
    dense = {"shape": "dense", "tokens": 4096, "rows": [
        row([], 100.0, 1.0), row(["metadata"], 80.0, 1.0), row(["reload"], 100.0, 1.5), row([*PARTS[:2]], 80.0, 1.5),
    ]}  # fmt: skip
    _, line, *rows = ablation_table([dense, mixture]).splitlines()
    cells = [[cell.strip() for cell in one.strip("|").split("|")] for one in rows]
    assert {len(one) for one in cells} == {line.count("---")} == {8}
    by_name = {one[0]: one[1:] for one in cells}
    assert by_name["metadata prepared once"] == ["80.0", "+25.0 %", "1.00", "250.0", "+20.0 %", "9.00", "+14.3 %"]
    assert by_name["routing by one sort"] == ["", "", "", "240.0", "+25.0 %", "9.00", "+15 %"]
    assert by_name["all"][:6] == ["80.0", "+25.0 %", "1.50", "200.0", "+50.0 %", "9.25"]
    assert by_name["all, captured"][:6] == ["", "", "", "150.0", "+100.0 %", "9.50"]
    assert "routing by one sort" not in ablation_table([dense])
