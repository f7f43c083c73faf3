"""Whatever a path or a folder is, `burnish serve` says in words what is wrong: no bug, no hang, no half file."""

import ctypes
import json
import os
import shutil
import socket
import struct
import sys

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.serve.messages import Failure

from support.app.in_process import Answers
from support.models.tiny import make_llama
from support.models.tiny_models import lora

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="pipes and permissions"), pytest.mark.timeout(300)]

MODEL = {"path": "/the tiny model"}  # a test puts the path of one there
SAY = [{"role": "user", "content": "x"}]


@pytest.fixture(scope="module")
def answers():
    return Answers()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_llama(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def no_privileges():
    """Permissions count for this thread, also where the tests' user is root (Linux capabilities, capset(2))."""
    if sys.platform != "linux" or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    head = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0))
    held = ctypes.create_string_buffer(24)
    assert libc.capget(head, held) == 0
    effective, *rest = struct.unpack("<6I", held.raw)
    less = struct.pack("<6I", effective & ~0b110, *rest)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(head, ctypes.create_string_buffer(less, 24)) == 0
    yield
    assert libc.capset(head, held) == 0


def odd_paths(folder):
    """Paths that hold nothing that can be used, by name."""
    for name in ("file", "empty", "denied.jsonl"):
        (folder / name).write_text("" if name == "empty" else '{"text": "x"}\n')
    (folder / "binary").write_bytes(bytes(range(256)) * 40)
    for name in ("folder", "denied"):
        (folder / name).mkdir()
    for name in ("fifo", "fifo.jsonl", "fifo.gguf", "fifo.jinja"):
        os.mkfifo(folder / name)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "dangling").symlink_to(folder / "nowhere")
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(folder)  # such names are short
        made.bind("socket")
    for name in ("denied", "denied.jsonl"):
        (folder / name).chmod(0)
    names = (
        "folder",
        "fifo",
        "loop",
        "dangling",
        "empty",
        "binary",
        "socket",
        "missing",
        "file/x",
        "denied",
        "denied/x",
    )
    return [
        *(str(folder / name) for name in names), str(folder / ("n" * 5000)), str(folder / ("n" * 300)),
        str(folder.joinpath(*["part"] * 1500)), f"{folder}/a\0b", "\0", "", "   ", "a\nb", "~nobody/x", "..", "/",
        f"{folder}/\x1b[2J\u202e", "/dev/zero", "/dev/full", "/proc/self/mem", "hf://datasets/\0/x", "https://x\0y",
        "file:///etc/passwd", "con", "C:\\x:y", "é" * 200, str(folder / "denied") + "/" * 300,
    ]  # fmt: skip


def toml(**sections):
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in section.items())
        for name, section in sections.items()
    )


def recipe_request(method, **more):
    """Requests that read a recipe, with the odd path in each of its places."""
    for end in ("", ".jsonl"):
        yield lambda path, end=end: {"recipe": toml(model=MODEL, data={"files": [path + end]}), **more}
    yield lambda path: {"recipe": toml(model={"path": path}, data={"files": ["x.jsonl"]}), **more}
    yield lambda path: {"recipe": toml(model=MODEL, adapter={"start": path}, data={"files": ["x.jsonl"]}), **more}
    yield lambda path: {"recipe": toml(model=MODEL, data={"files": ["x.jsonl"], "template": path + ".jinja"}), **more}


SETTINGS = [{"key": "train.seed", "values": ["1", "2"]}]
REQUESTS = {
    **{name: [lambda path: {"path": path}] for name in ("model", "check_files", "adapter")},
    **{
        name: [lambda path: {"run": path}]
        for name in (
            "resume",
            "delete",
            "restore",
            "purge",
            "held_out",
            "cancel_export",
            "forecast",
            "export",
            "annotate",
        )
    },
    **{name: [lambda path: {"folder": path}] for name in ("stop_duel", "resume_duel", "duels")},
    **{name: [lambda path: {"folders": [path]}] for name in ("runs", "local_models")},
    **{name: list(recipe_request(name)) for name in ("inspect", "columns", "rows", "preview", "estimate", "offers")},
    "plan_sweep": list(recipe_request("plan_sweep", settings=SETTINGS)),
    "start": [lambda path: {"recipe": toml(model={"path": path}, data={"files": [path + ".jsonl"]})}],
    "command": [lambda path: {"run": path, "command": "pause"}],
    "vote": [lambda path: {"run": path, "prompt": "x", "shown": ["tuned", "base"]}],
    "compare": [lambda path: {"runs": [path, path]}],
    "hand_over": [lambda path: {"run": path, "file": path, "program": "ollama"}],
    "chat": [
        lambda path: {"target": path, "messages": SAY},
        lambda path: {"target": path + ".gguf", "messages": SAY},
    ],
    "what_fits": [lambda path: {"model": path}],
    "suggest": [lambda path: {"model": path}],
    "download": [lambda path: {"name": path, "do": "pause"}],
    "fetch": [lambda path: {"name": path}],
}


def is_no_bug(answer, why):
    if isinstance(answer, Failure):
        assert answer.exit_code != ExitCode.BUG, f"{why}: {answer.what}"
        assert "Traceback" not in answer.what, why
        assert len(answer.what) < 12_000, why


@pytest.mark.parametrize("method", REQUESTS)
def test_paths_that_cannot_be_used(answers, model, tmp_path, monkeypatch, no_privileges, method):
    monkeypatch.setitem(MODEL, "path", str(model))
    monkeypatch.chdir(tmp_path)  # which `odd_paths` leaves
    paths = odd_paths(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    for path in paths:
        for fields in REQUESTS[method]:
            if path == "" and method in ("duels", "runs", "what_fits", "suggest"):
                continue  # nothing named: all, or the usual ones
            is_no_bug(answers.ask(method, **fields(path)), (method, path[:100]))
    assert {path.name for path in tmp_path.iterdir()} == before
    assert not runs_dir().exists() or not list(runs_dir().iterdir())


def as_fifo(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def as_folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def as_text(text):
    def change(path):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


CHANGES = {
    "a pipe": as_fifo,
    "a folder": as_folder,
    "a device": lambda path: (path.unlink(missing_ok=True), path.symlink_to("/dev/zero")),
    "empty": as_text(""),
    "binary": as_text(bytes(range(256)) * 8),
    "deep": as_text("[" * 100_000),
    "many digits": as_text('{"a": ' + "9" * 5000 + "}"),
    "a list": as_text("[]"),
    "a number": as_text("3"),
    "other types": as_text(
        '{"ids": [3], "chats": [[3]], "files": 3, "r": "x", "v": "1", "model_type": 3, "weight_map": []}'
    ),
    "NaN": as_text('{"max_position_embeddings": NaN, "eos_token_id": NaN, "temperature": NaN}'),
    "a huge header": as_text(b"\xff" * 8 + b"{}"),
}
MODEL_FILES = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors",
    "README.md", "chat_template.jinja", "burnish-model.json", "model.safetensors.index.json", "special_tokens_map.json",
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_models_with_an_odd_file(answers, model, tmp_path, change):
    for file in MODEL_FILES:
        folder = shutil.copytree(model, tmp_path / file)
        CHANGES[change](folder / file)
        for method in ("model", "check_files", "what_fits"):
            fields = {"model": str(folder)} if method == "what_fits" else {"path": str(folder)}
            is_no_bug(answers.ask(method, **fields), (method, file))
        recipe = toml(model={"path": str(folder)}, data={"files": ["x.jsonl"]})
        is_no_bug(answers.ask("estimate", recipe=recipe), ("estimate", file))
    is_no_bug(answers.ask("local_models", folders=[str(tmp_path)]), "local_models")


@pytest.mark.parametrize("change", CHANGES)
def test_adapters_with_an_odd_file(answers, model, tmp_path, change):
    made = lora(model, tmp_path / "made", rank=2)
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        folder = shutil.copytree(made, tmp_path / file)
        CHANGES[change](folder / file)
        answer = answers.ask("adapter", path=str(folder))
        assert isinstance(answer, Failure), file
        is_no_bug(answer, file)


STATE = {"v": 1, "run": "x", "name": "x", "status": "finished"}
ODD_STATES = {
    "a negative process": {"status": "running", "pid": -1, "process_created": 1.0},
    "a huge process": {"status": "running", "pid": 10**30, "process_created": 1.0},
    "no moment": {"created": 1e300}, "before all": {"created": -5.0},
    "in the future": {"created": 4e9, "heartbeat": 4e9},
    "an endless end": {"ends": 1e308}, "many steps": {"step": 10**300, "total_steps": -3}, "a list": {"name": []},
    "another version": {"v": 99}, "text": {"status": "what", "loss": "x"}, "escapes": {"name": "\x1b[2J\u202e" * 50},
}  # fmt: skip


def test_no_age_is_negative(burnish_home, capsys):
    folder = runs_dir() / "x"
    folder.mkdir(parents=True)
    for created in (4e9, 0.0, 1.0):
        (folder / "state.json").write_text(json.dumps(STATE | {"created": created}))
        assert main(["runs", "list"]) == ExitCode.DONE
        assert "-" not in capsys.readouterr().out.rpartition("x")[2]


@pytest.mark.parametrize("name", ODD_STATES)
def test_runs_with_an_odd_state(answers, burnish_home, name):
    folder = runs_dir() / "x"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps(STATE | ODD_STATES[name]))
    is_no_bug(answers.ask("runs"), name)
    for method, fields in {
        "held_out": {}, "compare": {}, "annotate": {"text": "x"}, "forecast": {}, "cancel_export": {},
        "vote": {"prompt": "x", "shown": ["tuned", "base"]}, "command": {"command": "pause"},
    }.items():  # fmt: skip
        which = {"runs": [str(folder)]} if method == "compare" else {"run": str(folder)}
        is_no_bug(answers.ask(method, **which, **fields), (method, name))


RUN_FILES = (
    "state.json", "recipe.toml", "events.jsonl", "card.json", "notes.json", "votes.json", "held_out.json",
    "remote.json", "task_rows.json", "process_end.json", "hardware.jsonl",
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_runs_with_an_odd_file(answers, burnish_home, change):
    for number, file in enumerate(RUN_FILES):
        folder = runs_dir() / f"x{number}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps(STATE))
        (folder / "recipe.toml").write_text("[model]\npath = 'embedded'\n")
        CHANGES[change](folder / file)
        for method, fields in {"held_out": {}, "forecast": {}, "cancel_export": {}}.items():
            is_no_bug(answers.ask(method, run=str(folder), **fields), (method, file))
        is_no_bug(answers.ask("compare", runs=[str(folder)]), ("compare", file))
    is_no_bug(answers.ask("runs"), "runs")
