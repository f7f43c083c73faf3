"""A model folder that is not whole, not safe or not known is told in one paragraph; nothing in it is run."""

import json

import pytest
from safetensors.torch import save_file

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path.plain import load_base

from support.models.export import CPU, edit_json
from support.models.tiny import make_llama

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    return make_llama(tmp_path / "base")


def refused(folder):
    """The paragraph that `open_model` refuses the folder with."""
    with pytest.raises(SetupError) as caught:
        open_model(str(folder))
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder) in text
    return text


def test_a_whole_folder_is_opened(folder):
    source = open_model(str(folder))
    assert (source.name, source.spec.family, source.note) == ("base", "llama", "")


def test_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="does not exist"):
        open_model(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="is a file"):
        open_model(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "holds a list"),
        ("\u00e9".encode("latin-1"), "not valid JSON"),
    ],
    ids=["cut", "deep", "list", "latin-1"],
)
@pytest.mark.parametrize("name", ["config.json", INDEX])
def test_damaged_json(folder, name, text, words):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert words in refused(folder)
    assert name in refused(folder)


def test_no_config(folder):
    (folder / "config.json").unlink()
    assert "no config.json" in refused(folder)


def test_a_config_with_missing_keys_is_read_as_transformers_reads_it(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "partial_rotary_factor": 0.5}))
    assert open_model(str(folder)).spec is None
    del config["hidden_size"]
    (folder / "config.json").write_text(json.dumps(config))
    assert "config.json says [365, 4096]" in refused(folder)


@pytest.mark.parametrize("weight_map", [None, {}, [], "x", {"a": 3}, {"a": ["model.safetensors"]}])
def test_an_index_without_files(folder, weight_map):
    (folder / INDEX).write_text(json.dumps({} if weight_map is None else {"weight_map": weight_map}))
    assert "no usable weight_map" in refused(folder)


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "a/../../x.safetensors", "/x.safetensors", "..\\x.safetensors", "C:\\x.safetensors",
     "C:x.safetensors", "\\\\host\\x.safetensors", "pytorch_model.bin"],
)  # fmt: skip
def test_an_index_that_leaves_the_folder_or_names_pickles(folder, name):
    save_file({}, folder.parent / "x.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": name}}))
    assert f"{name!r}, which is not a safetensors file inside the model folder" in refused(folder)


def test_an_index_whose_files_are_missing(folder):
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "m-2.safetensors"}}))
    assert "lacks 1 of 2 weight files, first m-2.safetensors" in refused(folder)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "model.safetensors"}}))
    assert open_model(str(folder)).spec is not None


def test_pickles_only_and_no_weights(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "only as pickles (pytorch_model.bin)" in refused(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "has no weights" in refused(folder)


def test_no_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer" in refused(folder)


@pytest.mark.parametrize("family", ["nobodys", None, ["llama"]])
def test_an_unknown_architecture(folder, family):
    edit_json(folder / "config.json", model_type=family)
    assert f"the architecture {family!r}" in refused(folder)
    assert "Python code" not in refused(folder)


@pytest.mark.full
def test_code_in_the_folder_is_never_run(folder, tmp_path):
    ran = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nclass Model: pass\nclass Config: pass\n")
    code = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    edit_json(folder / "config.json", auto_map=code)
    load_base(open_model(str(folder)), "fp32", CPU)  # transformers' own Llama
    assert not ran.exists()
    edit_json(folder / "config.json", model_type="evil")
    assert "its own Python code is not run" in refused(folder)
    assert not ran.exists()
