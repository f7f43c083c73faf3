"""Several hundred bad inputs over all commands: one paragraph, a fitting exit code, no bug, no half file.

Everything runs in this process on a tiny model. A case is a row of a table; what each table has in common is checked
in `refused`.
"""

import bz2
import gzip
import io
import json
import lzma
import math
import os
import shutil
import struct
import tempfile
import zipfile

import pytest

from burnish_engine.cli.command_line import _commands
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.export.gguf.header import read_header
from burnish_engine.runs.store import create_run, read_state, write_state

from support.tiny import conversations, make_llama, write_jsonl

USAGE, DATA, ENVIRONMENT = 2, 11, 12


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a tiny model. No test changes it."""
    return make_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def refused(capsys, tmp_path):
    """Runs a command that has to be refused, and checks how."""

    def check(*arguments, codes=(USAGE, DATA, ENVIRONMENT)):
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        said = f"{arguments}: {code}: {printed.out[-300:]} {printed.err[-600:]}"
        assert code in codes, said
        assert printed.err.count("burnish: ") == 1, said
        assert "bug in Burnish" not in printed.err, said
        assert "Traceback" not in printed.out + printed.err, said
        assert "\x1b" not in printed.out + printed.err, said
        assert len(printed.err) < 4000, said
        after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        assert after == before, said
        assert not runs_dir().exists() or not [path for path in runs_dir().iterdir() if path.name[0] == "2"], said
        return printed.err

    return check


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
        refused(*command, f"{option}={number}", codes=(USAGE,))


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
LEAVE_OUT = {"folder": ["suggest"], "empty": ["recipe check", "plan", "suggest"], "binary": ["suggest"]}
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


# Recipes.

BAD_RECIPES = [
    "version = 2", 'version = "1"', "version = [1]", "=", "[", "[model", "a = 1", "[[model]]", "model = 3",
    "[model]\npath = ''", "[model]\npath = 3", '[model]\npath = "a\\u0000b"', "[model]\nquantize = 'int8'",
    "name = 7", f"name = '{'x' * 200}'", "[data]\nfiles = 'x'", "[data]\nfiles = [1]", "[data]\nfiles = ['']",
    "[data]\nvalidation_files = [' ']", "".join(f"[odd{n}]\n" for n in range(2000)), '[data]\nfiles = ["\\u0000"]',
    "[data]\ncolumns = ['prompt=a', 'text=a']",
    "[data]\ncolumns = ['x']", "[data]\ncolumns = ['=x']", "[data]\ncolumns = ['x=']", "[data]\ncolumns = 'prompt=a'",
    "[data]\nmax_length = 0", "[data]\nmax_length = 1e3", f"[data]\nmax_length = {10**18}", "[data]\nshape = 'odd'",
    "[data]\nencoding = 'utf-7'", "[data]\ntemplate = ''", "[data]\ntemplate = 'chatmll'",
    "[data]\ntemplate = 'missing.jinja'", "[data]\ntemplate = 'empty.jinja'", "[data]\ntemplate = 'folder.jinja'",
    "[data]\ntemplate = 'binary.jinja'", "[data]\nweights = [1.0]", "[data]\nfiles = ['a']\nweights = [nan]",
    "[data]\nfiles = ['a']\nweights = [inf]", "[data]\nfiles = ['a']\nweights = [-1.0]",
    "[data]\nvalidation_share = nan", "[data]\nvalidation_share = 0.9", "[data]\nworkers = -1", "[data]\nlearn = 1",
    "[adapter]\nrank = 0", "[adapter]\nrank = 16.0", "[adapter]\nrank = true", "[adapter]\nalpha = nan",
    "[adapter]\nalpha = inf", "[adapter]\ndropout = 1.0", "[adapter]\nmethod = 'x'", "[adapter]\ntargets = 'q_proj'",
    f"[train]\nmax_steps = {'9' * 400}", f"[train]\nmax_steps = {'9' * 5000}", "[train]\nmax_steps = -1",
    f"[train]\nmax_tokens = {10**18}", f"[train]\nmicro_batch_tokens = {10**18}", "[train]\nmicro_batch_tokens = 1",
    "[train]\nlearning_rate = 0", "[train]\nlearning_rate = nan", "[train]\nlearning_rate = '1e-4'",
    "[train]\nlearning_rate = -1e-4", "[train]\nepochs = inf", "[train]\nepochs = 0", "[train]\nseed = -1",
    f"[train]\nseed = {2**64}", "[train]\nschedule = 'exp'", "[train]\nbeta1 = 1.0", "[train]\nepsilon = 0.0",
    "[train]\nprecision = 'fp8'", "[train]\noptimizer = 'sgd'", "[train]\naccumulation = 0", "[train]\npack = 1",
    "[train]\nkeep_checkpoints = 0", f"[train]\ncheckpoint_every = {10**18}", "[train]\nlerning_rate = 1",
    "[memory]\nlayers = 'x'", "[memory]\nlayers = ''", "[memory]\nbudget_gib = nan", "[memory]\nbudget_gib = -1.0",
    "[memory]\nmlp_rows = 5", f"[memory]\nhead_rows = {10**18}", "[masking]\nprobability = 0.0", "[masking]\nkind = 3",
    "[evaluation]\nevery = -1", "[evaluation]\npatience = 3", "[evaluation]\nprompts = [3]",
    f"[evaluation]\nmax_rows = {10**18}", "[guard]\naction = 'x'", "[guard]\ntroubles = 0", "[export]\nquants = ['Q9']",
    "[export]\nsize_limit_mb = inf", "[export]\nsize_limit_mb = nan", "[export]\nimportance_tokens = 1",
    "[target]\nram_gib = nan", "[target]\nram_gib = 0.0", "[target]\ncontext = 1", "[target]\nkind = 'toaster'",
    "[devices]\nkind = 'tpu'", "[devices]\ngpus = []", "[devices]\ngpus = [-1]", "[devices]\ngpus = [0, 1]",
    "[devices]\nthreads = 2000", "[adapter]\nmethod = 'full'\n[model]\nquantize = 'nf4'", "\x00", "\ufffe = 1",
    "[data]\nmax_length = 4096\n[train]\nmicro_batch_tokens = 2048", "a.b.c.d = 1", "x = " + "[" * 3000,
    "[data]\n[data]", "[model]\npath = \"\x1b[2J\"", "x = 1979-05-27", "x = {a = 1, a = 2}",
]  # fmt: skip


@pytest.mark.parametrize("part", range(5))
def test_recipes(refused, tmp_path, part):
    (tmp_path / "empty.jinja").write_text(" \n")
    (tmp_path / "folder.jinja").mkdir()
    binary(tmp_path / "binary.jinja")
    for text in BAD_RECIPES[part::5]:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        refused("recipe", "check", path, codes=(USAGE, DATA))


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a = '\xe9'", b"# " + b"x" * 1_000_001], ids=["utf16", "latin", "1 MB"]
)
def test_recipe_files(refused, tmp_path, content):
    (tmp_path / "recipe.toml").write_bytes(content)
    refused("recipe", "check", tmp_path / "recipe.toml", codes=(USAGE,))


# Data of each format.

GOOD = "".join(json.dumps(row) + "\n" for row in conversations(6)).encode()


def _zip(**members):
    with tempfile.SpooledTemporaryFile() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(name.replace("_", "."), content)
        file.seek(0)
        return file.read()


BAD_DATA = {
    "a.jsonl": [b"", b"\n\n", b"{", b"{}", b"[]", b"null\n", b"3\n", b'"x"\n', GOOD[:-9], b'{"a": 1}\n', b"\xff\xfe{}",
                b'{"messages": 3}\n', b'{"messages": []}\n', b'{"messages": [{"role": "user"}]}\n', b"\x00" * 100,
                b'{"messages": [[]]}\n', b'{"text": NaN}\n', b"[" * 5000, b'{"a":' * 5000, b'{"text": ""}\n',
                b'{"text": null}\n', b'{"prompt": "x"}\n', b'{"messages": "\\ud800"}\n', b'{"": ""}\n'],
    "a.json": [b"", b"{", b"[", b"[3]", b"3", b"[[]]", b"[{}]", b'{"data": 3}', b"null", b"[" * 5000, GOOD[:50]],
    "a.csv": [b"", b"\n", b"a\n", b"a,b\n1\n", b"x,y\n1,2\n", b'text\n"open', b"\xff\xfe\x00", b"text\n\n",
              b",,\n,,\n"],
    "a.tsv": [b"", b"a\tb\n1\t2\n", b"\x00\t\x00\n"],
    "a.txt": [b"", b" \n\n ", b"\xff\xfe\xfd"],
    "a.md": [b"", b"\x80"],
    "a.parquet": [b"", b"PAR1", b"PAR1" + b"\0" * 40 + b"PAR1", b"PAR1" + b"\xff" * 99 + b"PAR1", GOOD],
    "a.arrow": [b"", b"ARROW1", b"ARROW1\0\0" + b"\xff" * 64 + b"ARROW1", GOOD],
    "a.jsonl.gz": [b"", b"\x1f\x8b", gzip.compress(GOOD)[:-12], gzip.compress(b""), GOOD],
    "a.jsonl.bz2": [b"", b"BZh9", bz2.compress(GOOD)[:-12], GOOD],
    "a.jsonl.xz": [b"", lzma.compress(GOOD)[:-12], GOOD],
    "a.jsonl.zst": [b"", b"\x28\xb5\x2f\xfd", GOOD],
    "a.zip": [b"", b"PK\x03\x04", _zip(a_jsonl=GOOD)[:-30], _zip(), _zip(a_exe=b"x"), _zip(a_jsonl=b"{"), GOOD],
    "a.exe": [b"MZ", GOOD],
    "a": [b"x"],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_DATA)
def test_data(refused, tmp_path, model, name):
    for content in BAD_DATA[name]:
        (tmp_path / name).write_bytes(content)
        refused("inspect", tmp_path / name, "--model", model, codes=(USAGE, DATA))


INSPECT_OPTIONS = [
    ["--shape", "odd"], ["--column", "x"], ["--column", "=x"], ["--column", "prompt=missing"], ["--learn", "nothing"],
    ["--template", "chatmll"], ["--encoding", "ebcdic"], ["--broken-rows", "hide"], ["--overlong", "keep"],
    ["--max-length", "3"], ["--max-length", "0"], ["--micro-batch-tokens", "17"], ["--validation", "missing.jsonl"],
    ["--shape", "kto"], ["--column", "odd=messages"], ["--model", "nowhere/at-all"], ["--odd"], ["--template", ""],
]  # fmt: skip


def test_options_of_inspect(refused, tmp_path, model):
    data = write_jsonl(tmp_path / "good.jsonl", conversations(6))
    for options in INSPECT_OPTIONS:
        refused("inspect", data, "--model", model, *options)


@pytest.mark.skipif(os.name == "nt", reason="names are always Unicode")
def test_names_and_texts_that_are_no_unicode(refused, tmp_path, model, monkeypatch):
    """Bytes that are no UTF-8 arrive as lone surrogates, which neither a recipe nor a card could hold."""
    good = "".join(json.dumps(row) + "\n" for row in conversations(6))
    (tmp_path / "data").mkdir()
    for path in (tmp_path / "\udcfe.jsonl", tmp_path / "data" / "\udcfe.jsonl"):
        path.write_text(good)
    for call in (["inspect", "\udcfe.jsonl", "--json"], ["suggest", "--data", "\udcfe.jsonl", "--out", "s.toml"],
                 ["recipe", "new", "n.toml", "--data", "\udcfe.jsonl"], ["chat", model, "--prompt", "\udcff"],
                 ["inspect", tmp_path / "data", "--model", model, "--json"]):  # fmt: skip
        monkeypatch.chdir(tmp_path)
        refused(*call, codes=(USAGE, DATA))
    (tmp_path / "\udcfe").mkdir()
    monkeypatch.chdir(tmp_path / "\udcfe")
    refused("runs", "list", codes=(USAGE,))
    (tmp_path / "\udcfe").rmdir()
    refused("runs", "list", codes=(USAGE,))


def test_a_home_that_is_a_file(refused, tmp_path, monkeypatch):
    (tmp_path / "home").write_text("mine")
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    for call in (["runs", "list"], ["models"], ["recipe", "new", tmp_path / "new.toml"]):
        assert "BURNISH_HOME" in refused(*call, codes=(USAGE,))


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
        refused("plan", recipe, codes=(ENVIRONMENT,))


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
    refused("plan", recipe, "--skip-data", codes=(ENVIRONMENT,))


@UNREADABLE
def test_recipes_and_data_that_cannot_be_read(refused, tmp_path, model, hide):
    hide(tmp_path / "recipe.toml")
    refused("recipe", "check", tmp_path / "recipe.toml", codes=(USAGE,))
    hide(tmp_path / "rows.jsonl")
    refused("inspect", tmp_path / "rows.jsonl", "--model", model, codes=(USAGE, DATA))


@UNREADABLE
@pytest.mark.parametrize("name", ["state", "recipe"])
def test_runs_with_a_file_that_cannot_be_read(refused, hide, name):
    run = spoiled_run(lambda paths: hide(getattr(paths, name))).root
    for command in ("export", "chat"):
        refused(command, run, codes=(USAGE,))


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
        refused("bench", "gguf", path, codes=(USAGE,) if name == "no magic" else (ENVIRONMENT,))
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
            refused(*command, codes=(USAGE,))
    assert main(["runs", "list"]) == 0


def test_damaged_recipes_of_runs(refused):
    for number, text in enumerate([b"", b"{", b"\xff", b"[model]\npath = 3", b"version = 9"]):
        run = spoiled_run(lambda paths, text=text: paths.recipe.write_bytes(text), f"spoiled-{number}").root
        refused("export", run)
        refused("chat", run)


BAD_ADAPTERS = [
    (b"", b""), (b"{}", b""), (b"{", b"\0" * 8), (b"[]", _header({})), (b"\xff", _header(b"{")),
    (b'{"r": "x"}', _header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})),
]  # fmt: skip


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


def test_events_that_cannot_be_read_do_not_hide_a_run(capsys):
    for number, text in enumerate([b"{", b"\xff\n", b"3\n", b'{"type": "odd"}\n', b"[" * 5000, b"\x1b[2J\n"]):
        run = spoiled_run(lambda paths, text=text: paths.events.write_bytes(text), f"spoiled-{number}").root
        assert main(["runs", "show", str(run)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_deletion_that_nobody_confirms_names_the_option(monkeypatch, capsys):
    run = spoiled_run(lambda _paths: None).root
    for typed in ("", "n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert main(["runs", "delete", str(run)]) == USAGE
        assert "--yes" in capsys.readouterr().err
        assert run.is_dir()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["runs", "delete", str(run)]) == 0


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
    ["export", "x", "--to", "zip"],
    ["export", "x", "--to", "adapter", "--json"], ["export", "x", "--each-expert"],
    ["export", "x", "--size-limit", "-1"], ["runs", "show"],
    ["runs", "compare", "x"], ["runs", "compare", "x", "x"], ["runs", "delete", "x"], ["runs", "odd"],
    ["bench", "kernels", "--op", "odd"], ["bench", "step", "--shape", "odd"], ["bench", "step", "--method", "odd"],
    ["bench", "step", "--precision", "odd"], ["bench", "step", "--device", "odd"], ["bench", "step", "--rank", "0"],
    ["bench", "step", "--keep", "odd", "--device", "cpu"], ["bench", "step", "--optimizer", "odd"],
    ["bench", "step", "--masking", "odd"], ["bench", "step", "--one-document", "--packs", "x"], ["bench", "gguf"],
    ["bench", "step", "--device", "cpu", "--gpus", "2", "--profile"],
    ["bench", "gguf", "x", "--threads", "0"], ["recipe", "odd"], ["demo", "--tokens", "1"], ["--odd"], ["-x"],
]  # fmt: skip


@pytest.mark.parametrize("call", BAD_CALLS, ids=lambda call: " ".join(call) or "nothing")
def test_calls(call, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(call) == USAGE
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "This is a bug" not in error  # the help of `burnish` itself lists the exit code for one
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", [["train", "x"], ["runs", "resume", "x"], ["bench", "step"]], ids=" ".join)
def test_more_gpus_than_can_share_a_run(call, capsys):
    assert main([*call, "--gpus", "65"]) == USAGE
    assert "64" in capsys.readouterr().err


def test_a_rank_without_a_leader_is_told_what_to_unset(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert main(["train", "x"]) == USAGE
    assert "WORLD_SIZE" in capsys.readouterr().err


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
