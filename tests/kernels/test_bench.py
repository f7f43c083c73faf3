"""The bench runner's arithmetic, its order and its words, with a clock that is told what to say."""

import json
from types import SimpleNamespace

import pytest
import torch

from burnish_kernels import bench, tuning
from burnish_kernels.bench import BenchmarkRow, PeakRates, header, line, measure, measure_peaks, tune, tuned_line
from burnish_kernels.registry import Benchmark
from burnish_kernels.timer import NotCapturedError, why_not
from burnish_kernels.tuning import Tuning

PEAKS = PeakRates("Card", copy_gb_per_s=1000.0, matmul_tflops=100.0)


def clock(run, *, captured=True):
    """Runs the action, which returns how many milliseconds it claims to have taken."""
    return float(run())


def rows_of(monkeypatch, benchmarks, timer=clock):
    op = SimpleNamespace(benchmarks=lambda device: iter(benchmarks()) if callable(benchmarks) else iter(benchmarks))
    monkeypatch.setattr(bench, "ops", lambda: {"toy": op})
    return list(measure(["toy"], timer, PEAKS, "cpu"))


def test_a_memory_bound_kernel_is_compared_with_copying(monkeypatch):
    (row,) = rows_of(monkeypatch, [Benchmark("a", lambda: 2.0, lambda: 8.0, bytes=10**9)])
    assert (row.ms, row.gb_per_s, row.copy_share) == (2.0, pytest.approx(500.0), pytest.approx(0.5))
    assert (row.tflops, row.matmul_share) == (None, None)
    assert (row.reference_ms, row.speedup) == (8.0, 4.0)
    assert line(row).split() == ["toy", "a", "2.0000", "ms", "500", "GB/s", "50%", "of", "copying", "4.0x", "PyTorch"]


def test_a_compute_bound_kernel_is_compared_with_multiplying(monkeypatch):
    (row,) = rows_of(monkeypatch, [Benchmark("a", lambda: 2.0, None, bytes=10**9, flops=10**11)])
    assert (row.tflops, row.matmul_share) == (pytest.approx(50.0), pytest.approx(0.5))
    assert (row.reference_ms, row.speedup) == (None, None)
    assert "50 TFLOP/s   50% of matmul" in line(row)


def test_one_benchmarks_tensors_are_dropped_before_the_nexts_are_made(monkeypatch):
    alive = []

    class Tensors:
        def __init__(self):
            alive.append(self)
            assert sum(1 for one in alive if one) == 1

        def __call__(self):
            return 1.0

        def __bool__(self):
            return True

    def benchmarks():
        for name in "ab":
            run = Tensors()
            yield Benchmark(name, run, None, bytes=1)
            alive.remove(run)
            del run

    assert [row.name for row in rows_of(monkeypatch, benchmarks)] == ["a", "b"]


def test_what_cannot_be_captured_is_timed_without_and_says_so(monkeypatch):
    asked = []

    def timer(run, *, captured=True):
        asked.append(captured)
        if captured:
            raise NotCapturedError("it waits")
        return 3.0

    (row,) = rows_of(monkeypatch, [Benchmark("a", lambda: 0, lambda: 0, bytes=1)], timer)
    assert asked == [True, False, False]  # the reference is always timed as it is
    assert (row.ms, row.captured) == (3.0, False)
    assert "not capturable: it waits" in line(row)


def out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_what_does_not_fit_is_a_row_and_the_rest_goes_on(monkeypatch):
    first = Benchmark("big", out_of_memory, None, bytes=1)
    second = Benchmark("big reference", lambda: 1.0, out_of_memory, bytes=1)
    big, odd = rows_of(monkeypatch, [first, second])
    assert (big.ms, big.problem) == (None, "it does not fit into memory")
    assert line(big).endswith("it does not fit into memory")
    assert (odd.ms, odd.speedup, odd.problem) == (1.0, None, "PyTorch's way does not fit into memory")


def test_tensors_that_do_not_fit_end_that_operation(monkeypatch):
    def benchmarks():
        yield Benchmark("a", lambda: 1.0, None, bytes=1)
        out_of_memory()

    assert [(row.name, bool(row.problem)) for row in rows_of(monkeypatch, benchmarks)] == [
        ("a", False),
        ("(rest)", True),
    ]


def test_the_yardsticks_count_bytes_read_and_written():
    def timer(run, *, captured=True):
        run()
        return 2.0

    peaks = measure_peaks(timer, "cpu")
    assert peaks.copy_gb_per_s == pytest.approx(2 * 2**20 / 2e-3 * 1e-9)
    assert peaks.matmul_tflops == pytest.approx(2 * 64**3 / 2e-3 * 1e-12)
    assert "cpu: copies at" in header(peaks)


def with_tunings(monkeypatch, *tunings):
    module = SimpleNamespace(tunings=lambda device: iter(tunings)) if tunings else SimpleNamespace()
    monkeypatch.setattr(bench.importlib, "import_module", lambda name: module)
    return list(tune("toy", clock, "cpu"))


def test_the_fastest_candidate_is_chosen(monkeypatch):
    (tuned,) = with_tunings(monkeypatch, Tuning("k", (4.0, 2.0, 3.0), run=lambda ms: ms))
    assert (tuned.choice, tuned.ms, tuned.default_ms) == (2.0, 2.0, 4.0)


def test_the_default_stays_where_nothing_is_clearly_faster(monkeypatch):
    (tuned,) = with_tunings(monkeypatch, Tuning("k", (4.0, 3.95), run=lambda ms: ms))
    assert tuned.choice == 4.0


def test_candidates_that_do_not_run_are_out(monkeypatch):
    def run(ms):
        if ms < 3:
            raise RuntimeError("out of resource: shared memory")
        return ms

    one, two = with_tunings(monkeypatch, Tuning("k", (1.0, 5.0), run), Tuning("l", (3.0, 2.0), run))
    assert (one.choice, one.default_ms, one.failed) == (5.0, None, 1)
    assert "the default does not run here, 1 candidate" in tuned_line(one)
    assert (two.choice, two.failed) == (3.0, 1)
    assert with_tunings(monkeypatch, Tuning("k", (1.0, 2.0), run)) == []


def test_an_operation_without_choices_is_not_tuned(monkeypatch):
    assert with_tunings(monkeypatch) == []


def test_each_choice_is_saved_as_soon_as_it_is_made(monkeypatch):
    saved = []
    card = tuning.Device("Card", 89)
    monkeypatch.setattr(tuning, "device_of", lambda device: card)
    monkeypatch.setattr(tuning, "save", lambda op, choices, device: saved.append((op, choices, device)))
    tunings = [Tuning(key, ({"rows": 2.0},), run=lambda choice: choice["rows"]) for key in "kl"]
    module = SimpleNamespace(tunings=lambda device: iter(tunings))
    monkeypatch.setattr(bench.importlib, "import_module", lambda name: module)
    for count, _ in enumerate(bench.tune_and_save("toy", clock), start=1):
        assert len(saved) == count
    assert saved == [("toy", {key: {"rows": 2.0}}, card) for key in "kl"]


def test_the_document_holds_everything():
    pytest.importorskip("triton")
    document = json.loads(bench.document(PEAKS, [BenchmarkRow("toy", "a", ms=1.0)]))
    assert document["device"] == "Card"
    assert document["torch"] == torch.__version__
    assert document["rows"][0] | {"op": "toy", "name": "a", "ms": 1.0, "speedup": None} == document["rows"][0]


def test_nothing_is_timed_where_it_would_say_nothing(monkeypatch, capsys):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "interpreted" in why_not()
    assert bench.main([]) == 1
    assert "interpreted" in capsys.readouterr().err
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no GPU" in why_not()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert why_not() == ""


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_not()), reason="no GPU to time on")
def test_times_of_a_real_gpu_are_plausible():
    from burnish_kernels.timer import CudaTimer

    timer = CudaTimer()
    peaks = measure_peaks(timer)
    assert 50 < peaks.copy_gb_per_s < 20_000
    assert 5 < peaks.matmul_tflops < 10_000
    x = torch.zeros(1 << 20, device="cuda")
    with pytest.raises(NotCapturedError):
        timer(lambda: x.sum().item())
    assert timer(lambda: x.sum().item(), captured=False) > 0
    assert timer(lambda: x.add_(1)) > 0  # a failed capture leaves the device usable
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
