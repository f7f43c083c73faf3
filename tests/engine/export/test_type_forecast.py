"""What files of all types are expected to be, before one is chosen."""

import pytest

from burnish_engine.advise.predict.on_target import judge, largest_file_bytes
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES, NEED_IMPORTANCE, TargetSection
from burnish_engine.export.preflight import forecast_gguf
from burnish_engine.export.type_forecast import read_rate


def forecast(source, adapter, **options):
    cost = forecast_gguf(source, adapter, "x", ["Q8_0"], **{"gain": 1.0, **options})
    return cost, {one.quant: one for one in cost.types}


def test_every_type_that_fits_is_predicted_with_its_exact_size(wide, wide_adapter):
    cost, types = forecast(wide, wide_adapter, importance_tokens=64)
    assert set(types) == set(GGUF_TYPES)
    assert types["Q8_0"].bytes == cost.sizes["Q8_0"]
    assert types["F16"].bytes > types["Q8_0"].bytes > types["Q4_K_M"].bytes > types["Q2_K"].bytes


@pytest.mark.full
def test_smaller_files_keep_less_and_are_faster(wide, wide_adapter):
    _, types = forecast(wide, wide_adapter)
    assert 1.0 >= types["Q8_0"].gain_kept > types["Q4_K_M"].gain_kept > types["Q2_K"].gain_kept > 0
    assert types["Q8_0"].tokens_per_s < types["Q4_K_M"].tokens_per_s


@pytest.mark.full
def test_a_small_gain_is_lost_sooner_and_none_cannot_be_kept(wide, wide_adapter):
    _, small = forecast(wide, wide_adapter, gain=0.1)
    assert small["Q2_K"].gain_kept == 0.0
    assert small["Q4_K_M"].gain_kept == pytest.approx(1 - GGUF_TYPES["Q4_K_M"].kl / 0.1)
    _, none = forecast(wide, wide_adapter, gain=0.0)
    assert {one.gain_kept for one in none.values()} == {None}


def test_without_a_matrix_types_that_need_one_are_left_out(wide, wide_adapter):
    _, types = forecast(wide, wide_adapter)
    assert not set(NEED_IMPORTANCE) & set(types)


@pytest.mark.full
def test_nothing_more_is_predicted_where_it_is_not_asked_for(wide, wide_adapter):
    assert forecast_gguf(wide, wide_adapter, "x", ["Q8_0"]).types == []


@pytest.mark.full
def test_reading_memory_is_measured():
    assert read_rate() > 1e8


@pytest.mark.parametrize("ram_gib", [4.0, 16.0, 64.0])
def test_the_largest_file_of_a_target_is_where_its_verdict_turns(wide, ram_gib):
    target = TargetSection(kind="laptop", ram_gib=ram_gib)
    largest = largest_file_bytes(wide.spec, target)
    found = judge(wide.spec, "Q8_0", target)
    assert (found.file_bytes <= largest) == (found.verdict != "too_big")
    beside = found.run_bytes - found.file_bytes
    assert largest + beside <= found.usable_bytes
