"""Steps that several processes share, on the CPU: the processes are started once for all settings."""

import pytest

from burnish_engine.bench import shared_step
from burnish_engine.bench.progress import part_of
from burnish_engine.bench.shared_step import expected_exchange_ms, shared_steps
from burnish_engine.bench.step_options import StepOptions

from support.machines.measured_hosts import four_h100


def test_parts_of_a_measurement_share_its_progress_evenly():
    told = []
    part_of(part_of(told.append, 1, 4), 1, 2)(0.5)
    part_of(told.append, 3, 4)(1.0)
    assert told == [(1 + 0.75) / 4, 1.0]


@pytest.mark.full
def test_one_start_measures_every_setting(monkeypatch):
    starts, start = [], shared_step.started_ranks
    monkeypatch.setattr(shared_step, "started_ranks", lambda *given: starts.append(given) or start(*given))
    small = {"shape": "smollm2-135m", "layers": 1, "device": "cpu", "precision": "fp32", "steps": 1, "warmup": 1}
    settings = [
        StepOptions(tokens=64, **small),
        StepOptions(tokens=128, weights=("ranks",), **small),
        StepOptions(tokens=64, exchange="bf16", **small),
    ]
    rows = list(shared_steps(settings, [1, 2]))
    assert [len(devices) for devices, *_ in starts] == [1, 2]
    assert [(row["gpus"], row["tokens"]) for row in rows] == [(1, 64), (1, 128), (1, 64), (2, 64), (2, 128), (2, 64)]
    assert [row["exchange"] for row in rows[3:]] == ["whole", "whole", "bf16"]
    assert all(row["exchange_ms"] > 0 for row in rows[3:])
    for alone, shared in zip(rows[:3], rows[3:], strict=True):  # each beside its own setting on one
        assert shared["times_one_gpu"] == pytest.approx(shared["tok_s"] / alone["tok_s"])


# Measured on two and on all of a host's four H100: bytes of the gradients, milliseconds of an exchange.
@pytest.mark.parametrize(
    ("count", "size", "ms"),
    [(2, 40_370_176, 0.168), (2, 45_088_768, 0.193), (2, 132_120_576, 0.503), (4, 40_370_176, 0.21)],
)
def test_an_exchange_is_expected_of_the_gpus_that_train_not_of_all(count, size, ms):
    assert expected_exchange_ms(four_h100(), count, size) == pytest.approx(ms, rel=0.15)


def test_without_peer_to_peer_an_exchange_is_expected_to_pass_host_memory(monkeypatch):
    direct = expected_exchange_ms(four_h100(), 4, 40_370_176)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert expected_exchange_ms(four_h100(), 4, 40_370_176) == pytest.approx(2.557, rel=0.2)
    assert expected_exchange_ms(four_h100(), 4, 40_370_176) > 8 * direct
    assert expected_exchange_ms(four_h100(), 5, 40_370_176) is None
