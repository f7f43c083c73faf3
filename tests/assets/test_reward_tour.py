"""The tour of learning from rewards is gone through, on a tiny model and in two steps."""

import re
from pathlib import Path

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.run.events import RewardsGiven
from burnish_engine.runs.store import open_run

from support.models.tiny import make_llama
from support.runs.tiny_runs import of_kind

PAGE = Path(__file__).parents[2] / "assets" / "guide" / "reward-tour.md"
SHORTER = {
    "groups": 2, "replies": 2, "max_tokens": 6, "max_steps": 2, "every": 2,
}  # fmt: skip


@pytest.mark.full
def test_the_tour_can_be_gone_through(tmp_path, burnish_home, monkeypatch, capsys):
    page = PAGE.read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```(json|toml|)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL))
    make_llama(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    recipe = blocks["toml"]
    for key, value in SHORTER.items():
        recipe = re.sub(rf"^{key} = \d+$", f"{key} = {value}", recipe, flags=re.MULTILINE)
    recipe += '[model]\npath = "base"\n[devices]\nkind = "cpu"\n'
    Path("questions.jsonl").write_text(blocks["json"], encoding="utf-8")
    Path("yes-or-no.toml").write_text(recipe, encoding="utf-8")
    commands = [line.split()[1:] for line in blocks[""].splitlines()]
    assert [command[0] for command in commands] == ["rewards", "plan", "train", "chat"]
    for command in commands[:3]:
        assert main(command) == 0, capsys.readouterr().err
    assert len(of_kind(open_run("last"), RewardsGiven)) == 2
    assert len(list(runs_dir().iterdir())) == 1
