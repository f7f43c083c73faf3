"""Predicted times of experts: those measured on an H100, and what they depend on."""

import pytest

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict import expert_speed
from burnish_engine.advise.predict.expert_speed import expert_work
from burnish_engine.advise.predict.fast_layer import layer_shapes
from burnish_engine.advise.predict.fast_speed import rates
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS, EightBitUse
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.hardware.gpu.gpu_table import gpu_rates

H100 = GpuFacts(index=0, name="NVIDIA H100 80GB HBM3", compute_capability=(9, 0))
RTX = GpuFacts(index=0, name="NVIDIA GeForce RTX 4090", compute_capability=(8, 9))


def work_of(name, tokens, *, nf4=False, gpu=H100, targets=("q_proj",), chunk=0, eight_bits=NO_EIGHT_BITS, **changes):
    recipe = Recipe(adapter=AdapterSection(targets=list(targets)))
    spec = shape(name).model_copy(update=changes)
    size, way = MicroBatchSize(tokens, tokens), {"nf4": nf4, "eight_bits": eight_bits}
    run = FastRun(recipe, spec, size, cuda=True, precision="bf16", gpu=gpu, **way)
    shapes, numbers = layer_shapes(run)
    return expert_work(shapes[numbers[-1]], tokens, chunk, rates(run).experts)


# Products of gate and up, 16,384 tokens and an even router (tests/bench/LOG.md, 2026-11-26). The prediction has the
# tiles of a router that is not even: 64 rows an expert more.
@pytest.mark.parametrize(
    ("name", "nf4", "tflops", "least"),
    [
        ("qwen3-30b-a3b", False, 591, 0.90), ("qwen3-30b-a3b", True, 431, 0.90), ("gpt-oss-20b", False, 518, 0.90),
        ("olmoe-1b-7b", False, 634, 0.90), ("olmoe-1b-7b", True, 525, 0.88),
    ],
)  # fmt: skip
def test_measured_products_are_predicted(name, nf4, tflops, least):
    spec = shape(name)
    experts = spec.experts
    operations = 2 * 16384 * experts.slots * 2 * experts.size * spec.hidden_size
    assert least < operations / work_of(name, 16384, nf4=nf4).gate_up_s / 1e12 / tflops < 1.05


# Milliseconds of products of gate and up that decode their weights, at so many rows an expert of an even router.
@pytest.mark.parametrize(
    ("name", "rows", "measured"),
    [
        ("qwen3-30b-a3b", 128, 0.83), ("qwen3-30b-a3b", 256, 1.20), ("qwen3-30b-a3b", 1024, 3.54),
        ("gpt-oss-20b", 128, 0.75), ("gpt-oss-20b", 512, 1.82), ("gpt-oss-20b", 2048, 6.16),
    ],
)  # fmt: skip
def test_measured_products_that_decode_are_predicted(monkeypatch, name, rows, measured):
    monkeypatch.setattr(expert_speed, "UNPACK_ROWS", {"nf4": 4096, "mxfp4": 4096})  # that they never unpack before
    spec = shape(name)
    tokens = rows * spec.num_experts // spec.experts_per_token
    assert 1000 * work_of(name, tokens, nf4=True).gate_up_s == pytest.approx(measured, rel=0.03)


def test_products_in_fp8_do_not_depend_on_the_rows_in_how_they_read_weights():
    """Codes are made of all experts for each product, so a few rows take most of that; and rows become codes before."""
    few, many = (
        work_of("qwen3-30b-a3b", tokens, nf4=True, eight_bits=EightBitUse("", "fp8")) for tokens in (64, 16384)
    )
    plain = work_of("qwen3-30b-a3b", 16384, nf4=True)
    # 1.56 was measured, 0.65 of it for codes, of which a step has saved five eighths since; and 1.98 in 16 bits.
    assert 1000 * many.gate_up_s == pytest.approx(1.56 - 0.65 * 5 / 8, rel=0.05)
    assert 1000 * plain.gate_up_s == pytest.approx(1.98, rel=0.06)
    assert few.gate_up_s > 0.1 * many.gate_up_s
    hidden, size, slots, codes = 2048, 768, 8, 1.5  # a number of 2 bytes read, a code of one written
    assert many.moved - plain.moved == codes * (hidden + slots * size)
    assert many.moved_in_all - plain.moved_in_all == codes * (2 * hidden + 3 * slots * size)


def test_many_rows_an_expert_are_multiplied_with_unpacked_weights():
    before, after = (work_of("qwen3-30b-a3b", tokens, nf4=True) for tokens in (3056, 3088))
    assert after.gate_up_s < before.gate_up_s  # 191 rows, and 193


def test_a_tile_takes_its_time_however_few_rows_it_has():
    few, more = (work_of("qwen3-30b-a3b", tokens, nf4=True).gate_up_s for tokens in (256, 2048))
    assert few == more  # 16 and 128 rows of each expert
    assert work_of("qwen3-30b-a3b", 4, nf4=True).gate_up_s == pytest.approx(few / 4)  # 32 rows reach 32 experts of 128


def test_other_cards_have_smaller_tiles():
    """Smaller tiles reach 1.35 times less of a card's peak (tests/bench/LOG.md)."""
    shares = [1 / work_of("olmoe-1b-7b", 16384, gpu=gpu).gate_up_s / gpu_rates(gpu).bf16_tflops for gpu in (H100, RTX)]
    assert shares[0] / shares[1] == pytest.approx(1.35, rel=0.03)


def test_chunks_leave_fewer_rows_an_expert():
    whole, parts = (work_of("qwen3-30b-a3b", 16384, nf4=True, chunk=chunk) for chunk in (0, 1024))
    assert parts.gate_up_s > 1.5 * whole.gate_up_s
    assert parts.moved_in_all == whole.moved_in_all


def test_adapters_on_experts_move_more():
    frozen, both = (work_of("qwen3-30b-a3b", 4096, targets=names) for names in (["q_proj"], ["auto"]))
    hidden, size, slots = 2048, 768, 8
    assert both.moved - frozen.moved == slots * (hidden + size)
    assert both.moved_in_all - frozen.moved_in_all == slots * (4 * hidden + 6 * size)
    assert both.gate_up_s > frozen.gate_up_s
    assert (frozen.moved_again, both.moved_again) == (0, slots * hidden)
