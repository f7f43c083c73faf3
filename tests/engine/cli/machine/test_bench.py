"""`burnish bench kernels`: honest without a GPU, and what it prints with one."""

import json
import os

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import user_cache_dir
from burnish_kernels import bench, timer
from burnish_kernels.bench import BenchmarkRow, PeakRates, Tuned
from burnish_kernels.registry import OPS
from burnish_kernels.tuning import CACHE_VARIABLE


def run(capsys, *arguments):
    capsys.readouterr()
    code = main(["bench", *arguments])
    return code, *capsys.readouterr()


@pytest.fixture
def card(monkeypatch):
    """A GPU whose every kernel takes a millisecond; returns what was asked of it."""
    asked = []
    monkeypatch.setattr(timer, "why_not", lambda: "")
    monkeypatch.setattr(timer, "CudaTimer", lambda: "timer")
    monkeypatch.setattr(bench, "measure_peaks", lambda timer: PeakRates("Card [1]", 1000.0, 100.0))
    monkeypatch.setattr(
        bench,
        "measure",
        lambda names, timer, peaks: asked.append(tuple(names)) or [BenchmarkRow(n, "a", ms=1.0) for n in names],
    )
    monkeypatch.setattr(
        bench, "tune_and_save", lambda op, timer: asked.append(op) or [Tuned(op, "key", {"rows": 8}, 1.0, 2.0, 0)]
    )
    return asked


def test_without_a_gpu_nothing_is_timed_and_the_error_says_why(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    code, out, error = run(capsys, "kernels", "--json")
    assert code == ExitCode.ENVIRONMENT
    assert out == ""
    assert "no GPU" in error
    assert "burnish doctor" in error


def test_an_unknown_kernel_brings_the_known_ones(capsys):
    code, _, error = run(capsys, "kernels", "--op", "rms_nrom")
    assert code == ExitCode.USAGE
    assert "rms_nrom" in error
    assert OPS[0] in error


def test_every_kernel_is_a_line_after_the_yardsticks(capsys, card):
    code, out, _ = run(capsys, "kernels")
    assert code == ExitCode.DONE
    assert [line.split()[0] for line in out.splitlines()] == ["Card", *OPS]
    assert "Card [1]: copies at 1,000 GB/s" in out
    assert card == [OPS]


def test_one_kernel_as_json_is_one_document_on_standard_output(capsys, card):
    code, out, error = run(capsys, "kernels", "--op", OPS[0], "--json")
    document = json.loads(out)
    assert code == ExitCode.DONE
    assert document["copy_gb_per_s"] == 1000.0
    assert [row["op"] for row in document["rows"]] == [OPS[0]]
    assert "copies at" in error


def test_tuning_comes_first_and_only_where_asked(capsys, card):
    _, out, _ = run(capsys, "kernels", "--op", OPS[0], "--tune")
    assert card == [OPS[0], (OPS[0],)]
    assert "default 2.0000 ms" in out.splitlines()[0]


def test_a_run_on_the_same_gpu_is_told(capsys, card, monkeypatch):
    monkeypatch.setattr("burnish_engine.runs.jobs.lease.holder_of", lambda device: "/runs/lamp")
    _, _, error = run(capsys, "kernels")
    assert "/runs/lamp" in error


def test_kernels_know_where_this_persons_tuned_choices_are(capsys, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, "")  # so that what main sets is taken back after the test
    monkeypatch.delenv(CACHE_VARIABLE)
    main(["--version"])
    assert os.environ[CACHE_VARIABLE] == str(user_cache_dir() / "kernels")


def test_without_a_command_the_help_is_shown(capsys):
    code, out, error = run(capsys)
    assert code == ExitCode.USAGE
    assert "kernels" in out + error
