"""Options of all commands: numbers, paths and combinations that are refused."""

import os

import pytest

from burnish_engine.cli.command_line import _commands
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode

# Numbers of options. Every option of every command that takes a number is found in the command tree.

BAD_NUMBERS = ("nan", "-nan", "inf", "-inf", "1e999", "10" * 10, "-" + "9" * 400, "abc", "1,5", "0x1F", "\x1b[2J", "")


def numeric_options():
    def walk(command, path):
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, [*path, name])
        if hasattr(command, "commands"):
            return
        needed = ["x" for parameter in command.params if not parameter.opts[0].startswith("-") and parameter.required]
        for parameter in command.params:
            annotation = str(getattr(parameter, "type_descriptor", None))
            if parameter.opts[0].startswith("-") and ("'int'" in annotation or "'float'" in annotation):
                yield [*path, *needed], parameter.opts[0]

    return list(walk(_commands(), []))


@pytest.mark.parametrize(("command", "option"), numeric_options(), ids=str)
def test_numbers_of_options(refused, command, option):
    for number in BAD_NUMBERS:
        refused(*command, f"{option}={number}", codes=(ExitCode.USAGE,))


def test_there_are_many_numeric_options():
    assert len(numeric_options()) > 25


# Paths: every command that opens one, and names that cannot be opened.


def folder(path):
    path.mkdir()


def fifo(path):
    os.mkfifo(path)


def loop(path):
    path.symlink_to(path)


def dangling(path):
    path.symlink_to(path.with_name("nowhere"))


def empty(path):
    path.touch()


def binary(path):
    path.write_bytes(bytes(range(256)) * 40)


ODD_PATHS = {
    "long": lambda path: path.with_name("n" * 5000),
    "long parts": lambda path: path.joinpath(*["part"] * 1000),
    "below a file": lambda path: (empty(path), path / "x")[1],
    "escapes": lambda path: path.with_name("\x1b[2J[red]\u202e"),
    "missing": lambda path: path.with_name("missing [data].jsonl"),
    "folder": folder,
    "fifo": fifo,
    "loop": loop,
    "dangling": dangling,
    "empty": empty,
    "binary": binary,
}
LEAVE_OUT = {
    "folder": ["suggest"], "empty": ["recipe check", "plan", "suggest", "factors"], "binary": ["suggest"]
}  # fmt: skip
"""An empty recipe is a recipe; and `suggest` reads data with the embedded model, which takes long to unpack."""
OPENING = {
    "recipe check": ["recipe", "check", "{}"],
    "train": ["train", "{}"],
    "plan": ["plan", "{}"],
    "duel": ["duel", "{}", "{}"],
    "duel resume": ["duel", "--resume", "{}"],
    "suggest": ["suggest", "--data", "{}"],
    "chat": ["chat", "{}"],
    "chat file": ["chat", "{}.gguf"],
    "export": ["export", "{}"],
    "verify": ["verify", "x.gguf", "--against", "{}"],
    "show": ["runs", "show", "{}"],
    "stop": ["runs", "stop", "{}"],
    "resume": ["runs", "resume", "{}"],
    "delete": ["runs", "delete", "--yes", "{}"],
    "compare": ["runs", "compare", "{}", "{}"],
    "bench": ["bench", "gguf", "{}"],
    "bundle": ["bundle", "x.zip", "--release", "{}"],
    "rewards try": ["rewards", "try", "{}", "--own"],
    "rewards write": ["rewards", "write", "{}", "--out", "x.jsonl"],
    "factors": ["duel", "{}", "--try", "adapter.rank=4,8", "--dry-run"],
    "sweep": ["sweep", "{}", "--try", "adapter.rank=4,8", "--dry-run"],
    "evaluate": ["evaluate", "{}"],
}


@pytest.mark.skipif(os.name == "nt", reason="pipes and links")
@pytest.mark.parametrize("command", OPENING)
def test_paths_that_cannot_be_opened(refused, tmp_path, command):
    for number, (name, make) in enumerate(ODD_PATHS.items()):
        path = tmp_path / f"odd{number}{'.jsonl' if command == 'suggest' else ''}"
        path = make(path) or path
        if command in LEAVE_OUT.get(name, ()):
            continue
        refused(*[part.format(path) for part in OPENING[command]])


# Choices and combinations.

BAD_CALLS = [
    [], ["runs"], ["recipe"], ["bench"], ["trian"], ["train"], ["train", "a", "b"], ["chat"], ["export"],
    ["verify", "x"], ["verify", "x.gguf", "--against", "x"],
    ["serve", "x"], ["studio", "x"], ["doctor", "--fix"], ["models", "fetch"],
    ["models", "fetch", "x"], ["models", "fetch", "../x"], ["models", "fetch", "a/b/c"], ["models", "fetch", "a/.."],
    ["models", "fetch", "a/b", "--token-from-env", "NOT_SET"], ["models", "search", "--target", "toaster"],
    ["models", "search", "--context", "1"], ["suggest", "--target", "toaster"], ["suggest", "--quant", "Q9"],
    ["suggest", "--ram-gib", "-1"], ["suggest", "--ram-gib", "99999"], ["suggest", "--model", "no/such"],
    ["plan", "--skip-data"], ["plan", "--gpu-gib", "-4"], ["plan", "--model", "no/such"], ["plan", "x", "--model", "y"],
    ["duel"], ["duel", "a"], ["duel", "a", "b", "--factors", "x"], ["duel", "a", "b", "--factors", "nan"],
    ["duel", "a", "b", "--factors", ""], ["duel", "a", "b", "--seeds", "1"], ["duel", "a", "b", "--evaluations", "-1"],
    ["duel", "a", "b", "--resume", "c"], ["chat", "embedded", "--device", "tpu"], ["chat", "x", "--temperature", "-1"],
    ["chat", "embedded", "--base"], ["chat", "x.gguf", "--exported"],
    ["inspect", "x.jsonl", "--objective", "odd"], ["chat", "embedded", "--start"], ["chat", "x", "--base", "--start"],
    ["chat", "x", "--top-p", "2"], ["chat", "x", "--seed", "-1"], ["chat", "x", "--max-tokens", "0"],
    ["chat", "x", "--top-k", "-1"], ["chat", "x", "--min-p", "2"],
    ["export", "x", "--to", "zip"],
    ["export", "x", "--to", "adapter", "--json"], ["export", "x", "--each-expert"],
    ["export", "x", "--leave-out", "vision"], ["export", "x", "--to", "adapter", "--leave-out", "mtp"],
    ["export", "x", "--size-limit", "-1"], ["runs", "show"],
    ["runs", "compare", "x"], ["runs", "compare", "x", "x"], ["runs", "delete", "x"], ["runs", "odd"],
    ["bench", "kernels", "--op", "odd"], ["bench", "step", "--shape", "odd"], ["bench", "step", "--method", "odd"],
    ["bench", "step", "--precision", "odd"], ["bench", "step", "--device", "odd"], ["bench", "step", "--rank", "0"],
    ["bench", "step", "--keep", "odd", "--device", "cpu"], ["bench", "step", "--optimizer", "odd"],
    ["bench", "step", "--masking", "odd"], ["bench", "step", "--one-document", "--packs", "x"], ["bench", "gguf"],
    ["bench", "step", "--device", "cpu", "--gpus", "2", "--profile"],
    *(["duel", "x", "--try", odd] for odd in (
        "", "=", "=1,2", "adapter", "adapter.rank", "adapter.rank=", "adapter.rank=,", "adapter.rank=4",
        "adapter.rank=4,4", "adapter.rank=4,8,16", "adapter.rank=4,x", "adapter.rank=4,nan", "adapter.rank=4,8.5",
        f"adapter.rank=4,{'9' * 400}", f"train.learning_rate=1,{'9' * 400}", "train.learning_rate=1,inf",
        "train.learning_rate=1,1e400", "data.files=a,b", "model.path=a,b", "reward=1,2", "a\0b=1,2", "[=1,2", "é=1,2",
    )),
    ["duel", "x", *["--try", "adapter.rank=4,8"] * 2], ["sweep", "x", "--try", f"train.seed=1,{'9' * 400}"],
    ["rewards", "try", "x", "--rows", "0"], ["rewards", "try"], ["rewards", "odd"], ["models", "radar", "--odd"],
    ["bundle"], ["bundle", "x.zip", "--add"],
    ["bench", "gguf", "x", "--threads", "0"], ["recipe", "odd"], ["demo", "--tokens", "1"], ["--odd"], ["-x"],
]  # fmt: skip


@pytest.mark.parametrize("call", BAD_CALLS, ids=lambda call: " ".join(call) or "nothing")
def test_calls(call, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(call) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "This is a bug" not in error  # the help of `burnish` itself lists the exit code for one
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", [["train", "x"], ["runs", "resume", "x"], ["bench", "step"]], ids=" ".join)
def test_more_gpus_than_can_share_a_run(call, capsys):
    assert main([*call, "--gpus", "65"]) == ExitCode.USAGE
    assert "64" in capsys.readouterr().err


@pytest.mark.parametrize("rank", ["0", "1", None])
@pytest.mark.parametrize("command", [["train"], ["runs", "resume"]], ids=str)
def test_a_process_of_several_that_cannot_meet_is_told_what_to_unset(capsys, monkeypatch, command, rank):
    for name, value in {"RANK": rank, "WORLD_SIZE": "2", "MASTER_PORT": None}.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert main([*command, "x"]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "MASTER_PORT" in error
    assert "Unset RANK and WORLD_SIZE" in error


def test_a_refused_run_folder_leaves_nothing_behind(refused, tmp_path, model):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f"[model]\npath = '{model}'\n[data]\nfiles = ['missing.jsonl']\nmax_length = 64\n[devices]\nkind = 'cpu'\n"
    )
    refused("train", recipe, "--run-dir", tmp_path / "new" / "deep" / "run")
    assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    refused("train", recipe, "--run-dir", tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []
    (tmp_path / "there" / "mine.txt").write_text("mine")
    refused("train", recipe, "--run-dir", tmp_path / "there")
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["mine.txt"]
