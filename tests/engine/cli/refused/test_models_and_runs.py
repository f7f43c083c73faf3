"""Model folders, GGUF files and run folders that are refused, and files that cannot be read."""

import io
import json
import math
import os
import shutil
import struct

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode, SetupError
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.runs.store import create_run, read_state, write_state

from support.models.tiny import conversations, write_jsonl

# Model folders.


def _config(**changes):
    def change(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, **changes}))

    return change


def _write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def _weights(content):
    return _write("model.safetensors", content)


def _header(header):
    raw = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(raw)) + raw


BAD_MODELS = [
    _write("config.json", b""), _write("config.json", b"{"), _write("config.json", b"[]"), _write("config.json", b"3"),
    _write("config.json", b"\xff\xfe"), _write("config.json", b"[" * 5000), _config(model_type=3),
    _config(model_type="quantum"), _config(model_type=None), _config(vocab_size=None), _config(hidden_size="wide"),
    _config(num_hidden_layers=0), _config(num_hidden_layers=10**9), _config(num_attention_heads=0),
    _config(num_attention_heads=7), _config(rms_norm_eps="small"), _config(intermediate_size=-5),
    _weights(b""), _weights(b"\0" * 8), _weights(struct.pack("<Q", 2**60)), _weights(_header({})),
    _weights(_header(b"{")), _weights(_header({"a": 3})), _weights(_header({"a": {"dtype": "F32"}})),
    _weights(_header({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}})),
    _weights(_header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}})),
    _weights(_header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}})),
    _write("tokenizer.json", b""), _write("tokenizer.json", b"{}"), _write("tokenizer.json", b"[]"),
    _write("tokenizer.json", b"\xff"),
]  # fmt: skip


@pytest.mark.parametrize("part", range(10))
def test_model_folders(refused, tmp_path, model, part):
    data = write_jsonl(tmp_path / "good.jsonl", conversations(6))
    recipe = tmp_path / "recipe.toml"
    broken = tmp_path / "broken"
    broken.mkdir()
    recipe.write_text(
        f"[model]\npath = '{broken}'\n[data]\nfiles = ['{data}']\nmax_length = 128\n[devices]\nkind = 'cpu'\n"
    )
    for spoil in BAD_MODELS[part::10]:
        for path in model.iterdir():
            (broken / path.name).write_bytes(path.read_bytes())
        spoil(broken)
        refused("plan", recipe, codes=(ExitCode.ENVIRONMENT,))


# GGUF files.


def _text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(*pairs, tensors=0, version=3, rest=b""):
    """A GGUF of these keys; a pair's value is a text, or (type, packed bytes)."""
    body = b""
    for key, value in pairs:
        kind, raw = (8, _text(value)) if isinstance(value, str) else value
        body += _text(key) + struct.pack("<I", kind) + raw
    return b"GGUF" + struct.pack("<IQQ", version, tensors, len(pairs)) + body + rest


def number(value):
    return 4, struct.pack("<I", value)


BAD_GGUFS = {
    "no magic": b"GGML" + b"\0" * 40,
    "short": b"GGUF",
    "version 1": gguf(version=1),
    "version 99": gguf(version=99),
    "many tensors": gguf(tensors=2**60),
    "missing tensors": gguf(("general.architecture", "llama"), tensors=3),
    "alignment 0": gguf(("general.architecture", "llama"), ("general.alignment", number(0))),
    "alignment 5": gguf(("general.architecture", "llama"), ("general.alignment", number(5))),
    "alignment text": gguf(("general.architecture", "llama"), ("general.alignment", "32")),
    "alignment float": gguf(("general.alignment", (6, struct.pack("<f", 32.5)))),
    "alignment nan": gguf(("general.alignment", (6, struct.pack("<f", math.nan)))),
    "context text": gguf(("general.architecture", "llama"), ("llama.context_length", "many")),
    "heads text": gguf(("general.architecture", "llama"), ("llama.attention.head_count", "x")),
    "tokens text": gguf(("tokenizer.ggml.tokens", "x")),
    "odd type": gguf(("a", (77, b""))),
    "long text": gguf(("a", (8, struct.pack("<Q", 2**62)))),
    "endless array": gguf(("a", (9, struct.pack("<IQ", 8, 2**62)))),
    "nested array": gguf(("a", (9, struct.pack("<IQ", 9, 1)))),
    "nine dimensions": gguf(tensors=1, rest=_text("a") + struct.pack("<I", 9)),
    "odd tensor type": gguf(tensors=1, rest=_text("a") + struct.pack("<IQIQ", 1, 1, 9999, 0)),
}


def test_gguf_files(refused, tmp_path):
    for name, content in BAD_GGUFS.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        refused("bench", "gguf", path, codes=(ExitCode.USAGE,) if name == "no magic" else (ExitCode.ENVIRONMENT,))
    with pytest.raises(SetupError):
        read_header(tmp_path / "alignment 0.gguf")


# Run folders.


def spoiled_run(spoil, name="spoiled"):
    paths = create_run(Recipe(), runs_dir() / name)
    write_state(paths, read_state(paths).model_copy(update={"status": "finished"}))
    spoil(paths)
    return paths


def _state(text):
    return lambda paths: paths.state.write_bytes(text)


BAD_STATES = [b"", b"{", b"[]", b"3", b"null", b"{}", b'{"v": 1}', b'{"v": 7}', b'{"v": "1"}', b"\xff", b"[" * 5000,
              b'{"v": 1, "run": 3}', b'{"v": NaN}']  # fmt: skip
ON_RUNS = [["show"], ["stop"], ["pause"], ["suspend"], ["checkpoint"], ["sample"], ["smaller-plan"], ["resume"]]


def test_damaged_states(refused):
    for number, text in enumerate(BAD_STATES):
        run = spoiled_run(_state(text), f"spoiled-{number}").root
        for command in (["runs", *ON_RUNS[number % len(ON_RUNS)], run], ["export", run], ["chat", run]):
            refused(*command, codes=(ExitCode.USAGE,))
    assert main(["runs", "list"]) == 0


@pytest.mark.full
def test_damaged_recipes_of_runs(refused):
    for number, text in enumerate([b"", b"{", b"\xff", b"[model]\npath = 3", b"version = 9"]):
        run = spoiled_run(lambda paths, text=text: paths.recipe.write_bytes(text), f"spoiled-{number}").root
        refused("export", run)
        refused("chat", run)


BAD_ADAPTERS = [
    (b"", b""), (b"{}", b""), (b"{", b"\0" * 8), (b"[]", _header({})), (b"\xff", _header(b"{")),
    (b'{"r": "x"}', _header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})),
]  # fmt: skip


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("config", "weights"), BAD_ADAPTERS)
def test_damaged_adapters(refused, model, config, weights):
    def spoil(paths):
        paths.recipe.write_text(f"[model]\npath = '{model}'\n[devices]\nkind = 'cpu'\n")
        paths.adapter.mkdir()
        (paths.adapter / "adapter_config.json").write_bytes(config)
        (paths.adapter / "adapter_model.safetensors").write_bytes(weights)

    run = spoiled_run(spoil).root
    refused("export", run, "--to", "safetensors")
    refused("chat", run, "--prompt", "x", "--device", "cpu")


@pytest.mark.full
def test_events_that_cannot_be_read_do_not_hide_a_run(capsys):
    for number, text in enumerate([b"{", b"\xff\n", b"3\n", b'{"type": "odd"}\n', b"[" * 5000, b"\x1b[2J\n"]):
        run = spoiled_run(lambda paths, text=text: paths.events.write_bytes(text), f"spoiled-{number}").root
        assert main(["runs", "show", str(run)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_deletion_that_nobody_confirms_names_the_option(monkeypatch, capsys):
    run = spoiled_run(lambda _paths: None).root
    for typed in ("", "n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert main(["runs", "delete", str(run)]) == ExitCode.USAGE
        assert "--yes" in capsys.readouterr().err
        assert run.is_dir()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["runs", "delete", str(run)]) == 0


# What cannot be read: a folder where a file is expected, and a file without permission where that means anything.


def _folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def _forbidden(path):
    path.touch()
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")


UNREADABLE = pytest.mark.parametrize("hide", [_folder, _forbidden])


@UNREADABLE
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_models_with_a_file_that_cannot_be_read(refused, tmp_path, model, hide, name):
    broken = shutil.copytree(model, tmp_path / "broken")
    hide(broken / name)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[model]\npath = '{broken}'\n[devices]\nkind = 'cpu'\n")
    refused("plan", recipe, "--skip-data", codes=(ExitCode.ENVIRONMENT,))


def test_a_model_folder_without_permission_is_no_folder_without_a_config(refused, tmp_path, model, monkeypatch):
    hidden = shutil.copytree(model, tmp_path / "hidden")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[model]\npath = '{hidden}'\n[devices]\nkind = 'cpu'\n")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(hidden) and real(path, mode))
    said = refused("plan", recipe, "--skip-data", codes=(ExitCode.ENVIRONMENT,))
    assert "cannot be read: permission denied" in " ".join(said.split())


@UNREADABLE
def test_recipes_and_data_that_cannot_be_read(refused, tmp_path, model, hide):
    hide(tmp_path / "recipe.toml")
    refused("recipe", "check", tmp_path / "recipe.toml", codes=(ExitCode.USAGE,))
    hide(tmp_path / "rows.jsonl")
    refused("inspect", tmp_path / "rows.jsonl", "--model", model, codes=(ExitCode.USAGE, ExitCode.DATA))


@UNREADABLE
@pytest.mark.parametrize("name", ["state", "recipe"])
def test_runs_with_a_file_that_cannot_be_read(refused, hide, name):
    run = spoiled_run(lambda paths: hide(getattr(paths, name))).root
    for command in ("export", "chat"):
        refused(command, run, codes=(ExitCode.USAGE,))
