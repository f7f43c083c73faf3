"""Bad input: one clear paragraph, the right exit code, nothing half-written."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.runs.store import create_run

from support.models.tiny import conversations, make_llama, write_jsonl


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a tiny model."""
    return make_llama(tmp_path_factory.mktemp("models") / "mödel one")


@pytest.fixture
def work(tmp_path):
    """A folder with a space and non-ASCII letters, holding a good dataset."""
    folder = tmp_path / "mein Ordner é"
    folder.mkdir()
    write_jsonl(folder / "good.jsonl", conversations(30))
    return folder


def train(work, model, data="good.jsonl", extra="", **settings):
    """`burnish train` on a recipe in `work`; returns the exit code."""
    lines = "\n".join(f"{key} = {value}" for key, value in settings.items())
    recipe = work / "recipe.toml"
    recipe.write_text(
        f"[model]\npath = '{model}'\n[data]\nfiles = ['{data}']\nmax_length = 128\n{lines}\n"
        f"[devices]\nkind = 'cpu'\n[train]\nmax_steps = 2\nmicro_batch_tokens = 256\n{extra}\n",
        encoding="utf-8",
    )
    return main(["train", str(recipe)])


def paragraph(capsys):
    """What was said on standard error: exactly one paragraph, no traceback."""
    text = capsys.readouterr().err
    assert text.count("burnish:") == 1, text
    assert "Traceback" not in text
    assert len(text.strip().splitlines()) == 1, text
    return text


def broken_line(path):
    lines = [json.dumps(row) for row in conversations(600)]
    lines[516] = '{"messages": [{"role": "user", "content": "x"'
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


BAD_DATA = {
    "missing": (lambda path: None, ["no data file at"]),
    "empty": (lambda path: path.write_bytes(b""), ["empty"]),
    "broken in line 517": (broken_line, ["517"]),
    "wrong encoding": (lambda path: path.write_bytes('{"text": "caf\xe9"}\n'.encode("latin-1")), ["UTF-8"]),
    "no known shape": (
        lambda path: write_jsonl(path, [{"temperature": 3, "city": "Ulm"}]),
        ["temperature", "messages"],
    ),
    "nothing to learn": (
        lambda path: write_jsonl(path, [{"messages": [{"role": "user", "content": "hm"}]}] * 3),
        ["conversations without replies"],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(work, model, capsys, case):
    make, words = BAD_DATA[case]
    make(work / "bäd.jsonl")
    assert train(work, model, "bäd.jsonl") == 11
    text = paragraph(capsys)
    for word in words:
        assert word in text, text
    assert not runs_dir().exists() or not list(runs_dir().iterdir())


def test_all_rows_too_long(work, model, capsys):
    assert train(work, model, extra="", overlong="'drop'", max_length=16) == 2  # given twice: not TOML
    capsys.readouterr()
    (work / "recipe.toml").write_text(
        f"[model]\npath = '{model}'\n[data]\nfiles = ['good.jsonl']\nmax_length = 16\noverlong = 'drop'\n"
        "[devices]\nkind = 'cpu'\n",
        encoding="utf-8",
    )
    assert main(["train", str(work / "recipe.toml")]) == 11
    assert "All 30 rows are longer than data.max_length (16 tokens)" in paragraph(capsys)


def test_a_misspelt_key_and_a_value_out_of_range(work, model, capsys):
    assert train(work, model, extra="lerning_rate = 1") == 2
    assert "did you mean train.learning_rate" in paragraph(capsys)
    assert train(work, model, extra="learning_rate = -1") == 2
    assert "train.learning_rate = -1" in paragraph(capsys)
    assert not runs_dir().exists()


def bare(model, folder, keep=("config.json", "tokenizer.json", "tokenizer_config.json")):
    folder.mkdir()
    for name in keep:
        (folder / name).write_bytes((model / name).read_bytes())
    return folder


def no_weights(model, folder):
    bare(model, folder)


def pickles_only(model, folder):
    (bare(model, folder) / "pytorch_model.bin").write_bytes(b"\x80\x04pickle")


def unknown_architecture(model, folder):
    bare(model, folder)
    (folder / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "quantum_rnn"}))


def damaged_weights(model, folder):
    bare(model, folder)
    (folder / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-1000])


def missing_shard(model, folder):
    bare(model, folder)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def no_tokenizer(model, folder):
    bare(model, folder, keep=("config.json", "model.safetensors"))


def no_config(model, folder):
    bare(model, folder, keep=("tokenizer.json", "model.safetensors"))


def broken_config(model, folder):
    bare(model, folder)
    (folder / "config.json").write_text('{"model_type": ')


BAD_MODELS = [
    (no_weights, "no weights"),
    (pickles_only, "pickles (pytorch_model.bin)"),
    (unknown_architecture, "'quantum_rnn'"),
    (damaged_weights, "is damaged: its tensors end at byte"),
    (missing_shard, "lacks 1 of 1 weight files"),
    (no_tokenizer, "no tokenizer"),
    (no_config, "no config.json"),
    (broken_config, "not valid JSON"),
]


@pytest.mark.full
@pytest.mark.parametrize(("make", "words"), BAD_MODELS, ids=lambda value: getattr(value, "__name__", ""))
def test_bad_model_folders(work, model, capsys, make, words):
    make(model, work / "kaputt ü")
    assert train(work, work / "kaputt ü") == 12
    text = paragraph(capsys)
    assert words in text, text
    assert not list(runs_dir().iterdir())


@pytest.mark.full
def test_no_such_model_folder(work, capsys):
    assert train(work, work / "nowhere") == 2
    assert "does not exist" in paragraph(capsys)


def test_a_run_folder_of_another_version(capsys):
    paths = create_run(Recipe())
    paths.state.write_text('{"v": 7, "run": "x"}')
    for command in (["runs", "resume"], ["runs", "show"], ["chat"], ["export"]):
        assert main([*command, str(paths.root)]) == 2
        assert "version 7" in paragraph(capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "No such command"),
        (["train"], "Missing argument"),
        (["train", "x.toml", "--quickly"], "No such option"),
        (["runs", "show", "nothing"], "no run 'nothing'"),
        (["runs", "stop", "nothing"], "no run 'nothing'"),
        (["chat", "none.gguf"], "none.gguf"),
        (["export", "nothing"], "no run 'nothing'"),
        (["demo", "--tokens", "1"], "2000"),
    ],
)
def test_usage(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in paragraph(capsys)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("trian", "burnish"),
        ("--nope", "burnish"),
        ("runs shwo", "burnish runs"),
        ("train", "burnish train"),
        ("train r.toml --name x", "burnish train"),
        ("train r.toml --run-dir", "burnish train"),
        ("runs show --json=3", "burnish runs show"),
        ("plan a b c", "burnish plan"),
        ("export x --quants", "burnish export"),
        ("submit x.toml --gpus abc", "burnish submit"),
        ("submit x.toml --gpus 900", "burnish submit"),
    ],
)
def test_a_mistake_in_the_usage_is_a_sentence_before_the_hint_at_help(arguments, command, capsys):
    assert main(arguments.split()) == 2
    said, hint, _ = paragraph(capsys).partition(f" `{command} --help` ")
    assert hint
    assert said.endswith((".", "?"))
    assert ".." not in said


def test_a_file_without_permission_is_no_mistake_in_the_usage(tmp_path, capsys, monkeypatch):
    file = tmp_path / "recipe.toml"
    file.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert main(["train", str(file)]) == 2
    said = paragraph(capsys)
    assert "is not readable. Check its permissions." in said
    assert "--help" not in said


@pytest.mark.full
def test_good_input_with_awkward_paths_trains(work, model, capsys):
    assert train(work, model) == 0
    assert [path.is_dir() for path in runs_dir().iterdir()] == [True]


def test_a_full_disk_ends_with_15_and_leaves_no_half_file(work, model, capsys, tmp_path):
    """On a tmpfs of 200 kB: the run starts, the first checkpoint does not fit."""
    small = tmp_path / "small disk"
    small.mkdir()
    mounted = (
        os.name == "posix"
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)], capture_output=True, check=False
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting is not allowed; the same is tested by injection in train/test_failed_runs.py")
    try:
        recipe = work / "recipe.toml"
        recipe.write_text(
            f"[model]\npath = '{model}'\n[data]\nfiles = ['good.jsonl']\nmax_length = 128\n[adapter]\nrank = 32\n"
            "[devices]\nkind = 'cpu'\n[train]\nmax_steps = 3\nmicro_batch_tokens = 256\n",
            encoding="utf-8",
        )
        assert main(["train", str(recipe), "--run-dir", str(small / "run")]) == 15
        text = paragraph(capsys)
        assert "disk is full" in text
        assert not list(Path(small / "run" / "checkpoints").glob("step-*"))
        assert not (small / "run" / "adapter").exists()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_bug_is_told_as_one(monkeypatch, capsys, burnish_home):
    def broken():
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("burnish_engine.runs.store.runs_dir", broken)
    assert main(["runs", "list"]) == 1
    assert "bug in Burnish: ZeroDivisionError: oops" in paragraph(capsys)
    report = (burnish_home / "last-error.log").read_text()
    assert "What: burnish runs list" in report
    assert "Traceback" in report


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"a\n{% for %}", "line 2"), (b"{{ 1 | nofilter }}", "line 1")],
)
def test_recipe_check_reads_the_template_that_the_recipe_names(content, said, tmp_path, capsys):
    (tmp_path / "own.jinja").write_bytes(content)
    (tmp_path / "recipe.toml").write_text('[data]\nfiles = ["a.jsonl"]\ntemplate = "own.jinja"\n', encoding="utf-8")
    assert main(["recipe", "check", str(tmp_path / "recipe.toml")]) == 11
    error = " ".join(capsys.readouterr().err.split())
    assert said in error
    assert "own.jinja" in error.replace(" ", "")


def test_recipe_check_takes_a_template_in_order(tmp_path):
    (tmp_path / "own.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    (tmp_path / "recipe.toml").write_text('[data]\ntemplate = "own.jinja"\n', encoding="utf-8")
    assert main(["recipe", "check", str(tmp_path / "recipe.toml")]) == 0
