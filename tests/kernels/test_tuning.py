"""Tuned choices: whose table counts, and that no table can stop a run."""

import json
import logging
import os
from dataclasses import dataclass

import pytest

from burnish_kernels import tuning
from burnish_kernels.registry import OPS
from burnish_kernels.tuning import Device, choose, fingerprint, save

CARD = Device("NVIDIA GeForce RTX 4090", 89)
OP = OPS[0]


@dataclass(frozen=True)
class Config:
    """What a kernel would be configured with."""

    rows: int
    warps: int
    fused: bool = True


DEFAULT, OTHER, THIRD = Config(64, 4), Config(128, 8), Config(32, 2)


@pytest.fixture(autouse=True)
def card(monkeypatch, tmp_path):
    """A GPU by name only; tables of the user and shipped ones in empty folders."""
    monkeypatch.setattr(tuning, "device_of", lambda device: CARD)
    monkeypatch.setattr(tuning, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv(tuning.CACHE_VARIABLE, str(tmp_path / "own"))
    tuning.forget_tables()
    yield tmp_path
    tuning.forget_tables()


def ship(folder, name, content):
    (folder / "shipped").mkdir(exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "shipped" / name).write_text(text, encoding="utf-8")
    tuning.forget_tables()


def table(**fields):
    return {"ops": {OP: {"choices": {"forward": fields}}}}


def test_without_a_table_the_default_is_chosen():
    assert choose(OP, "forward", DEFAULT) is DEFAULT


def test_a_processor_has_no_tables(monkeypatch, card):
    ship(card, "sm_89.json", table(rows=128, warps=8, fused=True))
    monkeypatch.undo()
    assert choose(OP, "forward", DEFAULT, device="cpu") is DEFAULT


def test_the_users_table_goes_before_the_cards_and_that_before_its_generations(card):
    ship(card, "sm_89.json", table(rows=128, warps=8, fused=True))
    assert choose(OP, "forward", DEFAULT) == OTHER
    ship(card, "nvidia-geforce-rtx-4090.json", table(rows=32, warps=2, fused=True))
    assert choose(OP, "forward", DEFAULT) == THIRD
    save(OP, {"forward": Config(16, 1)}, CARD)
    assert choose(OP, "forward", DEFAULT) == Config(16, 1)
    assert choose(OP, "backward", DEFAULT) is DEFAULT


def test_choices_may_be_plain_dicts(card):
    save(OP, {"forward": {"rows": 128}}, CARD)
    assert choose(OP, "forward", {"rows": 64}) == {"rows": 128}


def test_saving_keeps_what_was_saved_before(card):
    file = save(OP, {"forward": OTHER}, CARD)
    assert save(OP, {"backward": THIRD}, CARD) == file
    assert (choose(OP, "forward", DEFAULT), choose(OP, "backward", DEFAULT)) == (OTHER, THIRD)
    assert [path.name for path in file.parent.iterdir()] == ["nvidia-geforce-rtx-4090.json"]


def test_only_configurations_that_were_compiled_ahead_are_taken(card):
    save(OP, {"forward": OTHER}, CARD)
    assert choose(OP, "forward", DEFAULT, allowed=(DEFAULT, OTHER)) == OTHER
    assert choose(OP, "forward", DEFAULT, allowed=(DEFAULT, THIRD)) is DEFAULT


@pytest.mark.parametrize("changed", ["device", "triton", "code"])
def test_what_was_measured_elsewhere_or_on_other_code_is_forgotten(card, changed):
    file = save(OP, {"forward": OTHER}, CARD)
    content = json.loads(file.read_text())
    if changed == "code":
        content["ops"][OP]["code"] = "0" * 16
    else:
        content[changed] = "another"
    file.write_text(json.dumps(content))
    tuning.forget_tables()
    assert choose(OP, "forward", DEFAULT) is DEFAULT
    save(OP, {"backward": THIRD}, CARD)
    assert "forward" not in json.loads(file.read_text())["ops"][OP]["choices"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rows": 128},
        {"rows": 128, "warps": 8, "fused": True, "more": 1},
        {"rows": "128", "warps": 8, "fused": True},
        {"rows": 128.0, "warps": 8, "fused": True},
        {"rows": True, "warps": 8, "fused": True},
        {"rows": 128, "warps": 8, "fused": 1},
        {"rows": -128, "warps": 8, "fused": True},
        {"rows": 10**9, "warps": 8, "fused": True},
        {"rows": None, "warps": [], "fused": {}},
    ],
)
def test_a_choice_of_another_form_is_passed_over(card, fields):
    ship(card, "nvidia-geforce-rtx-4090.json", table(**fields))
    ship(card, "sm_89.json", table(rows=32, warps=2, fused=True))
    assert choose(OP, "forward", DEFAULT) == THIRD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"ops": []}',
        '{"ops": {"x": 3}}',
        '{"ops": {"x": {"choices": [1]}}}',
        '{"ops": {"x": {"choices": {"k": 7}}}}',
        "[" * 100_000,
        '{"ops": "' + "x" * (1 << 20) + '"}',
    ],
    ids=range(10),
)
def test_a_damaged_table_is_ignored_with_one_warning(card, caplog, text):
    ship(card, "sm_89.json", text)
    with caplog.at_level(logging.WARNING):
        assert [choose(OP, "forward", DEFAULT) for _ in range(3)] == [DEFAULT] * 3
    assert [record.getMessage() for record in caplog.records] == [caplog.records[0].getMessage()]
    assert "sm_89.json" in caplog.text


def test_a_table_that_is_no_text_or_no_file_is_ignored(card, caplog):
    (card / "shipped" / "sm_89.json").mkdir(parents=True)
    (card / "own").mkdir()
    (card / "own" / "nvidia-geforce-rtx-4090.json").write_bytes(b"\xff\xfe\x00")
    assert choose(OP, "forward", DEFAULT) is DEFAULT
    assert len(caplog.records) == 2


def test_an_operation_with_a_path_for_a_name_makes_nobody_read_that_path(card, monkeypatch):
    file = save(OP, {"forward": OTHER}, CARD)
    content = json.loads(file.read_text())
    content["ops"]["../../elsewhere"] = {"code": "x", "choices": {}}
    file.write_text(json.dumps(content))
    asked = []
    monkeypatch.setattr(tuning, "fingerprint", lambda op: asked.append(op) or fingerprint(op))
    tuning.forget_tables()
    assert choose(OP, "forward", DEFAULT) == OTHER
    assert asked == [OP]


def test_a_failed_write_leaves_the_old_table(card, monkeypatch):
    file = save(OP, {"forward": OTHER}, CARD)
    before = file.read_bytes()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(OP, {"forward": THIRD}, CARD)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_without_a_folder_nothing_is_saved(monkeypatch):
    monkeypatch.delenv(tuning.CACHE_VARIABLE)
    with pytest.raises(ValueError, match=tuning.CACHE_VARIABLE):
        save(OP, {"forward": OTHER}, CARD)


def test_a_name_becomes_a_file_name():
    assert Device("NVIDIA H100 80GB HBM3", 90).slug == "nvidia-h100-80gb-hbm3"
    assert Device("../..\\Größe", 80).slug == "gr-e"
    assert Device("漢字", 80).slug == "unnamed"


def test_shipped_tables_are_sound(monkeypatch):
    monkeypatch.undo()
    for file in tuning.SHIPPED.glob("*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        assert set(tuning._choices(content)) <= set(OPS), file.name
        assert file.stem.startswith("sm_") or Device(content["device"], 0).slug == file.stem
