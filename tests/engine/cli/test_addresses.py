"""Addresses on the command line: each command takes them as what they are, or names them whole and says what to give.

A path loses one of the slashes of an address, so none may be read as a path before it is looked at.
"""

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.recipe.recipe_file import load_recipe

from support.models.tiny import conversations, write_jsonl

HUB, WEB = "hf://models/owner/name", "https://somewhere.example/file.gguf"
COMMANDS = [
    f"inspect {HUB}", f"inspect {WEB}", f"inspect good.jsonl --validation {HUB}", f"inspect good.jsonl --model {WEB}",
    f"suggest --data {HUB}", f"suggest --validation {WEB} --data good.jsonl", f"suggest --model {HUB}",
    f"suggest --out {WEB}", f"recipe new new.toml --data {HUB}", f"recipe new new.toml --data {WEB}",
    f"recipe new new.toml --model {HUB}", f"recipe new {WEB}", f"recipe check {HUB}", f"plan {WEB}",
    f"plan --model {HUB}", f"train {WEB}", "train recipe.toml", f"train good.toml --run-dir {HUB}",
    f"sweep {WEB} --try train.seed=1,2", f"duel good.toml {HUB}", f"duel good.toml good.toml --out {WEB}",
    f"duel --resume {HUB}", f"demo --out {WEB}", f"chat {HUB}", f"chat {WEB}", f"export {HUB}",
    f"verify {WEB} --against last", f"runs show {HUB}", f"bench gguf {WEB}", f"models fetch {WEB}",
]  # fmt: skip


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_is_refused_whole_where_it_means_nothing(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BURNISH_OFFLINE", "0")
    write_jsonl(tmp_path / "good.jsonl", conversations(4))
    (tmp_path / "good.toml").write_text('[data]\nfiles = ["good.jsonl"]\n')
    (tmp_path / "recipe.toml").write_text(f'[data]\nfiles = ["{HUB}"]\n')
    before = sorted(tmp_path.iterdir())
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert said.count("burnish:") == 1, said
    assert (WEB if WEB in command else HUB) in said, said
    assert sorted(tmp_path.iterdir()) == before


def test_the_address_of_a_dataset_stays_one_in_a_recipe(tmp_path):
    address = "hf://datasets/owner/name@main"
    path = tmp_path / "recipe.toml"
    assert main(["recipe", "new", str(path), "--data", address]) == 0
    assert load_recipe(path).data.files == [address]
