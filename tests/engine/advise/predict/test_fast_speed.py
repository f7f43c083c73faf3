"""The fast engine's predicted times against an H100's, and what they go by."""

import pytest

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.fast_shape import attention_operations
from burnish_engine.advise.predict.fast_speed import fast_seconds
from burnish_engine.advise.predict.products_share import products_share
from burnish_engine.advise.predict.transfers import link_gb_s
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.facts.machine import GpuFacts, PcieFacts
from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import (
    LEVEL_NAMES,
    MemoryPlan,
    parse_save_levels,
    parse_weight_places,
)
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.hardware.gpu.topology import beside_others

from support.machines.measured_hosts import four_h100
from support.machines.predicted_steps import H100, seconds

# Milliseconds of a step on one H100, the optimizer included: see tests/bench/LOG.md.
MEASURED = [
    ("qwen3-0.6b", 16384, False, "products", 115.8),
    ("qwen3-0.6b", 16384, False, "rotated", 114.2),
    ("qwen3-0.6b", 16384, False, "all", 113.8),
    ("qwen3-0.6b", 4096, False, "products", 30.0),
    ("llama-3.2-1b", 16384, False, "products", 165.6),
    ("qwen3-4b", 16384, True, "narrow:29,products", 620.2),
    ("qwen3-4b", 16384, True, "offloaded+narrow:30,products", 589.3),
    ("qwen3-4b", 16384, True, "offloaded+narrow:32,products", 588.7),
    ("qwen3-4b", 16384, True, "offloaded+offloaded+narrow:27,products", 604.4),
    ("qwen3-4b", 16384, True, "offloaded+offloaded+narrow:30,products", 608.7),
    ("qwen3-4b", 16384, True, "offloaded:24,narrow:4,products", 747.3),
]


@pytest.mark.parametrize(("name", "tokens", "nf4", "layers", "measured"), MEASURED)
def test_what_was_measured_is_predicted(name, tokens, nf4, layers, measured):
    assert 1000 * seconds(name, tokens, layers, nf4=nf4) == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize(
    ("name", "nf4", "eight_bits", "layers", "measured"),
    [
        ("llama-3.2-1b", False, EightBitUse("fp8", "fp8"), "rotated", 130.8),
        ("qwen3-4b", True, EightBitUse("", "fp8"), "products", 418.0),
    ],
)
def test_what_was_measured_with_products_in_8_bits_is_predicted(name, nf4, eight_bits, layers, measured):
    assert 1000 * seconds(name, 16384, layers, nf4=nf4, eight_bits=eight_bits) == pytest.approx(measured, rel=0.03)


# Milliseconds of the median of ten steps on one H200, and the span of their tokens (tests/bench/LOG.md, 2026-11-29).
H200 = GpuFacts(index=0, name="NVIDIA H200", compute_capability=(9, 0))
H200_SPANS = {16384: 471.0, 8192: 551.0, 4096: 605.0}
ON_H200 = [
    ("qwen2.5-0.5b", False, "", 16384, 84.0), ("qwen2.5-0.5b", False, "int8", 16384, 81.9),
    ("qwen3-1.7b", False, "", 16384, 227.4), ("qwen3-1.7b", False, "int8", 16384, 179.2),
    ("qwen3-0.6b", False, "", 16384, 103.8), ("qwen3-0.6b", False, "int8", 16384, 94.6),
    ("llama-3.2-1b", False, "", 16384, 157.7), ("llama-3.2-1b", False, "int8", 16384, 120.3),
    ("qwen2.5-1.5b", False, "", 16384, 206.4), ("smollm2-360m", False, "", 16384, 72.1),
    ("qwen3-4b", True, "", 16384, 516.0), ("qwen3-4b", True, "int8", 16384, 401.1),
    ("gemma-3-1b", False, "", 16384, 149.2), ("qwen2.5-3b", True, "", 16384, 402.2),
    ("qwen2.5-0.5b", False, "", 4096, 28.7), ("qwen3-1.7b", False, "", 4096, 59.3),
    ("qwen2.5-0.5b", False, "int8", 8192, 46.2), ("llama-3.2-1b", False, "", 8192, 79.9),
    ("qwen3-4b", True, "", 8192, 263.6), ("smollm2-360m", False, "", 8192, 39.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "nf4", "products", "tokens", "measured"), ON_H200)
def test_what_was_measured_on_a_card_of_faster_memory_is_predicted(name, nf4, products, tokens, measured):
    way = {"adapter": AdapterSection(rank=16, alpha=16.0), "eight_bits": EightBitUse("", products)}
    found = seconds(name, tokens, "products", gpu=H200, nf4=nf4, span=H200_SPANS[tokens], **way)
    assert 1000 * found == pytest.approx(measured, rel=0.05)


# Steps of Qwen3.5 on one H200, ms (tests/bench/LOG.md). The bar is 8 %.
DELTA_NETS = [
    ("qwen3.5-0.8b", False, "", 162.0), ("qwen3.5-0.8b", False, "fp8", 151.1), ("qwen3.5-0.8b", False, "int8", 154.0),
    ("qwen3.5-4b", True, "", 621.5), ("qwen3.5-4b", True, "fp8", 482.3), ("qwen3.5-4b", True, "int8", 506.6),
    ("qwen3.5-9b", True, "", 1013.8), ("qwen3.5-9b", True, "fp8", 709.2), ("qwen3.5-9b", True, "int8", 753.9),
]  # fmt: skip


@pytest.mark.parametrize(("name", "nf4", "products", "measured"), DELTA_NETS)
def test_measured_steps_of_delta_nets_are_predicted(name, nf4, products, measured):
    way = {"adapter": AdapterSection(rank=16, alpha=16.0), "eight_bits": EightBitUse("", products)}
    found = seconds(name, 16384, "products", gpu=H200, nf4=nf4, span=H200_SPANS[16384], **way)
    assert 1000 * found == pytest.approx(measured, rel=0.08)


# The same with 4,096 tokens in NF4 on emulated small cards: save levels and places of weights, by the solver.
DELTA_NETS_ON_SMALL_CARDS = {
    "qwen3.5-4b": (
        "input:1,host:1,input:3,host:1,input:3,host:1,input:2,host:1,input:1,narrow:1,input:2,host:1,input:2,host:1,"
        "input:3,host:1,input:3,host:1,input:1,narrow:2",
        "host",
        211.4,
    ),
    "qwen3.5-9b": (
        "host:1,input:1,host:1,input:1,host:2,offloaded:1,products:1,input:1,host:2,input:1,host:1,input:1,host:2,"
        "input:1,host:1,input:1,host:2,offloaded:1,products:1,input:1,host:2,input:1,host:1,input:1,host:1,products:2",
        "host:7,card:1,host:15,card:1,host:8",
        327.7,
    ),
    "qwen3.5-35b-a3b": (
        "input:3,rotated:1,offloaded:1,input:5,offloaded:1,rotated:1,input:6,rotated:1,offloaded:1,input:6,rotated:1,"
        "offloaded:1,input:5,offloaded:1,rotated:1,input:3,rotated:2",
        "card:2," + "host:1,card:3," * 9 + "host:1,card:1",
        339.5,
    ),
}


@pytest.mark.parametrize("name", DELTA_NETS_ON_SMALL_CARDS)
def test_measured_steps_of_delta_nets_on_small_cards_are_predicted(name):
    levels, weights, measured = DELTA_NETS_ON_SMALL_CARDS[name]
    plan = {"weights": parse_weight_places(weights, shape(name).num_layers), "embedding_on_host": name != "qwen3.5-4b"}
    gpu = H200.model_copy(update={"pcie": PcieFacts(to_gpu_gb_s=55.4, from_gpu_gb_s=55.4)})
    way = {"adapter": AdapterSection(rank=16, alpha=16.0), "head_rows": 1024}
    found = seconds(name, 4096, levels, gpu=gpu, nf4=True, span=H200_SPANS[4096], **plan, **way)
    assert 1000 * found == pytest.approx(measured, rel=0.08)


def test_products_in_int8_gain_next_to_nothing_on_a_model_of_narrow_layers():
    """Their sums are short, and rotating the operands is not hidden: measured from outside was 1 % on a 0.5B."""
    gains = {}
    for name in ("qwen2.5-0.5b", "qwen3-1.7b"):
        plain, eight = (seconds(name, 16384, "products", eight_bits=EightBitUse(one, one)) for one in ("", "int8"))
        gains[name] = 1 - eight / plain
    assert 0 < gains["qwen2.5-0.5b"] < 0.03 < 0.1 < gains["qwen3-1.7b"]


def test_products_are_a_larger_share_of_a_step_the_wider_a_model_is():
    one, shares = MicroBatchSize(4096, 4096, bucket=4096, longest=512, span=256.0), []
    for name, nf4 in (("qwen2.5-0.5b", False), ("llama-3.2-1b", False), ("qwen3-4b", True)):
        run = FastRun(Recipe(), shape(name), one, cuda=True, precision="bf16", nf4=nf4, gpu=H100)
        shares.append(products_share(run))
    assert shares == sorted(shares)
    assert 0.2 < shares[0] < shares[-1] < 0.9


@pytest.mark.parametrize(
    ("name", "capability", "faster"), [("H100 80GB HBM3", (9, 0), "fp8"), ("RTX 4090", (8, 9), "int8")]
)
def test_int8_pays_where_its_makers_rate_is_twice_that_of_fp8(name, capability, faster):
    """Elsewhere the makers name one rate for both, of which FP8 reaches more."""
    gpu = GpuFacts(index=0, name=f"NVIDIA {name}", compute_capability=capability)
    taken = {
        kind: seconds("llama-3.2-1b", 16384, "products", eight_bits=EightBitUse(kind, kind), gpu=gpu)
        for kind in ("fp8", "int8")
    }
    assert min(taken, key=taken.get) == faster


@pytest.mark.parametrize(
    ("tokens", "tile", "chunk", "measured"), [(15104, 2048, 2048, 2123), (58368, 8192, 4096, 15407)]
)
def test_long_documents_that_were_measured_are_predicted(tokens, tile, chunk, measured):
    """Attention is most of the longer one's time, and reaches more of the device than with short documents."""
    away = {
        "embedding_on_host": True,
        "head_on_host": True,
        "mlp_rows": tile,
        "head_rows": chunk,
        "span": float(tokens),
    }
    found = seconds("llama-3.1-8b", tokens, "input:31,attention", nf4=True, **away)
    assert 1000 * found == pytest.approx(measured, rel=0.05)


# Milliseconds of a step by the length of its documents. Those of 181 tokens fill 14,178 tokens of 16,384.
BY_LENGTH = {
    ("qwen2.5-0.5b", False, "products"): {181: 85.8, 1024: 97.5, 4096: 141.1, 16384: 315.3},
    ("llama-3.2-1b", False, "products"): {181: 156.8, 1024: 167.6, 4096: 203.1, 16384: 332.5},
    ("qwen3-4b", True, "narrow:29,products"): {181: 589.6, 1024: 632.0, 4096: 768.9, 16384: 1322.8},
}


@pytest.mark.parametrize(
    ("name", "nf4", "layers", "length", "measured"),
    [(*settings, length, measured) for settings, row in BY_LENGTH.items() for length, measured in row.items()],
)
def test_documents_of_any_length_that_were_measured_are_predicted(name, nf4, layers, length, measured):
    found = seconds(name, 16384, layers, nf4=nf4, span=float(length), filled=14178 if length == 181 else 16384)
    assert 1000 * found == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("length", [300, 512, 2000, 16384])
def test_attention_counts_the_pairs_that_a_window_leaves(length):
    spec, one = shape("gemma-3-1b"), MicroBatchSize(length, length, bucket=length, longest=length, span=float(length))
    assert spec.sliding_window == 512
    counted = dict(zip((layer.kind for layer in spec.layers), attention_operations(spec, one, 0), strict=True))
    pairs = {"sliding_attention": sum(min(row + 1, 512) for row in range(length)), "attention": length**2 / 2}
    assert counted == pytest.approx({kind: 4.0 * 4 * 256 * count for kind, count in pairs.items()}, rel=0.01)


def test_heads_that_share_a_program_are_differentiated_faster():
    """Backward, narrow heads in groups of three take twice the time of those in groups of two; wider ones do not."""
    one, ratios = MicroBatchSize(16384, 16384, bucket=16384, longest=16384, span=16384.0), []
    for width in (64, 128):
        times = []
        for keys in (4, 6):
            spec = shape("qwen2.5-0.5b").model_copy(update={"num_heads": 12, "num_kv_heads": keys, "head_dim": width})
            run = FastRun(Recipe(), spec, one, cuda=True, precision="bf16", nf4=False, gpu=H100)
            plan = MemoryPlan(layers=parse_save_levels("products", spec.num_layers), head_rows=4096)
            times.append(fast_seconds(run, one, plan))
        ratios.append(times[0] / times[1])
    assert ratios[0] > 1.3
    assert ratios[1] == pytest.approx(1, rel=0.01)


def test_one_long_document_is_differentiated_no_faster_than_its_queries_are_walked():
    """The keys' gradients of few key heads are few programs: a short batch of one document waits for its longest."""
    found = {
        (tokens, span): seconds("qwen2.5-0.5b", tokens, "products", span=span, gpu=H200)
        for tokens in (2048, 8192)
        for span in (64.0, 2048.0)
    }
    short, long = (found[tokens, 2048.0] - found[tokens, 64.0] for tokens in (2048, 8192))
    assert long < 2.5 * short  # four times the work


def test_products_in_fp8_pay_more_the_wider_a_model_is():
    """Part of the time saved in products is spent on codes; with NF4 nothing is unpacked to 16 bits any more."""
    gains = []
    for name, layers in (("qwen3-0.6b", "products"), ("llama-3.2-1b", "products"), ("qwen3-4b", "narrow")):
        plain = seconds(name, 16384, layers)
        stored, eight = (seconds(name, 16384, layers, eight_bits=EightBitUse("fp8", way)) for way in ("", "fp8"))
        assert eight < plain < stored
        gains.append(plain / eight)
    assert gains == sorted(gains)
    packed = [seconds("qwen3-4b", 16384, "narrow", nf4=True, eight_bits=EightBitUse("", way)) for way in ("", "fp8")]
    assert packed[1] < packed[0]


@pytest.mark.parametrize(
    ("card", "faster"), [("GeForce RTX 5090", True), ("RTX PRO 6000 Blackwell Workstation Edition", False)]
)
def test_blocks_are_faster_where_other_sums_in_fp32_have_half_rate(card, faster):
    """By the makers' figures: on other cards MXFP8 has FP8's rate, and a little more to write."""
    gpu = GpuFacts(index=0, name=f"NVIDIA {card}", vram_total_bytes=32 << 30, compute_capability=(12, 0))
    rows, blocks = (
        seconds("qwen3-4b", 8192, "narrow", gpu=gpu, eight_bits=EightBitUse(one, one)) for one in ("fp8", "mxfp8")
    )
    assert (blocks < 0.9 * rows) == faster
    assert blocks < 1.05 * rows


# Milliseconds of a step of NF4 with layers in host memory, on one of two H100s: see tests/bench/LOG.md.
STREAMED = [
    ("qwen3-14b", 16384, "attention", "card", 4096, "", 2112.3),
    ("qwen3-14b", 16384, "attention", "card+host:40", 4096, "", 2112.9),
    ("llama-3.1-8b", 2048, "host:29,attention,narrow", "host", 2048, "both", 217.3),
    (
        "qwen3-32b", 2048, "host:15,attention,host:30,attention,host:15,attention,rotated",
        "host:3,card," + "host:7,card," * 7 + "host", 1024, "embedding", 752.0,
    ),
    (
        "llama-3.1-70b", 2048,
        "input,offloaded," + "input:2,offloaded," * 11 + "input:2,attention,offloaded," + "input:2,offloaded," * 12
        + "input,attention:2,narrow", "host", 1024, "embedding", 1865.6,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tokens", "layers", "places", "chunk", "away", "measured"), STREAMED)
def test_steps_with_streamed_weights_that_were_measured_are_predicted(
    name, tokens, layers, places, chunk, away, measured
):
    found = seconds(
        name, tokens, layers, nf4=True, head_rows=chunk, span={2048: 1059.0, 16384: 468.0}[tokens],
        weights=parse_weight_places(places, shape(name).num_layers),
        embedding_on_host=bool(away), head_on_host=away == "both",
    )  # fmt: skip
    assert 1000 * found == pytest.approx(measured, rel=0.08)


def test_weights_that_computation_hides_cost_next_to_nothing():
    card, streamed = (
        seconds("qwen3-14b", 16384, "attention", nf4=True, weights=parse_weight_places(places, 40))
        for places in ("card", "card+host")
    )
    assert card < streamed < 1.005 * card


def test_mixes_are_put_in_the_order_that_was_measured():
    mixes = [(layers, measured) for name, _, _, layers, measured in MEASURED if name == "qwen3-4b"]
    measured = [layers for layers, _ in sorted(mixes, key=lambda one: one[1])]
    predicted = sorted(measured, key=lambda layers: seconds("qwen3-4b", 16384, layers, nf4=True))
    assert measured[-3:] == predicted[-3:]
    assert set(measured[:2]) == set(predicted[:2])


def test_each_level_is_slower_than_the_one_before_where_the_link_is_fast():
    times = [seconds("qwen3-4b", 8192, level) for level in LEVEL_NAMES if level not in {"offloaded", "host", "input"}]
    assert times == sorted(times)
    assert seconds("qwen3-4b", 8192, "host:30,attention") == pytest.approx(times[-1], rel=0.01)


def test_a_slow_link_makes_the_device_wait():
    slow = H100.model_copy(update={"pcie": PcieFacts(to_gpu_gb_s=6.0, from_gpu_gb_s=6.0)})
    fast, late = (seconds("qwen3-4b", 8192, "host:30,attention", gpu=gpu) for gpu in (H100, slow))
    assert late > 1.5 * fast
    moved = 30 * 8192 * (2560 + 4096 + 16) * 2
    assert late > 2 * moved / 6e9
    assert seconds("qwen3-4b", 8192, "attention", gpu=slow) == seconds("qwen3-4b", 8192, "attention")


def test_tiles_and_small_chunks_cost_a_little():
    whole = seconds("llama-3.1-8b", 32768, "attention")
    large = seconds("llama-3.1-8b", 32768, "attention", mlp_rows=8192)
    small = seconds("llama-3.1-8b", 32768, "attention", mlp_rows=1024)
    assert whole < large < 1.01 * whole
    assert large < small < 1.08 * whole
    assert small < seconds("llama-3.1-8b", 32768, "attention", mlp_rows=1024, head_rows=256) < 1.1 * small


def test_tiles_in_4_bits_share_what_was_unpacked():
    """So tiles cost no more in 4 bits than in 16, and a matrix that is needed twice backward is unpacked once."""
    whole, small = (seconds("llama-3.1-8b", 32768, "attention", nf4=True, mlp_rows=rows) for rows in (0, 1024))
    plain = [seconds("llama-3.1-8b", 32768, "attention", mlp_rows=rows) for rows in (0, 1024)]
    assert small - whole == pytest.approx(plain[1] - plain[0], rel=1e-6)
    kept, narrow = (seconds("llama-3.1-8b", 2048, level, nf4=True) for level in ("products", "narrow"))
    again = [seconds("llama-3.1-8b", 2048, level) for level in ("products", "narrow")]
    assert narrow - kept == pytest.approx(again[1] - again[0], rel=1e-6)


def test_a_head_in_host_memory_comes_with_every_chunk():
    here = seconds("llama-3.1-8b", 4096, "products")
    chunks = [
        seconds("llama-3.1-8b", 4096, "products", embedding_on_host=True, head_on_host=True, head_rows=rows)
        for rows in (4096, 256)
    ]
    head = 128256 * 4096 * 2 / 54e9
    assert chunks[0] < here + 2 * head
    assert chunks[1] - here == pytest.approx(2 * 16 * head, rel=0.15)


def test_a_processor_goes_by_its_cores():
    few, many = (seconds("smollm2-135m", 1024, "products", cuda=False, gpu=None, cores=cores) for cores in (2, 8))
    assert many < few < 4.2 * many
    again = seconds("smollm2-135m", 1024, "attention", cuda=False, gpu=None, cores=2)
    assert 1.1 * few < again < 1.5 * few


# Milliseconds of a step of each of several H100s of one host, with 10.2 GB that leave and return.
@pytest.mark.parametrize(("gpus", "measured"), [(1, 586.1), (2, 581.8), (4, 689.5), (4, 668.0)])
def test_offloading_slows_down_where_cards_share_the_hosts_memory(gpus, measured):
    machine = four_h100()
    gpu = beside_others(machine, machine.gpus[0], gpus)
    found = 1000 * seconds("qwen3-4b", 16384, "offloaded+narrow:32,products", nf4=True, gpu=gpu)
    assert found == pytest.approx(measured, rel=0.05)


def test_each_direction_of_the_link_has_its_own_rate():
    """Weights only come, activations leave and return."""
    both, slow_out, slow_in = (
        GpuFacts(index=0, name=H100.name, pcie=PcieFacts(to_gpu_gb_s=to, from_gpu_gb_s=back))
        for to, back in ((54.0, 54.0), (54.0, 18.0), (18.0, 54.0))
    )
    weights = parse_weight_places("host", 36)
    streamed = [
        seconds("qwen3-4b", 1024, "products", nf4=True, gpu=gpu, weights=weights) for gpu in (both, slow_out, slow_in)
    ]
    assert streamed[0] == streamed[1] < streamed[2]
    offloaded = [seconds("qwen3-4b", 16384, "offloaded", nf4=True, gpu=gpu) for gpu in (both, slow_in, slow_out)]
    assert offloaded[0] < 0.7 * min(offloaded[1:])


@pytest.mark.parametrize(
    ("pcie", "low", "high"),
    [
        (PcieFacts(to_gpu_gb_s=54.4, from_gpu_gb_s=53.1), 53.1, 54.4),
        (PcieFacts(generation=1, width=16, best_generation=5, best_width=16), 50, 55),
        (PcieFacts(generation=4, width=8), 12, 15),
        (PcieFacts(), 8, 13),
        (None, 8, 13),
    ],
)
def test_the_link_is_as_measured_or_as_card_and_slot_allow(pcie, low, high):
    assert all(low <= rate <= high for rate in link_gb_s(pcie))
