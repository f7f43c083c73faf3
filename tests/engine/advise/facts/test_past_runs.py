"""The file of past runs: bounded, and harmless whatever is in it."""

import json
import logging
import threading

import pytest

from burnish_engine.advise.facts import past_runs as module
from burnish_engine.advise.facts.past_runs import MOST, MOST_OF_A_KIND, PastRun, past_runs, remember
from burnish_engine.contract.paths import past_runs_file


def run(when=1.0, **changes):
    known = {
        "when": when, "burnish": "1", "device": "NVIDIA GeForce RTX 4060, 8 GiB", "engine": "fast", "kind": "bf16",
        "memory": {"base weights": 100, "allocator": 10}, "tokens_per_s": 1000.0, "process_bytes": 200,
        "allocated_bytes": 120, "reserved_bytes": 130, "measured_tokens_per_s": 900.0, "steps": 20,
    }  # fmt: skip
    return PastRun(**known | changes)


def test_what_was_kept_is_read_again():
    assert past_runs() == ()
    remember(run(1.0))
    remember(run(2.0, measured_tokens_per_s=None, outcome="stopped"))
    assert past_runs() == (run(1.0), run(2.0, measured_tokens_per_s=None, outcome="stopped"))


def test_it_holds_figures_and_the_device_and_nothing_else():
    remember(run())
    (kept,) = json.loads(past_runs_file().read_text())["runs"]
    texts = {key for key, value in kept.items() if isinstance(value, str)}
    assert texts == {"burnish", "device", "engine", "kind", "outcome"}
    assert set(kept) == set(PastRun.model_fields)


@pytest.mark.full
def test_the_newest_of_each_kind_stay():
    for when in range(MOST_OF_A_KIND + 5):
        remember(run(float(when)))
    remember(run(0.5, kind="nf4 bf16"))
    whens = [each.when for each in past_runs()]
    assert whens == [0.5, *map(float, range(5, MOST_OF_A_KIND + 5))]


def test_the_file_stays_small():
    made = [run(float(when), device=f"GPU {when}") for when in range(MOST + 30)]
    assert [each.when for each in module._newest(made)] == [float(when) for when in range(30, MOST + 30)]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "7", '{"version": 1}', '{"version": 0, "runs": []}', '{"version": "1", "runs": []}',
        '{"version": 1, "runs": [{}]}', '{"version": 1, "runs": {"a": 1}}', "[" * 100_000, "\udcff",
        '{"version": 1, "runs": [' + run().model_dump_json().replace("130", "-130") + "]}",
        '{"version": 1, "runs": [' + run().model_dump_json().replace("1000.0", "NaN") + "]}",
    ],
)  # fmt: skip
def test_a_damaged_file_is_not_used_and_said_once(text, caplog):
    past_runs_file().parent.mkdir(parents=True, exist_ok=True)
    past_runs_file().write_bytes(text.encode("utf-8", "surrogateescape"))
    with caplog.at_level(logging.WARNING):
        assert past_runs() == ()
        assert past_runs() == ()
    assert len(caplog.records) == 1
    assert "\n" not in caplog.records[0].getMessage()
    remember(run())
    assert past_runs() == (run(),)


def test_a_huge_file_is_not_read(caplog):
    past_runs_file().parent.mkdir(parents=True, exist_ok=True)
    past_runs_file().write_text(" " * 3_000_000)
    assert past_runs() == ()
    assert len(caplog.records) == 1


def test_a_newer_versions_file_is_left_alone(caplog):
    newer = '{"version": 2, "runs": "otherwise"}'
    past_runs_file().parent.mkdir(parents=True, exist_ok=True)
    past_runs_file().write_text(newer)
    assert past_runs() == ()
    remember(run())
    assert past_runs_file().read_text() == newer
    assert "newer version (2)" in caplog.text


def test_keys_of_a_later_minor_version_are_passed_over():
    text = json.dumps({"version": 1, "runs": [{**json.loads(run().model_dump_json()), "later": 1}], "later": 2})
    past_runs_file().parent.mkdir(parents=True, exist_ok=True)
    past_runs_file().write_text(text)
    assert past_runs() == (run(),)


def test_runs_that_end_together_are_all_kept():
    threads = [threading.Thread(target=remember, args=(run(float(when)),)) for when in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(past_runs()) == 8


def test_a_folder_that_cannot_be_written_ends_nothing(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "file"))
    remember(run())
    assert "could not be kept" in caplog.text
