"""What a file takes on a phone, a laptop, a desktop."""

import pytest

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.advise.predict.on_target import file_types, judge, on_target, usable_bytes
from burnish_engine.contract.recipe.recipe_export import TargetSection

from support.machines.advice import DESKTOP, GIB, LAPTOP, PHONE


def spec(name):
    return find_model(name).spec


@pytest.mark.parametrize(
    ("kind", "ram_gib", "low", "high"),
    [
        ("phone", 6, 2.5, 3.0),
        ("phone", 12, 5, 6),
        ("laptop", 8, 2.5, 4),
        ("laptop", 16, 10, 12),
        ("desktop", 64, 56, 60),
    ],
)
def test_a_system_keeps_a_part_of_the_memory(kind, ram_gib, low, high):
    assert low <= usable_bytes(TargetSection(kind=kind, ram_gib=float(ram_gib))) / GIB <= high


@pytest.mark.parametrize(
    ("model", "target", "verdict"),
    [
        ("Qwen/Qwen3-0.6B", PHONE, "good"),
        ("Qwen/Qwen3-1.7B", PHONE, "good"),
        ("HuggingFaceTB/SmolLM3-3B", PHONE, "good"),
        ("Qwen/Qwen3-4B", PHONE, "too_big"),
        ("Qwen/Qwen3-8B", PHONE, "too_big"),
        ("Qwen/Qwen3-8B", LAPTOP, "good"),
        ("Qwen/Qwen3-14B", LAPTOP, "tight"),
        ("Qwen/Qwen3-32B", LAPTOP, "too_big"),
        ("Qwen/Qwen3-14B", DESKTOP, "good"),
        ("Qwen/Qwen3-32B", DESKTOP, "tight"),
        ("meta-llama/Llama-3.3-70B-Instruct", DESKTOP, "too_big"),
    ],
)
def test_which_sizes_run_where(model, target, verdict):
    assert on_target(spec(model), target).verdict == verdict


def test_small_models_stay_fine_and_large_ones_are_quantized_more():
    assert on_target(spec("Qwen/Qwen3-0.6B"), PHONE).quant == "Q8_0"
    assert on_target(spec("Qwen/Qwen3-8B"), LAPTOP).quant in {"Q4_K_M", "Q5_K_M"}
    assert on_target(spec("Qwen/Qwen3-14B"), DESKTOP).quant == "Q4_K_M"


def test_k_types_are_not_offered_where_rows_do_not_fill_their_blocks():
    assert not any("_K" in quant for quant in file_types(spec("HuggingFaceTB/SmolLM2-135M-Instruct")))
    assert not any("_K" in quant for quant in file_types(spec("Qwen/Qwen2.5-0.5B-Instruct")))
    assert "Q4_K_M" in file_types(spec("Qwen/Qwen3-8B"))


def test_a_file_type_that_was_asked_for_is_kept():
    asked = TargetSection(kind="laptop", ram_gib=16.0, quant="Q4_0")
    assert on_target(spec("Qwen/Qwen3-0.6B"), asked).quant == "Q4_0"


def test_context_costs_memory_and_windows_bound_it():
    long = TargetSection(kind="laptop", ram_gib=16.0, context=32_768)
    full, window = spec("Qwen/Qwen3-4B"), spec("google/gemma-3-4b-it")
    # 36 layers x 2 x 8 heads x 128 numbers x 2 bytes x 30,720 more tokens
    grown = judge(full, "Q4_K_M", long).run_bytes - judge(full, "Q4_K_M", LAPTOP).run_bytes
    assert grown == 36 * 2 * 8 * 128 * 2 * (32_768 - 2_048)
    windowed = judge(window, "Q4_K_M", long).run_bytes - judge(window, "Q4_K_M", LAPTOP).run_bytes
    assert windowed < grown / 4
    assert judge(full, "Q4_K_M", long).tokens_per_s < judge(full, "Q4_K_M", LAPTOP).tokens_per_s


def test_speed_is_that_of_reading_the_weights():
    # Qwen3-8B Q4_K_M, 5.03 GB: laptops with dual-channel memory write 7 to 12 tokens/s.
    assert 7 < judge(spec("Qwen/Qwen3-8B"), "Q4_K_M", LAPTOP).tokens_per_s < 12
    mixture, dense = spec("Qwen/Qwen3-30B-A3B"), spec("Qwen/Qwen3-32B")
    assert judge(mixture, "Q4_K_M", DESKTOP).tokens_per_s > 4 * judge(dense, "Q4_K_M", DESKTOP).tokens_per_s
