"""A run's folder as Try it and Export read it."""

import pytest

from burnish_app.state.run_folder import frozen_section, opened_run, read_run_folder
from burnish_engine.contract.facts.exports import ExportChoice

from support.runs.cards import make_card


@pytest.mark.parametrize("file", ["adapter/adapter_model.safetensors", "model/model.safetensors"])
def test_an_adapter_or_a_whole_model_can_be_talked_to(tmp_path, file):
    assert not read_run_folder(str(tmp_path)).trained
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).touch()
    assert read_run_folder(str(tmp_path)).trained
    assert not read_run_folder("").trained


def test_a_model_of_its_own_means_that_there_is_no_adapter(tmp_path):
    (tmp_path / "adapter").mkdir()
    assert not read_run_folder(str(tmp_path)).full_fine_tuning
    (tmp_path / "model").mkdir()
    assert read_run_folder(str(tmp_path)).full_fine_tuning


def test_what_was_exported_is_told_apart(tmp_path):
    for name in ("a-Q8_0.gguf", "a-lora.gguf", "ollama-Q8_0/Modelfile", "ollama-empty/x", "lmstudio/x"):
        (tmp_path / "export" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "export" / name).touch()
    found = read_run_folder(str(tmp_path))
    assert (found.exported, found.adapters) == (("a-Q8_0.gguf",), ("a-lora.gguf",))
    assert (found.ollama, found.lm_studio) == (("ollama-Q8_0",), True)


def test_the_frozen_recipe_is_read_as_far_as_it_can_be(tmp_path):
    assert frozen_section(str(tmp_path), "export") == {}
    (tmp_path / "recipe.toml").write_text('name = "a"\n[export]\nquants = ["Q8_0"]\n', encoding="utf-8")
    assert frozen_section(str(tmp_path), "export") == {"quants": ["Q8_0"]}
    assert frozen_section(str(tmp_path), "name") == frozen_section(str(tmp_path), "data") == {}
    (tmp_path / "recipe.toml").write_bytes(b"\xff")
    assert frozen_section(str(tmp_path), "export") == {}


def test_what_the_card_says_of_exports_is_known(tmp_path):
    assert read_run_folder(str(tmp_path)).exports == ()
    choice = ExportChoice(kind="gguf", works=False, reason="No such family.")
    (tmp_path / "card.json").write_text(make_card(exports=[choice]).model_dump_json())
    assert read_run_folder(str(tmp_path)).exports == (choice,)
    (tmp_path / "card.json").write_text("{")
    assert read_run_folder(str(tmp_path)).exports == ()


def test_a_run_is_opened_by_its_folder_or_its_events_and_nothing_else(tmp_path):
    run, events = tmp_path / "run", tmp_path / "run" / "events.jsonl"
    run.mkdir()
    for name in ("events.jsonl", "recipe.toml"):
        assert opened_run([str(run)]) == ""
        (run / name).touch()
    assert opened_run([str(run)]) == opened_run([str(events)]) == str(run)
    assert [opened_run(one) for one in ([], [""], [str(run), str(events)], [str(run / "recipe.toml")])] == [""] * 4
