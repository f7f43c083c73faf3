"""A card on the terminal."""

import json

from burnish_engine.cli.main import main
from burnish_engine.cli.training.card import card_lines
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.card import FactChange, Resume
from burnish_engine.runs.card import write_card
from burnish_engine.runs.store import create_run

from support.runs.cards import digest, files, make_card


def test_the_main_lines_say_what_it_takes_to_make_a_run_again():
    changed = [FactChange(what="torch", before="2.13.0", after=None)]
    card = make_card(
        weights="nf4",
        begun_step=2,
        resumes=[Resume(t=1.0, step=5, changed=[]), Resume(t=2.0, step=6, changed=changed)],
    )
    assert list(card_lines(card)) == [
        "Made with Burnish 0.1.0, Python 3.11.7, torch 2.13.0, CUDA 12.8",
        "On Lamp 9000 (8.0 GiB, compute capability 9.0), Linux 6.1, x86_64: fast engine, bf16, frozen weights in nf4",
        "Seed 3, recipe eeeeeeeeeeee, tokenized data tttttttttttt",
        "Memory plan: layers = all:2, mlp_rows = 0, head_rows = 256",
        "Base model tiny: model.safetensors bbbbbbbbbbbb",
        "Data: train.jsonl dddddddddddd",
        "The card was begun at step 2; what the steps before were made with is not known",
        "Continued at step 5 with everything the same",
        "Continued at step 6 with torch none (before: 2.13.0)",
        "Saved at the end (step 10, 2,000 tokens): adapter-model.safetensors rrrrrrrrrrrr",
    ]


def test_many_files_are_counted_and_unread_ones_named():
    base = files(a_safetensors="1", b_safetensors=None, c_safetensors="3", d_safetensors="4", e_safetensors="5")
    lines = list(card_lines(make_card(base=base, compute_capability=None, result=False)))
    assert (
        "Base model tiny: a.safetensors 111111111111, b.safetensors (not read), c.safetensors 333333333333, "
        "and 2 more" in lines
    )
    assert "threads: 4" in lines[1]


def test_runs_show_prints_the_card_and_does_without(capsys):
    paths = create_run(Recipe(), runs_dir() / "a")
    assert main(["runs", "show", "a"]) == 0
    assert "Made with" not in capsys.readouterr().out
    assert main(["runs", "show", "a", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["card"], said["card_problem"]) == (None, None)

    write_card(paths, make_card(device="Lamp [bold] 9000"))
    assert main(["runs", "show", "a"]) == 0
    assert "On Lamp [bold] 9000" in capsys.readouterr().out
    assert main(["runs", "show", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["card"]["base"]["files"][0]["sha256"] == digest("b")

    paths.card.write_text("{", encoding="utf-8")
    assert main(["runs", "show", "a"]) == 0
    assert "note: The card of the run a" in capsys.readouterr().out
    assert main(["runs", "show", "a", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["card"] is None
    assert said["card_problem"].startswith("The card of the run a")
