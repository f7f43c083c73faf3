"""The radar: its page says what holds of each causal model type of transformers, and it survives what types do."""

import json
import re
from dataclasses import asdict

import pytest
import transformers

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import assets_dir
from burnish_engine.radar.radar import causal_types, scan, scan_one
from burnish_engine.radar.small_model import small_config
from burnish_engine.radar.verdict import Verdict, page

PAGE = (assets_dir() / "guide" / "radar.md").read_text(encoding="utf-8")
ROWS = {name: row for row, name in re.findall(r"^(\| `([^`]+)` \| .*)$", PAGE.partition("|---")[2], re.MULTILINE)}
GREEN = Verdict("llama", "fast", "packed", "yes", "equal")


def test_the_page_has_a_row_for_each_type():
    assert f"transformers {transformers.__version__}" in PAGE
    assert sorted(ROWS) == causal_types()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_type_does_what_the_page_says(name):
    assert scan_one(name).row == ROWS[name]


@pytest.mark.long
def test_a_type_that_takes_too_long_is_said_to():
    assert scan_one("llama", limit_s=0.01).why == "takes too long"


@pytest.mark.long
def test_a_type_that_cannot_be_built_says_why():
    found = scan_one("no such type")
    assert found.plans == ""
    assert found.why.startswith("not built: ")


def test_kept_verdicts_are_not_tried_again(tmp_path):
    kept = tmp_path / "radar.jsonl"
    kept.write_text(json.dumps(asdict(GREEN)) + "\n", encoding="utf-8")
    assert list(scan(["llama"], kept)) == [GREEN]


def test_lines_that_are_no_verdict_are_passed_over(tmp_path):
    kept, known = tmp_path / "radar.jsonl", json.dumps(asdict(GREEN))
    odd = ["", "{", "[]", "null", "3", '{"model_type": 3}', '{"model_type": "x", "other": 1}', "[" * 5000, known[:40]]
    kept.write_bytes(b"\xff\xfe\n" + "\n".join([*odd, known]).encode() + b"\n")
    assert list(scan(["llama"], kept)) == [GREEN]


def test_an_unknown_type_is_refused(capsys):
    assert main(["models", "radar", "--only", "no such type"]) == ExitCode.USAGE
    assert "no such type" in capsys.readouterr().err


@pytest.mark.parametrize(("changes", "whole"), [
    ({}, True), ({"trains": "masked"}, True), ({"trains": "padded"}, False), ({"runs": "differs"}, False),
])  # fmt: skip
def test_the_whole_way_is_packed_and_equal(changes, whole):
    assert Verdict(**asdict(GREEN) | changes).whole_way is whole


def test_the_page_counts_types():
    text = page([GREEN, Verdict("bert", "plain", "no", "no", "", "not trained: diverged")], "9.8.7")
    assert text.index("`bert`") < text.index("`llama`")
    assert re.findall(r"\b\d+\b", text.partition(" 9.8.7")[0] + text.partition("9.8.7")[2].partition("`")[0]) == [
        *"2111"
    ]


@pytest.mark.parametrize(("name", "kinds"), [
    ("gemma3_text", {"sliding_attention", "full_attention"}), ("lfm2", {"conv", "full_attention"}),
    ("qwen3_5_text", {"linear_attention", "full_attention"}),
])  # fmt: skip
def test_every_kind_of_layer_stays(name, kinds):
    config = small_config(name, {})
    assert set(config.layer_types) == kinds
    assert len(config.layer_types) == config.num_hidden_layers <= 8


def test_sizes_only_shrink_and_what_is_off_stays_off():
    config = small_config("gemma4_text", {"hidden_size": 64, "num_experts": 4, "n_embd": 64})
    assert (config.hidden_size, config.num_kv_shared_layers) == (64, 1)
    assert config.num_experts is None
    assert not hasattr(config, "n_embd")
