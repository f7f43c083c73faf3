"""Recipes and data that are refused."""

import bz2
import gzip
import json
import lzma
import os
import tempfile
import zipfile

import pytest

from burnish_engine.contract.errors import ExitCode

from support.models.tiny import conversations, write_jsonl

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


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("part", range(5))
def test_recipes(refused, tmp_path, part):
    (tmp_path / "empty.jinja").write_text(" \n")
    (tmp_path / "folder.jinja").mkdir()
    (tmp_path / "binary.jinja").write_bytes(bytes(range(256)))
    for text in BAD_RECIPES[part::5]:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        refused("recipe", "check", path, codes=(ExitCode.USAGE, ExitCode.DATA))


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a = '\xe9'", b"# " + b"x" * 1_000_001], ids=["utf16", "latin", "1 MB"]
)
def test_recipe_files(refused, tmp_path, content):
    (tmp_path / "recipe.toml").write_bytes(content)
    refused("recipe", "check", tmp_path / "recipe.toml", codes=(ExitCode.USAGE,))


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
        refused("inspect", tmp_path / name, "--model", model, codes=(ExitCode.USAGE, ExitCode.DATA))


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
        refused(*call, codes=(ExitCode.USAGE, ExitCode.DATA))
    (tmp_path / "\udcfe").mkdir()
    monkeypatch.chdir(tmp_path / "\udcfe")
    refused("runs", "list", codes=(ExitCode.USAGE,))
    (tmp_path / "\udcfe").rmdir()
    refused("runs", "list", codes=(ExitCode.USAGE,))


def test_a_home_that_is_a_file(refused, tmp_path, monkeypatch):
    (tmp_path / "home").write_text("mine")
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    for call in (["runs", "list"], ["models"], ["recipe", "new", tmp_path / "new.toml"]):
        assert "BURNISH_HOME" in refused(*call, codes=(ExitCode.USAGE,))
