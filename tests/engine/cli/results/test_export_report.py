"""The report and the forecast of an export, as the terminal prints them."""

import pytest

from burnish_engine.cli.results.export_report import show_forecast, show_report
from burnish_engine.contract.facts.export_forecast import ExportStage
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.export.forecast import ExportCost


def a_file(quant, **changes):
    fields = {
        "file": f"desk-{quant}.gguf", "quant": quant, "bytes": 10**9, "sha256": "", "tensor_types": {},
        "positions": 500, "mean_kl": 0.012, "p99_kl": 0.25, "top1_agreement": 0.987, "passed": True,
    }  # fmt: skip
    return QuantFidelity(**fields | changes)


def printed(capsys, folder, *files, **changes):
    fields = {"model": "desk", "architecture": "llama", "token_strings": 40, "token_mismatches": 0, "passed": True}
    show_report(FidelityReport(**fields | changes, files=list(files)), folder, json=False)
    return capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_each_file_has_its_figures_in_a_row(capsys, tmp_path):
    measured = {"held_out_loss": 1.234, "gain_kept": 0.95, "tokens_per_s": 41.5, "reply_stopped": True}
    lines = printed(
        capsys, tmp_path, a_file("Q8_0", **measured), a_file("Q4_0", passed=False, problems=["It babbles."]),
        a_file("F16", passed=False, unproven="Nothing to compare with."), token_mismatches=3,
    )  # fmt: skip
    rows = {line.split()[0]: line.split() for line in reversed(lines) if line.startswith(("Q", "F"))}
    assert " ".join(rows["Q8_0"]) == "Q8_0 1.00 GB 0.012 0.25 98.7% 1.234 95.0% 41.5 ends verified"
    assert rows["Q4_0"] == ["Q4_0", "1.00", "GB", "0.012", "0.25", "98.7%", "runs", "on", "refused"]
    assert rows["F16"][-2:] == ["not", "proven"]
    assert "37 of 40" in lines[0]
    assert lines[-3:] == [str(tmp_path / f"desk-{quant}.gguf") for quant in ("Q8_0", "Q4_0", "F16")]


def test_what_training_gained_and_what_a_verified_file_is_are_told(capsys, tmp_path):
    lines = printed(
        capsys, tmp_path, a_file("Q8_0", provenance="proven", change_held=0.98), base_loss=2.5, tuned_loss=1.25
    )
    assert any("base 2.500, trained 1.250" in line for line in lines)
    assert any("Q8_0 holds 98.0%" in line for line in lines)
    held = printed(capsys, tmp_path, a_file("Q8_0", passed=False, problems=["Odd."], change_held=0.02))
    assert not any("holds" in line for line in held), "a refused file's share says nothing more"


def test_a_forecast_adds_up_disk_and_time_and_takes_the_largest_memory(capsys):
    stages = [
        ExportStage(what=what, disk_bytes=disk, memory_bytes=memory, seconds=seconds)
        for what, disk, memory, seconds in (("write", 10**9, 2**31, 90.0), ("check", 0, 2**32, 0.2))
    ]
    show_forecast(ExportCost(sizes={"Q8_0": 500_000_000}, stages=stages))
    _, write, check, size, whole = capsys.readouterr().out.splitlines()
    assert write.split() == ["write", "1.00", "GB", "2.0", "GiB", "90", "s"]
    assert check.split() == ["check", "4.0", "GiB", "1", "s"]
    assert "500,000,000 bytes (0.50 GB)" in size
    assert [part in whole for part in ("1.00 GB", "4.0 GiB", "2 min")] == [True] * 3
