"""What `burnish plan` prints of a run: each figure in its row, and what is not known told."""

import pytest

from burnish_engine.cli.training.plan import show_plan
from burnish_engine.contract.facts.advice import MemoryPart, RunPlan

GIB = 2**30


def printed(capsys, unread="", **changes):
    """Rows of a plan, by their first words."""
    plan = RunPlan(
        device="Lamp 9000", memory=[MemoryPart(name="adapter", bytes=GIB, note="rank 8")], memory_bytes=6 * GIB,
        memory_free_bytes=20 * GIB, memory_total_bytes=24 * GIB, host_bytes=3 * GIB, locked_bytes=GIB,
        host_free_bytes=48 * GIB, disk_bytes=2 * 10**9, disk_free_bytes=500 * 10**9, fits=True,
        trainable_parameters=1_234_567, tokens_per_s=4321.0, speed_source="estimated", steps=600, tokens=90_000,
        seconds=7200.0,
    )  # fmt: skip
    show_plan(plan.model_copy(update=changes), unread)
    lines = capsys.readouterr().out.splitlines()
    return {line.partition("  ")[0].strip(): " ".join(line.split()) for line in lines}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("adapter", "1.0 GiB rank 8"), ("memory, predicted peak", "6.0 GiB on Lamp 9000"),
        ("free now", "20.0 GiB of 24.0 GiB"), ("system memory, loading", "3.0 GiB 48.0 GiB free; 1.0 GiB of it"),
        ("disk", "2.00 GB 500 GB free"), ("disk, export", "0.70 GB after training"), ("trained weights", "1,234,567"),
        ("speed", "4,321 tokens/s estimated"), ("training time", "2 h 00 min 90,000 tokens in 600 steps"),
    ],
)  # fmt: skip
def test_each_figure_stands_in_its_row(capsys, monkeypatch, row, words):
    monkeypatch.setenv("COLUMNS", "160")
    assert printed(capsys, export_disk_bytes=7 * 10**8)[row].startswith(f"{row} {words}")


def test_rows_without_a_figure_are_left_out_and_what_is_unknown_is_told(capsys):
    rows = printed(capsys, "Nothing was read.", seconds=None, host_bytes=0)
    assert "unknown" in rows["training time"]
    assert not {"system memory, loading", "disk, export"} & set(rows)
    assert "training time" not in printed(capsys, seconds=None)
